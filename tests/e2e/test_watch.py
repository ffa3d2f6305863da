"""`launch --watch` and `python -m wirespeed.watch` as a user starts them, with real ranks that train."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).parents[2] / "benchmarks" / "watched_job.py"
LAUNCH = ("launch", "--watch", "-x", "OMP_NUM_THREADS=1", "--ranks")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
BOUND_S = 150


def job(*words: str) -> list[str]:
    return [sys.executable, str(JOB), "--pause", "3", *words]


def failing(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f["id"], f["subject"]["name"]) for f in run["findings"] if f["status"] == "fail"]


def test_who_sleeps_in_every_step_is_named_with_the_step(cli: Any) -> None:
    words = ("--fault", "sleep", "--rank", "1", "--from", "25", "--ms", "150", "--steps", "50")
    done = cli(*LAUNCH, "2", "--", *job(*words))
    assert done.code == 0
    run = cli.run()
    assert ("WATCH-001", "rank 1") in failing(run) and (run["verdict"], run["verdict_subject"]) == (
        "SLOW",
        "rank 1",
    )
    assert all(name in ("rank 1", "job") for _, name in failing(run))
    (change,) = [one for one in run["watched"]["changes"] if one["subject"] == "rank 1"]
    assert 15 <= change["step"] <= 35
    assert "rank 1 on" in done.err and "WATCH-001" in done.err
    assert run["watched"]["steps"] == 50 and run["watched"]["boundary"] == "optimizer"
    assert {one["op"] for one in run["watched"]["traffic"]} == {"all_reduce"}
    trace = json.loads((cli.folders()[0] / "trace.json").read_text())
    assert {e["name"] for e in trace["traceEvents"]} >= {"forward", "backward", "optimizer"}
    calls = [
        json.loads(line) for line in (cli.folders()[0] / "calls.jsonl").read_text().splitlines()
    ]
    assert calls and {one["op"] for one in calls} == {"all_reduce"}


def test_a_command_that_never_trains_is_unknown_and_ends_as_it_ends(cli: Any) -> None:
    done = cli(*LAUNCH, "2", "--", "sh", "-c", "echo $RANK")
    assert done.code == 0
    run = cli.run()
    assert run["verdict"] == "NOT ENOUGH SEEN" and "WATCH-014" in done.err
    assert cli(*LAUNCH, "2", "--", "sh", "-c", "exit 7").code == 7


def test_why_the_job_ended_comes_before_what_the_watch_says(cli: Any) -> None:
    cli(*LAUNCH, "2", "--", sys.executable, "-c", "import no_such_module")
    assert [one["id"] for one in cli.run()["findings"]] == ["DIED-001", "PY-020", "WATCH-014"]


@pytest.mark.parametrize("how", [("--dry-run",), ("-o", "sh"), ("-o", "yaml")])
def test_what_is_written_down_is_not_watched(
    cli: Any, says_clearly: Any, how: tuple[str, ...]
) -> None:
    done = cli.here("launch", "--watch", "--ranks", "2", *how, "--", "python", "train.py")
    assert "wirespeed.watch" in says_clearly(done, 2)


def test_a_page_needs_a_terminal(cli: Any, says_clearly: Any) -> None:
    done = cli.here("launch", "--tui", "--ranks", "2", "--", "python", "train.py")
    assert "terminal" in says_clearly(done, 2)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp", "zero1", "loop"])
def test_strategies(cli: Any, strategy: str) -> None:
    words = ("--strategy", strategy, "--fault", "sleep", "--rank", "0", "--ms", "200")
    done = cli(*LAUNCH, "2", "--", *job(*words, "--from", "45", "--steps", "75"))
    assert done.code == 0
    assert "rank 0" in [name for _, name in failing(cli.run())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "id"), [("data", "WATCH-003"), ("gc", "WATCH-004"), ("checkpoint", "WATCH-005")]
)
def test_what_holds_a_rank_up_is_told(cli: Any, fault: str, id: str) -> None:
    words = ("--fault", fault, "--rank", "1", "--ms", "150", "--from", "30", "--steps", "60")
    cli(*LAUNCH, "2", "--", *job(*words))
    assert (id, "rank 1") in failing(cli.run())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "ranks", "strategy"),
    [
        ("stop", "2", "ddp"),
        ("interpreter", "2", "ddp"),
        ("loader", "2", "ddp"),
        ("other", "4", "tpdp"),  # whose ranks wait for each other in groups of two
        ("early", "3", "ddp"),  # two against one
    ],
)
def test_a_hang_is_named_while_it_lasts(cli: Any, fault: str, ranks: str, strategy: str) -> None:
    words = ("--fault", fault, "--rank", "1", "--from", "30", "--steps", "60")
    running = cli.start(*LAUNCH, ranks, "--", *job("--strategy", strategy, *words))
    named = re.compile(r"rank 1 .*(?:WATCH-008|WATCH-009)$", re.MULTILINE)
    until = time.monotonic() + BOUND_S
    while not named.search(running.err()) and time.monotonic() < until:
        time.sleep(0.2)
    running.process.send_signal(signal.SIGINT)
    done = running.wait()
    assert named.search(done.err), done.err
    assert done.code == 130
    accused = {name for id, name in failing(cli.run()) if id in ("WATCH-008", "WATCH-009")}
    assert accused == {"rank 1"}


@pytest.mark.slow
def test_torchrun_within_a_launch_and_a_module(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "training.py").write_text(JOB.read_text())
    words = ("-m", "mine.training", "--steps", "40")
    python = [*TORCHRUN, "2", *words]
    done = cli(*LAUNCH, "1", "--", *python, env={"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.err
    run = cli.run()
    assert (run["watched"]["ranks"], run["watched"]["world_size"]) == (2, 2)
    assert run["watched"]["steps"] == 40


def elsewhere(tmp_path: Path, *words: str, ranks: int = 3) -> "subprocess.Popen[bytes]":
    env = {**os.environ, "WIRESPEED_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [*TORCHRUN, str(ranks), "-m", "wirespeed.watch", str(JOB), "--pause", "3", *words]
    # To a file: a watcher that is stopped would hold a pipe open.
    with (tmp_path / "said").open("w") as said:
        return subprocess.Popen(command, env=env, stdout=said, stderr=said)


def stored(tmp_path: Path) -> dict[str, Any]:
    """The run, once the process beside rank 0 has written it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for path in (tmp_path / "home").rglob("run.json"):
            run: dict[str, Any] = json.loads(path.read_text())
            if not run.get("unfinished"):
                return run
        time.sleep(0.2)
    raise AssertionError("no run was stored")


@pytest.mark.slow
def test_ranks_of_another_launcher(tmp_path: Path) -> None:
    words = ("--fault", "sleep", "--rank", "2", "--from", "30", "--ms", "150", "--steps", "60")
    with elsewhere(tmp_path, *words) as process:
        process.wait(timeout=BOUND_S)
    assert process.returncode == 0, (tmp_path / "said").read_text()
    run = stored(tmp_path)
    assert (run["command"], run["watched"]["ranks"]) == ("watch", 3)
    assert ("WATCH-001", "rank 2") in failing(run)


def losses(path: Path) -> list[str]:
    told: list[str] = json.loads(path.read_text())["losses"]
    return told


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of the same job without a watch."""
    told = tmp_path_factory.mktemp("plain") / "told"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [*TORCHRUN, "2", *job("--steps", "120", "--told", str(told))[1:]]
    subprocess.run(words, env=env, check=True, capture_output=True, timeout=BOUND_S)
    return losses(told)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, "disk full"])
def test_the_job_does_not_notice_that_its_watcher_is_gone(
    tmp_path: Path, plain_losses: list[str], how: Any
) -> None:
    words = ("--steps", "120", "--told", str(tmp_path / "watched"))
    with elsewhere(tmp_path, *words, ranks=2) as process:
        watchers = _beside(process.pid, 2)
        try:
            for pid in watchers:
                if how == "disk full":  # every write to a file fails, as without room
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, 1))
                else:
                    os.kill(pid, how)
            process.wait(timeout=BOUND_S)
        finally:
            for pid in watchers:
                _end(pid)
    assert process.returncode == 0, (tmp_path / "said").read_text()
    assert losses(tmp_path / "watched") == plain_losses


def _beside(parent: int, count: int) -> list[int]:
    """The processes beside the ranks that descend from that process."""
    import psutil

    until = time.monotonic() + 60
    while time.monotonic() < until:
        children = psutil.Process(parent).children(recursive=True)
        found = [one.pid for one in children if "wirespeed.session.beside" in one.cmdline()]
        if len(found) == count:
            return found
        time.sleep(0.1)
    raise AssertionError("no process beside the ranks")


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
