"""A disk that is full at the end: the verdict is told all the same, with its exit code."""

import errno
import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from wirespeed.cli import page, run
from wirespeed.cli.options import Output
from wirespeed.cli.page import show
from wirespeed.model.codec import from_json
from wirespeed.model.records import Run
from wirespeed.runs import folder
from wirespeed.runs.folder import PatientFolder

GOLDEN = Path(__file__).parents[1] / "golden"

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


@pytest.fixture(params=ERRORS, ids=lambda number: errno.errorcode[number])
def full(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once the header is written, nothing more can be."""
    write = folder._write_all

    def refuse(handle: int, data: bytes) -> None:
        if b'"unfinished": true' not in data and b'"kind": "run"' not in data:
            raise OSError(request.param, os.strerror(request.param))
        write(handle, data)

    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(folder, "_write_all", refuse)


@pytest.mark.usefixtures("full")
def test_a_log_is_told_with_its_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "n1:1:1 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"
    )
    code = run(["diagnose", str(log), "-q"])
    out, err = capsys.readouterr()
    assert code in (1, 3) and f"exit {code}" in out
    assert "could not be stored whole" in err and "WIRESPEED_HOME" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("check", "-l", "quick", "--only", "correctness", "--ranks", "1"), "exit 0"),
        (("locate", "--simulate", "--nodes", "8"), "exit"),
        (("diagnose", os.devnull), "exit 3"),
        (("launch", "--ranks", "1", "--", "true"), "exit code 0"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_the_verdict_is_told_before_it_is_stored(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file system may hang for as long as it likes."""
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    streams = io.StringIO()
    seen = []
    monkeypatch.setattr(PatientFolder, "finish", lambda *_: seen.append(streams.getvalue()))
    with redirect_stdout(streams), redirect_stderr(streams):
        run(words)
    assert [told in one for one in seen] == [True]


@pytest.mark.usefixtures("full")
def test_a_job_that_ran_well_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "--ranks", "1", "--", "true"]) == 0
    err = capsys.readouterr().err
    assert "could not be stored whole" in err and "exit code 0" in err


@pytest.mark.slow
@pytest.mark.usefixtures("full")
def test_a_job_that_failed_keeps_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "--ranks", "1", "--", "sh", "-c", "exit 7"]) == 7
    assert "could not be stored whole" in capsys.readouterr().err


def test_a_log_is_told_where_no_folder_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    log = tmp_path / "job.log"
    log.write_text("nothing known\n")
    assert run(["diagnose", str(log), "-q"]) == 3
    out, err = capsys.readouterr()
    assert "NOTHING KNOWN" in out
    assert "could not be stored whole" in err


def test_a_page_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(page, "_replace", refuse)
    told = json.loads((GOLDEN / "check.run.json").read_text())
    checked = from_json(Run, told)
    asked = Output("table", "never", False, False, html=str(tmp_path / "a.html"))
    assert show(checked, asked) == checked.exit_code == 1
    out, err = capsys.readouterr()
    assert checked.verdict in out
    assert "No space left" in err
