"""`wirespeed attach`: what it says of processes that are no job, and of one that needs no torch."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WAITS = "def all_reduce():\n    input()\n"
PROGRAM = """import sys, time
from torch.distributed.distributed_c10d import all_reduce

def load():
    time.sleep(60)

load() if sys.argv[1] == "2" else all_reduce()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[int]]:
    """Three ranks whose stacks look like torch's: two wait in all_reduce, rank 2 sleeps."""
    folder = tmp_path / "torch" / "distributed"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "distributed_c10d.py").write_text(WAITS)
    (tmp_path / "job.py").write_text(PROGRAM)
    every = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "job.py"), str(rank)],
            stdin=subprocess.PIPE,
            env={"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)},
        )
        for rank in range(3)
    ]
    yield [one.pid for one in every]
    for one in every:
        one.kill()
        one.communicate()


def settled(pids: list[int]) -> list[int]:
    """Once they all sleep where they are meant to."""
    end = time.monotonic() + 20
    while any(" S " not in Path(f"/proc/{pid}/stat").read_text() for pid in pids):
        assert time.monotonic() < end
    time.sleep(0.1)
    return pids


def words(pids: list[int], *more: str) -> list[str]:
    return ["attach", *map(str, pids), "--seconds", "0.5", "-q", *more]


@pytest.mark.slow
def test_the_rank_that_sleeps_is_named(cli: Any, job: list[int], finding: Any) -> None:
    done = cli.here(*words(settled(job), "-o", "json"))
    one = finding(done.json, "WATCH-008")
    assert (done.code, done.json["exit_code"]) == (1, 1)
    assert (done.json["verdict"], done.json["verdict_subject"]) == ("HUNG", "rank 2")
    assert one["subject"] == {"kind": "rank", "name": "rank 2"}
    assert one["title"].startswith(
        "rank 2 does not move: load (job.py:5); ranks 0-1 wait in all_red"
    )
    assert one["evidence"][0] == "rank 2: load (job.py:5) < <module> (job.py:7)"
    shown = cli.here("runs", "show", done.json["id"])
    assert "HUNG" in shown.out and "rank 2 does not move" in shown.out


@pytest.mark.slow
def test_the_job_of_a_node_is_found_by_an_engine(
    cli: Any, job: list[int], finding: Any, tmp_path: Path
) -> None:
    settled(job)
    words = ["attach", "--on", "local", "--seconds", "0.5", "-o", "json", "-q"]
    done = cli(*words, "--match", str(tmp_path / "job.py"))
    assert (done.code, done.json["verdict"]) == (1, "HUNG"), done.err
    assert finding(done.json, "WATCH-008")["subject"]["name"] == "rank 2"


@pytest.mark.slow
def test_without_py_spy_it_says_so_and_still_looks(
    cli: Any, job: list[int], finding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.node.python_stacks._BESIDE", "not-there")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    done = cli.here(*words(settled(job), "-o", "json"))
    assert (done.code, done.json["verdict"]) == (3, "CANNOT TELL")
    assert "pip install 'wirespeed[watch]'" in finding(done.json, "WATCH-016")["because"] + str(
        done.json
    )


AS_NOBODY = """import os, sys
from wirespeed.watch.attach.ranks import find_ranks
os.setgroups([])
os.setuid(65534)
try:
    find_ranks([int(sys.argv[1])])
except Exception as error:
    sys.exit(f"{error.exit_code} {error}")
"""


@pytest.mark.system
def test_another_users_process_names_the_permission() -> None:
    mine = subprocess.Popen(["sleep", "60"])
    try:
        words = [sys.executable, "-c", AS_NOBODY, str(mine.pid)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    finally:
        mine.kill()
        mine.wait()
    assert done.stderr.startswith(f"3 process {mine.pid} belongs to root (0)")
    assert "sudo wirespeed" in done.stderr


@pytest.mark.parametrize(
    "given, code, told",
    [
        ((), 2, "no process is named"),
        (("nonsense",), 2, "nonsense"),
        (("7", "--on", "ssh"), 2, "pids with --on"),
        (("--on", "mpi"), 2, "--on mpi is not known to attach"),
        (("7", "--hosts", "a"), 2, "--hosts says nothing without --on"),
        (("0",), 2, "0"),
        (("4194304999",), 2, "there is no process 4194304999"),
        (("1", "--seconds", "0"), 2, "seconds"),
    ],
)
def test_wrong_usage(cli: Any, given: tuple[str, ...], code: int, told: str) -> None:
    done = cli.here("attach", *given)
    assert done.code == code and told in done.err and "Traceback" not in done.err


def test_what_is_no_python_is_told(cli: Any) -> None:
    one = subprocess.Popen(["sleep", "60"])
    try:
        done = cli.here(*words([one.pid]))
    finally:
        one.kill()
        one.wait()
    assert (
        done.code == 3
        and f"process {one.pid} is no Python that py-spy knows"
        in done.out.replace("\n         ", " ")
    )
