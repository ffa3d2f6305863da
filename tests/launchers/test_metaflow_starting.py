"""Which processes a task has started that are other nodes."""

import subprocess
import sys
import time

import pytest

from wirespeed.launchers.metaflow import other_tasks

WAIT = "import time; time.sleep(60)"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> str:
    """The flow's program as the command line names it."""
    monkeypatch.setattr(sys, "argv", ["/flows/ranks.py", "step", "ranks"])
    return sys.argv[0]


def child(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WAIT, *words])


def test_a_task_is_told_from_other_children(told: str) -> None:
    task, other = child(told, "step", "ranks"), child("some", "sidecar")
    try:
        assert other_tasks() == [task.pid]
    finally:
        for one in (task, other):
            one.kill()
            one.wait(10)


def test_a_task_that_was_killed_before_anybody_looked_is_one(told: str) -> None:
    """Its command line is gone, and nobody has waited for it: a node is lost."""
    task = child(told, "step", "ranks")
    task.kill()
    end = time.monotonic() + 10
    try:
        while other_tasks() != [task.pid]:
            assert time.monotonic() < end
    finally:
        task.wait(10)
    assert other_tasks() == []
