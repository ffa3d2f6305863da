"""`check --only storage` on real ranks: figures, what is left behind, and how it ends early."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

WORDS = ("check", "--only", "storage", "-l", "quick", "--ranks", "2")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.slow
def test_a_good_folder_beside_another_check_and_without_fio(
    cli: Any, data: Path, tmp_path: Path, finding: Any
) -> None:
    words = ("check", "-l", "quick", "--only", "COL-001,storage", "--ranks", "2", "-o", "json")
    more = ("--model", "tiny", "--samples-per-s", "0.001")
    done = cli(*words, "--data", str(data), *more, env={"PATH": str(tmp_path)})
    assert done.code == 0, done.err
    run = done.json
    assert run["verdict"] == "PASSED"
    assert {one["status"] for one in run["findings"] if one["id"] != "STOR-001"} == {"pass"}
    assert finding(run, "COL-001")["status"] == "pass"
    assert finding(run, "STOR-001")["status"] == "not_applicable", "there is one node"
    assert "tiny" in finding(run, "STOR-004")["title"]
    figures = {one["access"]: one for one in run["storage"]["figures"]}
    assert list(figures)[:3] == ["write", "read", "random read"]
    assert all(one["latency_us"]["samples"] >= 2 for one in figures.values())
    engines = {one["engine"] for one in figures.values()}
    assert engines == {"own", "torch.distributed.checkpoint"}
    assert run["storage"]["compared_bytes"] > 0
    assert list(data.iterdir()) == []


@pytest.mark.slow
def test_a_folder_that_is_not_there(cli: Any, data: Path, finding: Any) -> None:
    done = cli(*WORDS, "--data", str(data / "absent"), "-o", "json")
    assert done.code == 1, done.err
    assert f"has no {data}/absent" in finding(done.json, "STOR-002")["title"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_ended_in_the_middle_it_leaves_nothing(
    cli: Any, data: Path, number: signal.Signals, code: int
) -> None:
    running = cli.start(*WORDS, "--data", str(data))
    until = time.monotonic() + 60
    while not list(data.glob("*/rank-1.bin")):
        assert time.monotonic() < until, running.err()
        time.sleep(0.01)
    running.signal(number)
    assert running.wait().code == code
    if number == signal.SIGKILL:  # nobody is left to wait for the workers
        while list(data.iterdir()) and time.monotonic() < until:
            time.sleep(0.05)
    assert list(data.iterdir()) == []
