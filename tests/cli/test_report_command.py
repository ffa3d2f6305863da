"""`wirespeed report`: formats, files, refusals."""

import json
import os
import stat
from pathlib import Path

import pytest

from wirespeed.cli import run

GOLDEN = Path(__file__).parents[1] / "golden"
CHECK, TRAIN = (str(GOLDEN / f"{name}.run.json") for name in ("check", "train"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WIRESPEED_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("ending", "begins"),
    [
        ("html", "<!doctype html>"),
        ("md", "## NOT READY"),
        ("xml", "<?xml"),
        ("prom", "# HELP wirespeed_"),
        ("csv", "run,"),
    ],
)
def test_the_ending_tells_the_format(
    ending: str, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"out.{ending}"
    assert run(["report", CHECK, "--to", str(file)]) == 0
    assert file.read_text().startswith(begins)
    assert f"wrote {file}" in capsys.readouterr().err
    assert stat.S_IMODE(file.stat().st_mode) & 0o444, "the collector runs as somebody else"
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "nothing is left beside it"


@pytest.mark.parametrize("format", ["html", "md", "junit", "prometheus", "csv"])
def test_without_a_file_it_goes_to_stdout(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", CHECK, TRAIN, "-o", format, "-q"]) == 0
    told = capsys.readouterr()
    assert told.out.endswith("\n") and told.err == ""
    for id in ("91ae33fe", "51e5e97b"):
        assert id in told.out


def test_the_same_run_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", CHECK, CHECK, "-o", "junit"]) == 0
    assert capsys.readouterr().out.count("<testsuite ") == 1


def test_no_formula_gets_into_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(Path(CHECK).read_text())
    data["measurements"] = []
    data["findings"][0]["title"] = '=HYPERLINK("http://evil")'
    data["findings"][1]["subject"] = {"kind": "node", "name": "@SUM(1)"}
    file = tmp_path / "evil.json"
    file.write_text(json.dumps(data))
    assert run(["report", str(file), TRAIN, "-o", "csv"]) == 0
    out = capsys.readouterr().out
    assert "'=HYPERLINK" in out and "'@SUM" in out
    assert ",=" not in out and ',"=' not in out and ",@" not in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([CHECK, "--to", "out.pdf"], 2, "its ending does not tell the format"),
        ([CHECK, "--to", "nowhere/out.html"], 2, "there is no folder nowhere"),
        (["gone"], 2, "no run"),
        ([], 2, "Missing argument"),
        ([CHECK, "--serve"], 2, "wirespeed serve"),
    ],
)
def test_refusals(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *words]) == code
    told = capsys.readouterr()
    assert said in told.err and told.out == ""


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "out.prom"
    file.write_text("old")
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    assert run(["report", str(damaged), "--to", str(file)]) == 2
    assert file.read_text() == "old"
