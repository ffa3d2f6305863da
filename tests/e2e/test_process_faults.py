"""A rank that dies or stops, a session that is told to end: the run ends in time and says so.

What a fault that was asked for (--inject) looks like is in test_diagnose_agrees.py.
"""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIZES = ("bench", "all_reduce", "-b", "1K", "-f", "2", "-w", "1", "--timeout", "3")
# One second a size and fifteen sizes: time enough to strike after the first.
SLOW = (*SIZES, "-e", "16M", "--precision", "0.1", "--time-per-size", "1")
SHORT = (*SIZES, "-e", "64K", "-n", "3")
AFTER_S = 20.0
"""From the blow to the end: 3 s of time-out, 6 s for stacks, 8 s for the ranks to end, and slack."""

Find = Callable[[dict[str, Any], str], dict[str, Any]]
HOST = socket.gethostname()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_rank_killed_from_outside_is_named(cli: Any, finding: Find) -> None:
    running = cli.start(*SLOW, "--ranks", "2", "-q")
    ranks = cli.measuring(2)
    os.kill(ranks[1], signal.SIGKILL)
    done = running.wait(AFTER_S)
    run = cli.run()
    assert done.code == run["exit_code"] == 1, done.err
    found = finding(run, "DIED-001")
    assert found["status"] == "fail"
    assert found["subject"] == {"kind": "rank", "name": "rank 1"}
    assert f"rank 1 on {HOST}" in found["title"]
    assert "SIGKILL" in found["saw"]
    assert run["measurements"], "what was measured before is lost"
    assert "FAILED" in done.out
    assert "rank 1" in done.out
    cli.nothing_runs()


@pytest.mark.slow
def test_the_loss_of_the_process_that_ranks_are_forked_from_is_named(
    cli: Any, finding: Find
) -> None:
    running = cli.start(*SLOW, "--ranks", "2", "-q")
    ranks = cli.measuring(2)
    (parent,) = {parent_of(pid) for pid in ranks.values()}
    assert parent != running.process.pid
    os.kill(parent, signal.SIGKILL)
    done = running.wait(AFTER_S)
    run = cli.run()
    assert done.code == run["exit_code"] == 1, done.err
    found = run["findings"][0]
    assert found == finding(run, "LAUNCH-007")
    assert "SIGKILL" in found["title"]
    assert f"process {parent}" in found["saw"]
    assert run["measurements"]
    cli.nothing_runs()


@pytest.mark.slow
def test_each_rank_prints_into_its_own_log(cli: Any) -> None:
    assert cli(*SHORT, "--ranks", "2", "--inject", "raise:rank=1", "-q").code == 1
    (folder,) = cli.folders()
    raised, other = ((folder / "logs" / f"rank-{rank}.log").read_text() for rank in (1, 0))
    assert "Traceback" in raised and "raises on purpose" in raised
    assert "raises on purpose" not in other


@pytest.mark.slow
def test_a_stopped_rank_is_named_with_its_stack(cli: Any, finding: Find) -> None:
    running = cli.start(*SLOW, "--ranks", "3", "-q")
    ranks = cli.measuring(3)
    os.kill(ranks[1], signal.SIGSTOP)
    done = running.wait(AFTER_S)
    run = cli.run()
    assert done.code == 1
    found = finding(run, "HANG-001")
    assert found["subject"] == {"kind": "rank", "name": "rank 1"}
    assert f"rank 1 on {HOST}" in found["title"]
    assert "stopped" in found["saw"] + found["because"]
    assert any("run_steps" in line for line in found["evidence"]), found["evidence"]
    assert run["measurements"]
    # It must not outlive the run only because it was stopped.
    cli.nothing_runs()


@pytest.mark.slow
def test_an_abnormal_end_after_the_results_is_a_warning(cli: Any, finding: Find) -> None:
    done = cli(*SHORT, "--ranks", "2", "--inject", "abort:rank=1", "-q")
    run = cli.run()
    assert done.code == 0, done.out
    found = finding(run, "EXIT-001")
    assert found["status"] == "warn"
    assert found["subject"]["name"] == "rank 1"
    assert "SIGABRT" in found["saw"] + found["title"]
    assert len(run["measurements"]) == 7


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_in_order(cli: Any, finding: Find, number: signal.Signals) -> None:
    running = cli.start(*SLOW, "--ranks", "2", "-q")
    cli.measuring(2)
    running.signal(number)
    done = running.wait(AFTER_S)
    assert done.code == 130
    assert "Traceback" not in done.err
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("INTERRUPTED", 130)
    assert run["measurements"]
    assert finding(run, "INT-001")["status"] == "not_checked"
    assert run["id"] in done.out
    cli.nothing_runs()
    assert list((cli.folder / "tmp").glob("wirespeed-*")) == []


@pytest.mark.slow
def test_ranks_end_when_the_parent_is_killed_and_the_next_run_tidies_up(cli: Any) -> None:
    running = cli.start(*SLOW, "--ranks", "2", "-q")
    os.kill(cli.measuring(2)[1], signal.SIGSTOP)  # it could not end by itself
    running.signal(signal.SIGKILL)
    assert running.wait(5).code == -signal.SIGKILL
    cli.nothing_runs(AFTER_S)
    # What was measured can still be shown.
    shown = cli("runs", "show", "last", "-o", "json")
    assert shown.code == 0, shown.err
    assert shown.json["measurements"]
    assert shown.json["verdict"] == "UNKNOWN"
    assert list((cli.folder / "tmp").glob("wirespeed-*"))
    assert cli("launch", "--ranks", "1", "-q", "--", "true").code == 0
    assert not list((cli.folder / "tmp").glob("wirespeed-*"))


@pytest.mark.slow
def test_a_stopped_parent_goes_on_where_it_was(cli: Any) -> None:
    """Ctrl-Z and fg: neither the ranks nor the watchdog take that for somebody's silence."""
    running = cli.start(*SHORT, "--ranks", "2", "-q", "--timeout", "2", "-n", "200")
    cli.measuring(2)
    running.signal(signal.SIGSTOP)
    time.sleep(3.0)
    running.signal(signal.SIGCONT)
    assert running.wait().code == 0
