"""What `train` writes beside its result: the trace, its picture, and the page, from a stored run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wirespeed.cli.page import write_page, write_trace
from wirespeed.cli.runs import runs
from wirespeed.cli.train import train
from wirespeed.errors import StorageError, UsageError
from wirespeed.model.codec import from_json
from wirespeed.model.records import Run
from wirespeed.runs.store import save
from wirespeed.training.trace import Span, chrome_trace

GOLDEN = Path(__file__).parents[1] / "golden" / "train.run.json"
STEP = chrome_trace([Span(0, "step", "naive on 1 ranks", 0.0, 0.01)], hosts=["a"])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    return from_json(Run, json.loads(GOLDEN.read_text()))


def stored(run: Run, trace: str | None) -> Path:
    """The run's folder, with that trace in it."""
    folder = save(run)
    if trace is not None:
        (folder / "trace.json").write_text(trace)
    return folder


def test_a_picture_stands_beside_the_trace(run: Run, tmp_path: Path, capsys: Any) -> None:
    stored(run, STEP)
    write_trace(run, str(tmp_path / "step.json"))
    assert (tmp_path / "step.json").read_text() == STEP
    assert "naive on 1 ranks" in (tmp_path / "step.svg").read_text()
    said = capsys.readouterr().err
    assert f"wrote {tmp_path / 'step.json'}" in said and f"wrote {tmp_path / 'step.svg'}" in said


def test_the_picture_never_replaces_the_trace(run: Run, tmp_path: Path) -> None:
    stored(run, STEP)
    write_trace(run, str(tmp_path / "step.svg"))
    assert (tmp_path / "step.svg").read_text() == STEP
    assert (tmp_path / "step.svg.svg").read_text().startswith("<svg")


def test_a_trace_into_no_file_has_no_picture(run: Run, tmp_path: Path) -> None:
    stored(run, STEP)
    write_trace(run, "/dev/null")
    assert not Path("/dev/null.svg").exists()


@pytest.mark.parametrize(
    "trace", [None, '{"traceEvents":[]}', '{"traceEvents":[', "[]", "[" * 10**5]
)
def test_without_a_timeline_nothing_is_written_and_it_says_so(
    run: Run, tmp_path: Path, capsys: Any, trace: str | None
) -> None:
    stored(run, trace)
    write_trace(run, str(tmp_path / "step.json"))
    assert {path.name for path in tmp_path.iterdir()} == {"home"}
    assert "no timeline was recorded, so" in capsys.readouterr().err


def test_a_run_of_scaling_says_why_it_has_none(run: Run, tmp_path: Path, capsys: Any) -> None:
    scaled = tuple(one for one in run.training if one.study != "compare")
    made = replace(run, training=scaled)
    stored(made, '{"traceEvents":[]}')
    write_trace(made, str(tmp_path / "step.json"))
    assert "--scaling" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    stored(run, STEP)
    (tmp_path / "step.svg").mkdir()
    with pytest.raises(StorageError, match=r"step\.svg"):
        write_trace(run, str(tmp_path / "step.json"))
    assert (tmp_path / "step.json").read_text() == STEP, "the trace is not lost"


def test_the_page_has_the_timeline_of_the_stored_run(run: Run, tmp_path: Path) -> None:
    folder = stored(run, STEP)
    write_page(run, str(tmp_path / "with.html"), folder)
    write_page(run, str(tmp_path / "without.html"))
    assert "naive on 1 ranks" in (tmp_path / "with.html").read_text()
    assert "naive on 1 ranks" not in (tmp_path / "without.html").read_text()


@pytest.mark.slow
def test_runs_show_has_it_too_but_not_of_another_folder(run: Run, tmp_path: Path) -> None:
    folder = stored(run, STEP)
    elsewhere = tmp_path / "export.json"
    elsewhere.write_bytes((folder / "run.json").read_bytes())
    (tmp_path / "trace.json").write_text(STEP)
    expected = {run.id: True, str(folder): True, str(folder / "run.json"): True}
    for reference, has in {**expected, str(elsewhere): False}.items():
        file = tmp_path / "page.html"
        done = CliRunner().invoke(runs, ["show", reference, "--html", str(file)])
        assert done.exit_code == 0, done.output
        assert ("naive on 1 ranks" in file.read_text()) is has, reference


@pytest.mark.parametrize("option", ["--trace", "--html"])
def test_files_that_could_not_be_written_are_refused_before_the_start(
    run: Run, tmp_path: Path, option: str
) -> None:
    done = CliRunner().invoke(train, ["--ranks", "2", option, str(tmp_path / "no" / "file")])
    assert isinstance(done.exception, UsageError)
    assert option in str(done.exception) and "there is no folder" in str(done.exception)
    assert list(tmp_path.iterdir()) == [], "nothing may have started"


def test_a_damaged_timeline_does_not_cost_the_page(run: Run, tmp_path: Path, capsys: Any) -> None:
    folder = stored(run, STEP[:100])
    write_page(run, str(tmp_path / "page.html"), folder)
    assert "Which strategy is fastest" in (tmp_path / "page.html").read_text()
    assert "cannot be read" in capsys.readouterr().err
