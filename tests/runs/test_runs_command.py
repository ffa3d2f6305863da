"""`wirespeed runs`, through click."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wirespeed.cli.runs import runs
from wirespeed.errors import InputError, UsageError, WirespeedError
from wirespeed.model.records import Run
from wirespeed.runs.store import list_runs, save

SAMPLES = Path(__file__).parent / "samples"


def invoke(*arguments: str, text: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(runs, arguments, input=text)
    if isinstance(result.exception, WirespeedError):
        raise result.exception
    return result


def test_import_stores_a_run_that_can_be_shown() -> None:
    result = invoke("import", str(SAMPLES / "wrong_column.txt"))
    assert result.exit_code == 0
    (summary,) = list_runs()
    assert f"run {summary.id}  all_reduce  4 ranks  6 measurements" in result.output
    assert result.output.endswith(f"next: wirespeed runs show {summary.id}\n")
    shown = invoke("show", summary.id).output
    assert "4 ranks on 2 nodes" in shown
    assert "imported figures are shown, not judged" in shown
    assert "# Avg bus bandwidth    : 16.1" in invoke("show", "last", "-o", "nccl-tests").output
    assert json.loads(invoke("show", "last", "-o", "json").output)["id"] == summary.id


def test_import_reads_standard_input() -> None:
    text = (SAMPLES / "error_column.txt").read_text()
    result = invoke("import", "-", "--op", "AllReduce", text=text)
    assert "128 ranks" in result.output
    with pytest.raises(InputError, match="standard input: no rows"):
        invoke("import", "-", text="")
    with pytest.raises(UsageError, match="unknown operation 'nonsense'"):
        invoke("import", "-", "--op", "nonsense", text=text)


def test_import_says_what_it_found_and_exits_0() -> None:
    result = invoke("import", str(SAMPLES / "results.json"))
    assert result.exit_code == 0
    assert "the collective gave wrong data  IMP-002" in result.output
    assert list_runs()[0].verdict == "NOT READY"


def test_nothing_is_stored_unless_every_file_can_be_read(tmp_path: Path) -> None:
    for bad in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            invoke("import", str(SAMPLES / "wrong_column.txt"), str(bad))
    assert list_runs() == []


def test_list(small_run: Run, home: Path) -> None:
    assert "no runs in" in invoke("list").output
    assert json.loads(invoke("list", "-o", "json").output) == []
    save(replace(small_run, id="00000001"))
    (home / "runs" / "20200101-000000-0000000f").mkdir()
    lines = invoke("list").output.splitlines()
    assert "0000000f" in lines[1]
    assert "damaged:" in lines[1]
    assert "00000001" in lines[2]
    assert "NOT READY" in lines[2]
    data = json.loads(invoke("list", "-o", "json").output)
    assert [entry["id"] for entry in data] == ["0000000f", "00000001"]


def test_rm_needs_a_yes(small_run: Run) -> None:
    path = save(small_run)
    with pytest.raises(UsageError) as caught:
        invoke("rm", small_run.id)
    assert str(path) in caught.value.saw
    assert "--yes" in caught.value.expected
    assert path.exists()
    result = invoke("rm", small_run.id, small_run.id[:3], "--yes")
    assert result.output == f"removed {path}\n"
    assert not path.exists()


def test_rm_removes_nothing_when_one_reference_is_wrong(small_run: Run) -> None:
    path = save(small_run)
    with pytest.raises(UsageError, match="no run 'ffff'"):
        invoke("rm", small_run.id, "ffff", "--yes")
    assert path.exists()


@pytest.mark.parametrize("command", ["", "list", "show", "rm", "import"])
def test_help_has_examples(command: str) -> None:
    result = invoke(*filter(None, [command]), "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert "wirespeed runs" in result.output
