"""The node agent over local pipes, as ssh would run it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from processes import gone, until
from wirespeed import __version__
from wirespeed.launchers.node.torchrun import agent_words, order

BOUND_S = 30.0
_MARK = "WIRESPEED_TEST_AGENT"
Starts = Sequence[tuple[Sequence[str], dict[str, str]]]

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if len(sys.argv) > 1:
    os.setsid()
    if os.fork():
        os._exit(0)   # an orphan of a session of its own
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
subprocess.Popen([sys.executable, __file__, os.environ["PID_FILE"]])
time.sleep(600)
"""


class Agent:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, text: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            agent_words(sys.executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, _MARK: str(self._folder)},
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdin is not None
        process.stdin.write(text.encode())
        process.stdin.flush()
        return process

    def obey(self, starts: Starts, **options: Any) -> subprocess.Popen[bytes]:
        settings = {"grace_s": 0.3, "silence_s": 0.0, **options}
        return self.start(order(starts, settings.pop("environment", {}), **settings))

    def stubborn(self, **options: Any) -> tuple[subprocess.Popen[bytes], int]:
        """With a grandchild in a session of its own that ignores signals; its pid."""
        script, file = self._folder / "stubborn.py", self._folder / "pid"
        script.write_text(STUBBORN)
        words = [sys.executable, str(script)]
        process = self.obey([(words, {"PID_FILE": str(file)})], **options)
        until(lambda: file.exists() and file.read_text())
        return process, int(file.read_text())

    def close(self) -> None:
        for process in self._started:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            process.kill()
            process.wait(BOUND_S)
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        mark = f"{_MARK}={self._folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.close()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Wait for it with its stdin open; code and output. What is left alive may hold the pipes."""
    code = process.wait(BOUND_S)
    texts = []
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        texts.append((pipe.read() or b"").decode())
    return code, texts[0], texts[1]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_words_and_variables_arrive_unchanged(agent: Agent) -> None:
    nasty = ["a b", "'", "$(id)", "`id`", "two\nlines", "--", "", "ü", "\udcff"]
    code = (
        "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.environ['B']]))"
    )
    words = python(code, *nasty)
    process = agent.obey([(words, {"B": "own"})], environment={"A": "line\n'$HOME'", "B": "all"})
    ended_code, out, err = ended(process)
    assert (ended_code, err) == (0, "")
    assert json.loads(out) == [nasty, "line\n'$HOME'", "own"]


def test_this_pythons_folder_is_first_in_the_path(agent: Agent) -> None:
    words = python("import os; print(os.environ['PATH'])")
    _, out, _ = ended(agent.obey([(words, {})]))
    assert out.split(os.pathsep)[0] == str(Path(sys.executable).parent)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [(["0", "0"], 0), (["0", "7"], 7), (["-9", "0"], 137), (["255", "0"], 254)],
)
def test_exit_code(agent: Agent, codes: list[str], expected: int) -> None:
    """255 is ssh's own word for a lost connection."""
    text = (
        "import os, sys; n = int(sys.argv[1]); os.kill(os.getpid(), -n) if n < 0 else os._exit(n)"
    )
    code, _, _ = ended(agent.obey([(python(text, one), {}) for one in codes]))
    assert code == expected


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stdin", "SIGTERM", "SIGHUP", "SIGINT", "silence"])
def test_everything_ends_however_it_is_told(agent: Agent, how: str) -> None:
    process, grandchild = agent.stubborn(silence_s=2.0 if how == "silence" else 0.0)
    if how == "stdin":
        assert process.stdin is not None
        process.stdin.close()
    elif how != "silence":
        process.send_signal(signal.Signals[how])
    expected = 128 + (signal.Signals[how] if how.startswith("SIG") else signal.SIGHUP)
    code, _, err = ended(process)
    assert code == expected
    assert ("no sign of life" in err) == (how == "silence")
    assert gone(grandchild)


@pytest.mark.slow
def test_signs_of_life_are_heard(agent: Agent) -> None:
    words = python("import time; time.sleep(3)")
    process = agent.obey([(words, {})], silence_s=1.5)
    assert process.stdin is not None
    while process.poll() is None:
        with suppress(BrokenPipeError):
            process.stdin.write(b"\n")
            process.stdin.flush()
        time.sleep(0.2)
    assert process.returncode == 0


@pytest.mark.slow
def test_what_a_command_leaves_behind_is_ended(agent: Agent, tmp_path: Path) -> None:
    script, file = tmp_path / "stubborn.py", tmp_path / "pid"
    script.write_text(STUBBORN)
    process = agent.obey([([sys.executable, str(script), str(file)], {})])
    assert ended(process)[0] == 0
    assert gone(int(file.read_text()))


def test_when_the_agent_is_killed_its_children_are_asked_to_end(agent: Agent) -> None:
    words = python("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    process = agent.obey([(words, {})])
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    until(lambda: gone(pid))


def test_a_frozen_command_is_ended(agent: Agent) -> None:
    words = python("import os; print(os.getpid(), flush=True); os.kill(os.getpid(), 19)")
    process = agent.obey([(words, {})])
    assert process.stdout is not None and process.stdin is not None
    pid = int(process.stdout.readline())
    process.stdin.close()
    process.wait(BOUND_S)
    assert gone(pid)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json\n", "no JSON"),
        ("[]\n", "another wirespeed"),
        ('{"version": "9.9"}\n', f"another wirespeed than {__version__}"),
        (order([(["/no/such/program"], {})], {}, grace_s=1, silence_s=0), "/no/such/program"),
        (order([(["true"], {"A": "\0"})], {}, grace_s=1, silence_s=0), "null byte"),
    ],
)
def test_what_cannot_be_obeyed_is_told(agent: Agent, text: str, words: str) -> None:
    code, out, err = ended(agent.start(text))
    assert (code, out) == (3, "")
    assert words in err
    assert "Traceback" not in err


def test_a_program_that_is_missing_leaves_none_of_the_others(agent: Agent) -> None:
    sleeper = python("import time; time.sleep(600)")
    code, _, err = ended(agent.obey([(sleeper, {}), (["/no/such/program"], {})]))
    assert code == 3
    assert "/no/such/program" in err


def test_a_connection_that_closes_before_the_order(agent: Agent) -> None:
    process = agent.start('{"half')
    assert process.stdin is not None
    process.stdin.close()
    code, _, err = ended(process)
    assert code == 3
    assert "before the order came" in err


@pytest.mark.slow
def test_what_lies_in_the_folder_is_no_module(agent: Agent, tmp_path: Path) -> None:
    """The agent starts in the home folder, where anything may lie."""
    (tmp_path / "json.py").write_text("raise SystemExit('taken for the real one')")
    done = subprocess.run(
        agent_words(sys.executable),
        input=order([(["true"], {})], {}, grace_s=1, silence_s=0),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert "taken" not in done.stderr
