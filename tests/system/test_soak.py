"""Soaks as a user runs them: real ranks, a fault each, and what is told of it."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHORT = ("check", "-l", "soak", "--ranks", "2", "--only", "COL-001", "-q", "-o", "json")


def test_a_rare_flip_is_named_and_a_killed_rank_does_not_end_it(cli: Any) -> None:
    """One bit in one of a hundred calls; then a rank dies, and the next world goes on."""
    running = cli.start(
        *SHORT, "--for", "25s", "--inject", "flip:rank=1,after=100,every=100", env=cli.no_pickles()
    )
    wait_for_records(cli, "soak_wrong")
    os.kill(cli.ranks()[1], signal.SIGKILL)
    done = running.wait()
    assert (done.code, done.json["verdict"]) == (1, "FAILED"), done.err
    findings = {one["id"]: one for one in done.json["findings"]}
    assert findings["SOAK-001"]["status"] == "fail"
    assert findings["SOAK-001"]["subject"]["name"] == "rank 1"
    assert "--seed" in findings["SOAK-001"]["next"]
    assert findings["SOAK-004"]["status"] == "fail"
    soak = done.json["soak"]
    assert soak["worlds"] >= 2
    assert soak["wrong_calls"] < soak["calls"] / 50
    ids = {one["id"] for one in soak["incidents"]}
    assert {"SOAK-001", "DIED-001"} <= ids
    assert all(one["at"] and one["subject"] for one in soak["incidents"])


def test_a_killed_session_is_gone_on_with(cli: Any) -> None:
    running = cli.start(*SHORT, "--for", "14s")
    wait_for_records(cli, "soak_window")
    running.process.kill()
    running.wait()
    (folder,) = cli.folders()
    done = cli("check", "--resume", folder.name.rpartition("-")[2], "-q", "-o", "json")
    assert (done.code, done.json["verdict"]) == (0, "PASSED"), done.err
    soak = done.json["soak"]
    assert soak["resumed"] == 1
    assert soak["elapsed_s"] >= 13
    assert done.json["id"] in folder.name
    assert cli.folders() == [folder]


def test_an_interrupted_soak_says_how_to_go_on(cli: Any) -> None:
    running = cli.start(*SHORT, "--for", "60s")
    wait_for_records(cli, "soak_window")
    running.process.send_signal(signal.SIGINT)
    done = running.wait()
    assert (done.code, done.json["verdict"]) == (130, "INTERRUPTED"), done.err
    assert done.json["soak"]["calls"] > 0
    nexts = [one["next"] for one in done.json["findings"] if one["id"] == "INT-001"]
    assert nexts == [f"wirespeed check --resume {done.json['id']}"]


@pytest.fixture
def tiny(small_disk: Callable[[str], Path]) -> Path:
    return small_disk("1m")


def test_a_full_disk_is_an_incident(cli: Any, tiny: Path) -> None:
    """Full for a while, then not: no window is lost, and the run is stored."""
    env = {"WIRESPEED_HOME": str(tiny)}
    told = [word for word in SHORT if word != "-q"]
    running = cli.start(*told, "--for", "16s", env=env)
    wait_for_records(cli, "soak_window", tiny)
    ballast = tiny / "ballast"
    fill(ballast)
    cli.until(lambda: "records cannot be written" in running.err())
    time.sleep(2)
    ballast.unlink()
    done = running.wait()
    assert done.code == 0, done.err
    # A short record may still find room in the last page, and end one of them.
    full = [one for one in done.json["soak"]["incidents"] if one["id"] == "SOAK-006"]
    assert sum(one["lost_s"] for one in full) > 1
    assert cli("runs", "show", "last", "-o", "json", env=env).json["soak"] == done.json["soak"]


def test_a_disk_that_stays_full_does_not_take_the_report(cli: Any, tiny: Path) -> None:
    env = {"WIRESPEED_HOME": str(tiny)}
    running = cli.start(*SHORT, "--for", "8s", env=env)
    wait_for_records(cli, "soak_window", tiny)
    fill(tiny / "ballast")
    done = running.wait()
    assert done.code == 0, done.err
    assert done.json["soak"]["calls"] > 0
    assert "could not be stored" in done.err


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def wait_for_records(cli: Any, kind: str, home: Path | None = None) -> None:
    def told() -> bool:
        runs = (home or cli.home) / "runs"
        files = list(runs.glob("*/records.jsonl"))
        return any(f'"{kind}"' in file.read_text() for file in files)

    cli.until(told)
