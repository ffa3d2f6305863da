"""The guard: what asks it to end, what it ends, and what the kernel ends for it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from processes import marked, until
from wirespeed.process import guard

BOUND_S = 30.0
MARK = "WIRESPEED_TEST_PROCESS"
PROGRAM = """
import json, subprocess, sys
from wirespeed.process import guard
told = json.loads(sys.argv[1])
stop = guard.StopRequest(**told["stop"])
guard.adopt_orphans()
child = subprocess.Popen(
    ["sh", "-c", told["command"]], stdin=subprocess.DEVNULL, start_new_session=True,
    preexec_fn=guard.death_signal(),
)
print("up", flush=True)
send = lambda number: guard.signal_group(child.pid, number)
code = guard.see_to_end(child.poll, send, stop, told["grace"])
guard.end_descendants(0.2)
print(json.dumps([stop.reason, stop.code, code]), flush=True)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    for pid in marked(MARK, str(tmp_path)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(mark: str) -> Iterator[Start]:
    started = []

    def start(command: str, *, grace: float = 20.0, **stop: object) -> "subprocess.Popen[str]":
        told = json.dumps({"command": command, "grace": grace, "stop": stop})
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, told],
            env={**os.environ, MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(BOUND_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def end_of(process: "subprocess.Popen[str]") -> list[object]:
    assert process.stdout is not None
    told: list[object] = json.loads(process.stdout.readline())
    return told


def hang_up(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_the_code_of_the_child_is_told_as_a_shell_does(start: Start) -> None:
    assert end_of(start("exit 7")) == ["", 129, 7]
    assert end_of(start("kill -9 $$")) == ["", 129, 137]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_asks(start: Start, number: signal.Signals) -> None:
    process = start("sleep 600")
    process.send_signal(number)
    assert end_of(process) == ["signal", 128 + number, 143]


@pytest.mark.parametrize("stdin", ["always", "pipe", "held"])
def test_the_end_of_stdin_asks(start: Start, stdin: str) -> None:
    process = start("sleep 600", stdin=stdin)
    if stdin == "held":
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(0.3)
    hang_up(process)
    assert end_of(process) == ["stdin", 129, 143]


def test_stdin_that_said_nothing_is_not_minded_where_it_must_be_held(start: Start) -> None:
    process = start("sleep 1; exit 3", stdin="held")
    hang_up(process)
    assert end_of(process) == ["", 129, 3]


def test_silence_asks(start: Start) -> None:
    assert end_of(start("sleep 600", stdin="always", silence_s=0.5)) == ["silence", 129, 143]


def test_who_ignores_the_request_is_killed(start: Start, mark: str) -> None:
    process = start("trap '' TERM; while :; do sleep 1; done", grace=0.3)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert end_of(process) == ["signal", 143, 137]
    until(lambda: not set(marked(MARK, mark)) - {process.pid})


@pytest.mark.slow
def test_what_has_left_its_session_is_ended_too(start: Start, mark: str) -> None:
    process = start("setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' & sleep 1")
    assert end_of(process) == ["", 129, 0]
    until(lambda: not set(marked(MARK, mark)) - {process.pid})


def test_when_the_guard_is_killed_the_kernel_ends_its_child(start: Start, mark: str) -> None:
    process = start("exec sleep 600")
    until(lambda: len(marked(MARK, mark)) == 2)
    process.kill()
    process.wait(BOUND_S)
    until(lambda: not marked(MARK, mark))


def test_groups_that_are_left_are_ended_and_no_others_that_got_their_pids(mark: str) -> None:
    """The leader of the first ends and leaves a child; the second is as if its pid was given anew."""
    environ = {**os.environ, MARK: mark}
    words = ("sleep 60 > /dev/null & exit", "exec sleep 60")
    left, other = (
        subprocess.Popen(["sh", "-c", one], env=environ, start_new_session=True) for one in words
    )
    left.wait(BOUND_S)
    guard.end_groups([left.pid, other.pid], 5.0)
    until(lambda: marked(MARK, mark) == [other.pid])
    assert other.poll() is None
    other.kill()
    other.wait()


def test_the_death_of_the_parent_asks(mark: str, tmp_path: Path) -> None:
    told = json.dumps({"command": "sleep 600", "grace": 20.0, "stop": {"parent": True}})
    out = tmp_path / "out"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-P', '-c', {PROGRAM!r}, {told!r}], "
        f"stdout=open({str(out)!r}, 'w'))\ntime.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-P", "-c", code], env={**os.environ, MARK: mark})
    try:
        until(lambda: out.exists() and out.read_text().startswith("up"))
    finally:
        parent.kill()
        parent.wait(BOUND_S)
    until(lambda: '["parent", 129, 143]' in out.read_text())
    until(lambda: not marked(MARK, mark))


def test_it_needs_the_standard_library_only() -> None:
    code = (
        "import sys\nfrom wirespeed.process import frames, guard\n"
        "known = {*sys.stdlib_module_names, 'wirespeed'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - known - {'__main__'}))"
    )
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({_root()!r})\n{code}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND_S, check=True)
    assert done.stdout == "[]\n"


def _root() -> str:
    import wirespeed

    return str(Path(wirespeed.__file__).parents[1])
