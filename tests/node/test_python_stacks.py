"""Stacks of other processes: what is read, and what is said where nothing can be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.node import python_stacks as processes
from wirespeed.node.python_stacks import missing_permission, python_stacks

WAITS = "def inner():\n    input()\n\ndef outer():\n    inner()\n\nouter()\n"
HOLDS = (
    "import ctypes\npause = ctypes.PyDLL(None).pause\ndef holding():\n    pause()\n\nholding()\n"
)


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """`started(words)`: a process that waits for its standard input; its pid."""
    every: list[subprocess.Popen] = []

    def start(*words: str) -> int:
        every.append(subprocess.Popen(words, stdin=subprocess.PIPE))
        return every[-1].pid

    yield start
    for one in every:
        one.kill()
        one.communicate()


def stacks(pid: int, wanted: str, **options: bool) -> tuple[processes.Thread, ...]:
    """Once that function is on the stack: the interpreter takes a moment to come so far."""
    end = time.monotonic() + 20
    while True:
        try:
            found = python_stacks(pid, **options)
        except CannotMeasure:
            found = ()
        if any(frame.function == wanted for one in found for frame in one.frames):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.01)


def test_frames_are_the_innermost_first(started) -> None:
    (main,) = stacks(started(sys.executable, "-c", WAITS), "inner")
    assert [frame.title for frame in main.frames] == [
        "inner (<string>:2)",
        "outer (<string>:5)",
        "<module> (<string>:7)",
    ]


def test_a_stopped_process_is_read_and_stays_stopped(started) -> None:
    pid = started(sys.executable, "-c", WAITS)
    stacks(pid, "inner")
    os.kill(pid, signal.SIGSTOP)
    (main,) = python_stacks(pid)
    assert main.frames[0].function == "inner"
    assert processes.read_fields(processes.Path(f"/proc/{pid}/status"))["State"].startswith("T")


def test_who_holds_the_interpreter_in_c_is_told(started) -> None:
    """While it imports it may wait for a file, without the lock: see where it stands first."""
    (main,) = stacks(started(sys.executable, "-c", HOLDS), "holding")
    assert main.holds_gil


@pytest.mark.slow
def test_native_frames_stand_between(started) -> None:
    (main,) = stacks(started(sys.executable, "-c", HOLDS), "pause", native=True)
    assert "holding" in [frame.function for frame in main.frames]


def test_what_is_no_python_is_said(started) -> None:
    with pytest.raises(CannotMeasure, match="is no Python that py-spy knows"):
        python_stacks(started("cat"))


def test_a_process_that_is_gone_is_said(started) -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    with pytest.raises(CannotMeasure, match=f"process {done.pid} is gone"):
        python_stacks(done.pid)


def test_without_py_spy_the_way_to_get_it_is_said(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotMeasure) as error:
        python_stacks(os.getpid())
    assert "pip install 'wirespeed[watch]'" in error.value.next


def test_another_users_process_names_both_users(monkeypatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    error = missing_permission(1)
    assert "belongs to root (0)" in error.saw and "sudo" in error.next


@pytest.mark.parametrize(
    "scope, may, told",
    [(1, False, "ptrace_scope is 1"), (0, False, "lacks CAP_SYS_PTRACE"), (1, True, "namespace")],
)
def test_the_missing_permission_is_named(monkeypatch, scope, may, told) -> None:
    monkeypatch.setattr(processes, "read_number", lambda path: scope)
    monkeypatch.setattr(processes, "_may_trace", lambda: may)
    error = missing_permission(os.getpid())
    assert told in error.saw and error.next
