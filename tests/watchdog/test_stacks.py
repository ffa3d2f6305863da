import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from processes import until
from wirespeed.watchdog.stacks import main_thread_stack, process_state, stack_of_stopped

SLEEPER = """
import faulthandler, signal, sys, threading, time
def deep_inside():
    print("up", flush=True)
    time.sleep(60)
file = open(sys.argv[1], "w")
if sys.argv[2] == "register":
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
deep_inside()
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Callable[[str], tuple[int, Path]]]:
    """Starts a process that sleeps `deep_inside`; returns its pid and its stack file."""
    processes = []

    def start(mode: str) -> tuple[int, Path]:
        path = tmp_path / "stack.txt"
        words = [sys.executable, "-c", SLEEPER, str(path), mode]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        return process.pid, path

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: process_state(pid) == "T")


def test_a_stopped_process_gives_its_main_threads_stack(sleeper):
    pid, path = sleeper("register")
    stop(pid)
    stack = stack_of_stopped(pid, path, 5.0)
    assert stack is not None and "deep_inside" in stack
    assert stack.count("most recent call first") == 1
    assert process_state(pid) == "S"


def test_a_second_dump_does_not_return_the_first(sleeper):
    pid, path = sleeper("register")
    first, second = (stack_of_stopped(pid, path, 5.0) for _ in range(2))
    assert first is not None and second is not None
    assert second.count("deep_inside") == 1


def test_a_process_without_handler_is_left_alone(sleeper):
    pid, path = sleeper("plain")
    stop(pid)
    assert stack_of_stopped(pid, path, 5.0) is None
    assert process_state(pid) == "T"


def test_a_process_that_is_gone(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert process_state(process.pid) == ""
    assert stack_of_stopped(process.pid, tmp_path / "none", 0.1) is None


def test_our_own_main_thread():
    assert "test_our_own_main_thread" in main_thread_stack()
