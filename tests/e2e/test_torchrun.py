"""As ranks of torchrun: one report for the world, and every end within its bound."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
QUICK = ("check", "-l", "quick", "-q", "--timeout", "3")
SIZES = ("bench", "all_reduce", "-b", "1K", "-e", "16M", "-f", "2", "-w", "1", "-q")
# One second a size and fifteen sizes: time enough to strike after the first.
SLOW = (*SIZES, "--precision", "0.1", "--time-per-size", "1", "--timeout", "3")
AFTER_S = 30.0

Find = Callable[[dict[str, Any], str], dict[str, Any]]


def start(cli: Any, *words: str, ranks: int = 2) -> Any:
    return cli.start_words([*TORCHRUN, str(ranks), "-m", "wirespeed", *words])


def reports(text: str) -> int:
    """How many reports that is: each begins with this line."""
    return sum(line.startswith("wirespeed ") for line in text.splitlines())


@pytest.mark.slow
def test_a_healthy_world_gives_one_report(cli: Any, finding: Find) -> None:
    done = start(cli, *QUICK).wait()
    assert done.code == 0, done.out + done.err
    assert reports(done.out) == 1
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("READY", 0)
    assert run["world"]["size"] == 2
    assert run["world"]["launcher"] == "torchrun"
    assert run["world"]["nodes"][0]["ranks"] == [0, 1]
    assert finding(run, "WORLD-001")["status"] == "pass"


@pytest.mark.slow
def test_wrong_data_gives_exit_1_and_one_report(cli: Any, finding: Find) -> None:
    done = start(cli, *QUICK, "--only", "COL-001", "--inject", "flip:rank=1", "-o", "json").wait()
    assert done.code == 1
    assert done.json["verdict"] == "FAILED"
    found = finding(done.json, "COL-001")
    assert "rank 1" in f"{found['title']} {found['saw']}"
    assert cli.run()["id"] == done.json["id"]


@pytest.mark.slow
def test_a_killed_rank_is_named_by_the_session(cli: Any, finding: Find) -> None:
    running = start(cli, *SLOW)
    os.kill(cli.measuring(2)[1], signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 1
    assert reports(done.out) == 1
    run = cli.run()
    assert run["exit_code"] == 1
    assert finding(run, "DIED-001")["subject"] == {"kind": "rank", "name": "rank 1"}
    assert run["measurements"]
    assert "Traceback" not in done.out


@pytest.mark.slow
def test_the_death_of_the_session_is_told_by_one_other_rank(cli: Any) -> None:
    running = start(cli, *SLOW, ranks=3)
    os.kill(cli.measuring(3)[0], signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code == 1
    assert reports(done.out) == 0
    told = [line for line in done.err.splitlines() if line.startswith("wirespeed: ")]
    assert len(told) == 1, done.err
    assert "rank 0" in told[0]
    assert "session" in told[0]
    cli.nothing_runs()
    # What was measured before is in the run folder of rank 0's machine.
    shown = cli.here("runs", "show", "last", "-o", "json")
    assert shown.code == 0, shown.err
    assert shown.json["measurements"]


@pytest.mark.slow
def test_a_stopped_rank_is_named_by_the_session(cli: Any, finding: Find) -> None:
    running = start(cli, *SLOW)
    stopped = cli.measuring(2)[1]
    os.kill(stopped, signal.SIGSTOP)
    cli.until(lambda: reports(running.out()), AFTER_S)
    cli.until(lambda: cli.run()["exit_code"] == 1)  # it is told before it is stored
    run = cli.run()
    found = finding(run, "HANG-001")
    assert found["subject"] == {"kind": "rank", "name": "rank 1"}
    assert run["measurements"]
    # torchrun would give it 30 s before SIGKILL; when it goes on, it ends by itself.
    os.kill(stopped, signal.SIGCONT)
    assert running.wait(AFTER_S).code == 1
    assert reports(running.out()) == 1


@pytest.mark.slow
def test_a_stopped_session_is_told_by_another_rank(cli: Any) -> None:
    running = start(cli, *SLOW)
    stopped = cli.measuring(2)[0]
    os.kill(stopped, signal.SIGSTOP)
    cli.until(lambda: "rank 0" in running.err(), 3 + AFTER_S)
    assert "does not answer" in running.err()
    os.kill(stopped, signal.SIGCONT)
    assert running.wait(AFTER_S).code == 1


@pytest.mark.slow
def test_ctrl_c_is_no_verdict(cli: Any) -> None:
    running = start(cli, *SLOW)
    cli.measuring(2)
    # A terminal sends it to the whole foreground group: torchrun and all ranks.
    os.killpg(running.process.pid, signal.SIGINT)
    done = running.wait(AFTER_S)
    assert done.code != 0
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("INTERRUPTED", 130)
    assert run["measurements"]
    assert reports(done.out) == 1


@pytest.mark.slow
def test_wrong_usage_is_said_once(cli: Any) -> None:
    done = start(cli, "bench", "all_reduce", "-b", "1Q").wait()
    assert done.code != 0
    assert done.err.count("wirespeed: '1Q' is not a size") == 1, done.err
    assert cli.folders() == []
