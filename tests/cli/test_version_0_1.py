"""What the first version stored and read still works: runs, a cluster file, a wirespeed.yaml."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from wirespeed.cli import run as wirespeed

STORED = Path(__file__).with_name("version_0_1")
"""Written by wirespeed at 2f8ffcf: a check, two of bench, one of train; `cluster new` wrote the file."""

RUNS = {"c98c3d29": "check", "9f8b711c": "bench", "0f85d0ce": "bench", "99c18b8d": "train"}


@pytest.fixture
def does(tmp_path, monkeypatch, capsys) -> Callable[..., str]:  # type: ignore[no-untyped-def]
    home = tmp_path / "home"
    shutil.copytree(STORED / "runs", home / "runs")
    monkeypatch.setenv("WIRESPEED_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    def call(*words: str, code: int = 0) -> str:
        assert wirespeed(words) == code, capsys.readouterr().err
        return str(capsys.readouterr().out)

    return call


def holds(now: object, then: object) -> bool:
    """Whether all of then is there; a record may have got fields since."""
    if isinstance(now, dict) and isinstance(then, dict):
        return all(key in now and holds(now[key], then[key]) for key in then)
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(holds, now, then))
    return now == (pytest.approx(then, rel=1e-12) if isinstance(then, float) else then)


def test_all_are_listed(does: Callable[..., str]) -> None:
    shown = does("runs", "list")
    assert all(id in shown for id in RUNS)
    assert "damaged" not in shown


@pytest.mark.parametrize("id", RUNS)
def test_a_run_is_shown_as_it_was_written(does: Callable[..., str], id: str) -> None:
    (file,) = (STORED / "runs").glob(f"*-{id}/run.json")
    then, now = json.loads(file.read_text()), json.loads(does("runs", "show", id, "-o", "json"))
    assert now["verdict"] == then["verdict"] == "READY"
    for part in ("id", "command", "world", "measurements", "findings", "training"):
        assert holds(now.get(part), then.get(part)), part


@pytest.mark.parametrize("id", RUNS)
@pytest.mark.parametrize("format", ["html", "md", "junit", "prometheus", "csv"])
def test_a_report_of_it(does: Callable[..., str], tmp_path: Path, id: str, format: str) -> None:
    page = tmp_path / "page"
    does("report", id, "-o", format, "--to", str(page))
    assert id in page.read_text() or format == "csv"
    assert "READY" in does("runs", "show", id)


def test_two_runs_are_compared(does: Callable[..., str]) -> None:
    told = json.loads(does("compare", "9f8b711c", "0f85d0ce", "-o", "json", code=3))
    (versus,) = told["versus"]
    assert {row["verdict"] for row in versus["rows"]} == {"not enough runs"}, "one run a side"
    assert len(versus["rows"]) == 4


def test_its_cluster_file(does: Callable[..., str]) -> None:
    file = str(STORED / "mine.yaml")
    does("cluster", "validate", file)
    kinds = {one["kind"] for one in yaml.safe_load_all(does("cluster", "render", file)) if one}
    assert {"StatefulSet", "Service", "NetworkPolicy", "ServiceAccount"} <= kinds


def test_its_options_of_a_file(does: Callable[..., str]) -> None:
    Path("wirespeed.yaml").write_text(
        "check: {level: quick, ranks: 2, startup-timeout: 7}\nbench: {min-bytes: 1K}\n"
    )
    rows = does("check", "--print-config").splitlines()
    given = {row.split()[0]: row.split()[1] for row in rows if row.endswith("wirespeed.yaml")}
    assert given == {"level": "quick", "ranks": "2", "startup_timeout": "7.0"}
