"""Which processes are ranks: of a launcher, named ones, and helpers that are none."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from wirespeed.errors import UsageError
from wirespeed.watch.attach.ranks import find_ranks

SLEEPER = "import time; time.sleep(60)"
LAUNCHER = """
import os, subprocess, sys
def started(rank):
    told = {{"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2}}
    told |= {{"TORCHELASTIC_RUN_ID": "one"}} if {elastic} else {{}}
    env = {{**os.environ, **{{name: str(value) for name, value in told.items()}}}}
    return subprocess.Popen([{shell}sys.executable, "-c", {program!r}], env=env)
children = [started(rank) for rank in {ranks}]
for child in children: child.wait()
"""
HELPED = "import os, time; os.fork(); time.sleep(60)"


@pytest.fixture
def launcher() -> Iterator[Callable[..., subprocess.Popen]]:
    """`launcher([2, 3])`: a process with these ranks below it."""
    every: list[subprocess.Popen] = []

    def start(
        ranks: list[int], program: str = SLEEPER, shell: str = "", elastic: bool = True
    ) -> subprocess.Popen:
        code = LAUNCHER.format(program=program, ranks=ranks, shell=shell, elastic=elastic)
        words = [sys.executable, "-c", code]
        env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        every.append(subprocess.Popen(words, env=env, start_new_session=True))
        return every[-1]

    yield start
    for one in every:
        os.killpg(one.pid, 9)
        one.wait()


def ranks_of(pids: list[int], count: int):
    """Once so many are there."""
    end = time.monotonic() + 20
    while True:
        found = find_ranks(pids)
        if len(found.ranks) >= count and all(one.launcher for one in found.ranks):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.02)


def test_below_a_launcher(launcher) -> None:
    found = ranks_of([launcher([2, 3]).pid], 2)
    assert [one.rank for one in found.ranks] == [2, 3]
    assert {one.world_size for one in found.ranks} == {4}
    assert (found.ended, found.beside) == ((), ())


def test_a_rank_that_has_ended(launcher) -> None:
    assert ranks_of([launcher([3]).pid], 1).ended == (2,)


def test_ranks_of_a_launcher_that_may_scatter_them_are_not_missed(launcher) -> None:
    assert ranks_of([launcher([3], elastic=False).pid], 1).ended == ()


def test_helpers_of_a_rank_are_none(launcher) -> None:
    found = ranks_of([launcher([2, 3], HELPED).pid], 2)
    assert [one.rank for one in found.ranks] == [2, 3]


def test_a_shell_around_a_rank_is_none(launcher) -> None:
    wrap = '"sh", "-c", "\\"$@\\"; true", "sh", '
    pid, end = launcher([2, 3], shell=wrap).pid, time.monotonic() + 20
    while not all(one.command.startswith(sys.executable) for one in ranks_of([pid], 2).ranks):
        assert time.monotonic() < end
    assert [one.rank for one in find_ranks([pid]).ranks] == [2, 3]


def test_one_of_them_knows_of_the_other(launcher) -> None:
    found = ranks_of([launcher([2, 3]).pid], 2)
    alone = find_ranks([found.ranks[0].pid])
    assert [one.rank for one in alone.ranks] == [2]
    assert alone.beside == (3,) and alone.ranks[0].parent == found.ranks[0].parent


def test_ranks_of_two_jobs_are_refused(launcher) -> None:
    first, second = launcher([2, 3]), launcher([2, 3])
    ranks_of([first.pid], 2), ranks_of([second.pid], 2)
    with pytest.raises(UsageError, match="rank 2 is there twice"):
        find_ranks([first.pid, second.pid])


def test_a_process_that_is_no_rank_is_rank_0_of_its_own(launcher) -> None:
    (one,) = find_ranks([os.getpid()]).ranks
    assert (one.rank, one.world_size, one.launcher) == (0, 1, "")


def test_no_such_process() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    with pytest.raises(UsageError, match=f"there is no process {done.pid}"):
        find_ranks([done.pid])
