"""`wirespeed runs`, through click."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wirespeed.cli.runs import runs
from wirespeed.errors import InputError, StorageError, UsageError, WirespeedError
from wirespeed.model.records import Run
from wirespeed.runs.folder import PatientFolder, RunFolder
from wirespeed.runs.named_files import set_baseline
from wirespeed.runs.store import find, list_runs, load, outdated, save

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
    assert list_runs()[0].verdict == "FAILED"


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


def test_list_in_pages_and_as_csv(small_run: Run) -> None:
    for n in range(4):
        save(replace(small_run, id=f"0000000{n}", command="train" if n == 1 else "bench"))

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in json.loads(invoke("list", "-o", "json", *options).output)]

    assert ids("--last", "2") == ["00000002", "00000003"]
    assert ids("--last", "2", "--before", "00000002") == ["00000000", "00000001"]
    assert ids("--command", "train", "--since", "1d", "--verdict", "fail") == ["00000001"]
    assert ids("--since", "2020-01-01 10:00", "--node", "nobody; --") == []
    assert "no such runs in" in invoke("list", "--gpu", "none").output
    titles, first, *_ = invoke("list", "-o", "csv").output.splitlines()
    assert dict(zip(titles.split(","), first.split(","), strict=True))["id"] == "00000000"
    for bad in ("yesterday", "2026-13-01", "0d", "99999d"):
        with pytest.raises(UsageError, match="--since"):
            invoke("list", "--since", bad)


def test_a_table_has_the_newest_and_says_how_many_more(
    small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.cli.runs._IN_A_TABLE", 2)
    for n in range(5):
        save(replace(small_run, id=f"0000000{n}"))
    lines = invoke("list").output.splitlines()
    assert [line[:8] for line in lines[1:3]] == ["00000003", "00000004"]
    assert lines[3] == "3 more before these: --before 00000003, or --last N"
    assert "more" not in invoke("list", "--before", "00000002").output


def test_prune(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = ("20250101-000000", "20250102-000000", "20250103-000000", "20250104-000000")
    for n, stamp in enumerate(stamps):
        with monkeypatch.context() as patch:
            patch.setattr("wirespeed.runs.folder._STAMP", stamp)
            save(replace(small_run, id=f"0000000{n}"))
    save(replace(small_run, id="00000004"))
    RunFolder.create("bench", {})  # has not ended
    set_baseline([load(find("00000001"))])
    with pytest.raises(UsageError, match="nothing says which runs to keep"):
        invoke("prune")
    assert "2 runs would be removed" in invoke("prune", "--keep-last", "3", "--dry-run").output
    with pytest.raises(UsageError, match="nobody can be asked"):
        invoke("prune", "--keep", "90d")
    assert len(list_runs()) == 6
    assert "removed 2 runs" in invoke("prune", "--keep", "90d", "--keep-last", "3", "--yes").output
    assert [row.id for row in list_runs()][:3] == ["00000001", "00000003", "00000004"]
    assert "removed 2 runs" in invoke("prune", "--keep-last", "0", "--yes").output
    first, _ = list_runs()
    assert first.id == "00000001"


def test_a_run_that_goes_on_is_not_pruned_though_it_writes_nothing() -> None:
    """A job of weeks: nothing is recorded between its start and its end."""
    folder = PatientFolder.create("launch", {})
    assert folder.lock is not None
    for path in (*folder.path.glob("[!.]*"), folder.path):
        os.utime(path, (0, 0))
    assert outdated(None, 0) == []
    folder.lock.release()
    os.utime(folder.path, (0, 0))
    assert outdated(None, 0) == [folder.path]


def test_export(small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    save(replace(small_run, id="00000001"))
    save(replace(small_run, id="00000002", command="train"))
    place = tmp_path / "tables"
    assert f"{place}/runs.parquet  2 rows" in invoke("export", "--parquet", str(place)).output
    table = parquet.read_table(place / "figures.parquet")
    assert table["name"].to_pylist() == ["all_reduce"] * 2
    assert table["busbw"].to_pylist() == [small_run.measurements[0].busbw] * 2
    invoke("export", "--parquet", str(place), "--command", "train")
    for name in ("runs", "figures", "findings", "nodes"):
        stored = set(parquet.read_table(place / f"{name}.parquet")["run"].to_pylist())
        assert [one[-8:] for one in stored] == ["00000002"]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        invoke("export", "--parquet", str(tmp_path / "file"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pyarrow is not installed"):
        invoke("export", "--parquet", str(place))


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
