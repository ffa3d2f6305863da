"""An answer in time, whatever the worker does."""

import gc
import sys
import time
from pathlib import Path

import pytest

from wirespeed.fleet.gate import guarded
from wirespeed.fleet.gate.decision import Rules
from wirespeed.fleet.gate.guarded import answered

PROLOG = Rules(purpose="slurm-prolog")
ANSWER = '{"node": "n1", "act": "pass", "health": "good", "refuses": false}'
SAY = "import sys, time; say = lambda line: print(line, flush=True)\n"


def worker(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(guarded, "_WORKER", (sys.executable, "-I", "-S", "-c", SAY + text))


def test_what_hangs_is_named_and_the_rule_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, """say('{"doing": "reading the node"}'); time.sleep(60)""")
    began = time.monotonic()
    told = answered("n1", PROLOG, 1.0)
    assert time.monotonic() - began < 3
    assert (told.act, told.health, told.refuses) == ("pass", "unknown", False)
    assert "reading the node: no end within its time" in told.why
    assert told.problems
    failing = answered("n1", Rules(purpose="slurm-prolog", unknown="fail"), 1.0)
    assert (failing.act, failing.refuses) == ("hold", False), "nobody was counted"


def test_the_second_worker_goes_on_with_what_the_first_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker(
        monkeypatch,
        f"""
asked = sys.stdin.read()
if '"missing":[]' in asked:
    say('{{"doing": "reading its home", "seen": {{"host": "n1"}}}}'); time.sleep(60)
assert '"seen":{{"host":"n1"}}' in asked and 'reading its home: no end' in asked, asked
assert '"recalled":false' in asked, asked
say('{{"answer": {ANSWER}, "done": true}}')
""",
    )
    told = answered("n1", PROLOG, 0.8)
    assert (told.act, told.health, told.problems) == ("pass", "good", ())


def test_an_answer_stands_though_storing_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(
        monkeypatch,
        f"""say('{{"answer": {ANSWER}}}'); say('{{"doing": "storing it"}}'); time.sleep(60)""",
    )
    told = answered("n1", PROLOG, 0.4)
    assert told.act == "pass"
    assert told.problems == ("storing it: no end within its time",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ValueError('of ours')", "ended with exit code 1: ValueError: of ours"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("say('rubbish'); say('[1]'); say('{\"answer\": 7}')", "ended with exit code 0"),
        ("import os; os.close(1); os.close(2); time.sleep(60)", "fell silent"),
    ],
)
def test_a_worker_that_fails_is_no_verdict(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(monkeypatch, text)
    told = answered("n1", PROLOG, 0.6)
    assert (told.act, told.health) == ("pass", "unknown")
    assert why in told.why


@pytest.mark.slow
def test_what_the_worker_started_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    text = "import subprocess; p = subprocess.Popen(['sleep', '60'])\n"
    worker(monkeypatch, f"{text}open({str(file)!r}, 'w').write(str(p.pid)); time.sleep(60)")
    answered("n1", PROLOG, 1.0)
    pid = int(file.read_text())
    end = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in _status(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "State:\tZ"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it is left behind, as nobody can end it
def test_a_program_that_does_not_even_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one on a disk that stands still: the fork waits before it becomes the worker."""
    worker(monkeypatch, "pass")
    monkeypatch.setattr(guarded, "death_signal", lambda: lambda: time.sleep(1.5))
    began = time.monotonic()
    told = answered("n1", PROLOG, 0.6)
    assert time.monotonic() - began < 1.5
    assert "starting the gate's worker: no end within its time" in told.why
    del told
    gc.collect()
    time.sleep(1.5)


def test_no_descriptor_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, f"""say('{{"answer": {ANSWER}, "done": true}}')""")
    answered("n1", PROLOG, 5.0)
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        answered("n1", PROLOG, 5.0)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
