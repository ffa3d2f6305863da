"""Which processes a task has started that are other nodes."""

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from wirespeed.launchers.metaflow import other_tasks

WAIT = "import time; time.sleep(60)"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> str:
    """The flow's program as the command line names it."""
    monkeypatch.setattr(sys, "argv", ["/flows/ranks.py", "step", "ranks"])
    return sys.argv[0]


@pytest.fixture
def others(told: str) -> Callable[[], list[int]]:
    """What is seen now and was not at first: other tests of this process leave children, too."""
    first = {*other_tasks()}
    return lambda: [pid for pid in other_tasks() if pid not in first]


def child(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WAIT, *words])


def test_a_task_is_told_from_other_children(told: str, others: Callable[[], list[int]]) -> None:
    task, other = child(told, "step", "ranks"), child("some", "sidecar")
    try:
        assert others() == [task.pid]
    finally:
        for one in (task, other):
            one.kill()
            one.wait(10)


def test_a_task_that_was_killed_before_anybody_looked_is_one(
    told: str, others: Callable[[], list[int]]
) -> None:
    """Its command line is gone, and nobody has waited for it: a node is lost."""
    task = child(told, "step", "ranks")
    task.kill()
    end = time.monotonic() + 10
    try:
        while others() != [task.pid]:
            assert time.monotonic() < end
    finally:
        task.wait(10)
    assert others() == []
