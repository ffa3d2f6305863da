"""As ranks of Open MPI's mpirun: one report, and its exit code is the run's."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
BENCH = ("bench", "all_reduce", "-b", "1K", "-e", "4K", "-w", "1", "-n", "3", "-q")
# One second a size and fifteen sizes: time enough to strike after the first.
SLOW = (*BENCH[:2], "-b", "1K", "-e", "16M", "-f", "2", "-w", "1", "-q", "--timeout", "3")
SLOW = (*SLOW, "--precision", "0.1", "--time-per-size", "1")
AFTER_S = 30.0

Find = Callable[[dict[str, Any], str], dict[str, Any]]


@pytest.fixture
def mpirun(cli: Any) -> Callable[..., Any]:
    """`mpirun(2, "bench", …)`: that many ranks of `python -m wirespeed`, started."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("mpirun", path=path)
    if program is None:
        pytest.skip("Requires: mpirun (pip install 'wirespeed[mpi]')")

    def start(ranks: int, *words: str, env: dict[str, str] | None = None) -> Any:
        launch = [program, "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
        command = [*launch, sys.executable, "-m", "wirespeed", *words]
        return cli.start_words(command, env={**ROOT, **(env or {})})

    return start


def reports(text: str) -> int:
    return sum(line.startswith("wirespeed ") for line in text.splitlines())


def test_one_world_one_report(cli: Any, mpirun: Any, finding: Find) -> None:
    done = mpirun(2, *BENCH).wait()
    assert done.code == 0, done.out + done.err
    assert reports(done.out) == 1
    run = cli.run()
    assert run["world"]["launcher"] == "openmpi"
    assert run["world"]["size"] == 2
    assert [m["size_bytes"] for m in run["measurements"]] == [1024, 4096]
    assert finding(run, "WORLD-001")["status"] == "pass"


def test_each_rank_carries_its_rank(cli: Any, mpirun: Any) -> None:
    """As under torchrun: RANK, WORLD_SIZE and LOCAL_RANK can be read in /proc/PID/environ."""
    running = mpirun(2, *SLOW)
    ranks = cli.measuring(2)
    environments = cli.processes()
    for rank, pid in ranks.items():
        assert environments[pid]["WORLD_SIZE"] == "2"
        assert environments[pid]["LOCAL_RANK"] == str(rank)
    running.signal(signal.SIGTERM)
    assert running.wait(AFTER_S).code != 0
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("INTERRUPTED", 130)


def test_wrong_data_is_the_exit_code_of_mpirun(cli: Any, mpirun: Any, finding: Find) -> None:
    done = mpirun(2, *BENCH, "--inject", "flip:rank=1").wait()
    assert done.code == 1, done.out + done.err
    assert reports(done.out) == 1
    assert "rank 1" in finding(cli.run(), "COL-001")["saw"]


@pytest.mark.quiet
def test_a_killed_rank_is_named(cli: Any, mpirun: Any, finding: Find) -> None:
    """Open MPI 5 kills the other ranks half a second after the first death, rank 0 with them.

    The run is judged and stored by then, where rank 0 is let run; its report may not get through mpirun.
    """
    running = mpirun(3, *SLOW)
    os.kill(cli.measuring(3)[2], signal.SIGKILL)
    done = running.wait(AFTER_S)
    assert done.code != 0
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("FAILED", 1)
    assert finding(run, "DIED-001")["subject"] == {"kind": "rank", "name": "rank 2"}
    assert run["measurements"]
    assert reports(done.out) <= 1


def test_a_lost_mapping_is_refused(cli: Any, mpirun: Any) -> None:
    """Each process believes to be alone: nothing is measured, and it is said why."""
    hide = ["env", *(word for name in HIDDEN for word in ("-u", name))]
    words = [*mpirun(1, "--version").wait().out.split()]
    assert words, "mpirun runs"
    command = [shutil.which("mpirun", path=cli.environment()["PATH"]), "-n", "2"]
    command += ["--oversubscribe", "--bind-to", "none", *hide, sys.executable, "-m", "wirespeed"]
    done = cli.start_words([*command, *BENCH], env=ROOT).wait()
    assert done.code == 3, done.out + done.err
    assert "would not be one world" in done.err
    assert done.out == ""
    assert cli.folders() == []


HIDDEN = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE"),
)
