"""Words of older versions still read, and their runs count as they did; new words empty no history."""

import random
from typing import Any

import pytest

import usual
from wirespeed.model.records import Run
from wirespeed.model.verdicts import MEANINGS, Verdict, standing_of
from wirespeed.reference.known import LEAST_RUNS, FleetReference
from wirespeed.runs.index import Index, RunFilter
from wirespeed.runs.store import find, load, past_runs, save

KEEP: list[tuple[str, Verdict, int]] = [
    ("check", "READY", 0),
    ("bench", "READY", 0),
    ("bench", "MEASURED", 0),
    ("check", "PASSED", 0),
]
"""(command, word, exit code) of runs whose figures are a history; the second is an old one."""
REFUSE: list[tuple[str, Verdict, int]] = [
    ("check", "NOT READY", 1),
    ("bench", "FAILED", 1),
    ("check", "INTERRUPTED", 130),
    ("check", "UNKNOWN", 130),
    ("check", "UNKNOWN", 3),
    ("import", "NONE", 0),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))


def stored(command: str, word: Verdict, code: int, number: int = 0, **more: Any) -> Run:
    run = usual.run(
        id=f"{number:08x}",
        command=command,
        verdict=word,
        exit_code=code,
        started=f"2026-11-03T10:{number:02}:00.000Z",
        world=usual.world(usual.node("node-a", 0, 1)),
        measurements=(usual.measurement(1e-3 * random.Random(number).uniform(0.99, 1.01)),),
        **more,
    )
    save(run)
    return run


@pytest.mark.parametrize(("command", "word", "code"), KEEP)
def test_such_runs_are_a_history(command: str, word: Verdict, code: int) -> None:
    runs = [stored(command, word, code, number) for number in range(LEAST_RUNS)]
    fleet = FleetReference(past_runs)
    found = fleet.expect(runs[0].world, runs[0].measurements[0])
    assert found is not None and found.samples == LEAST_RUNS


@pytest.mark.parametrize(("command", "word", "code"), REFUSE)
def test_such_runs_are_none(command: str, word: Verdict, code: int) -> None:
    runs = [stored(command, word, code, number) for number in range(LEAST_RUNS)]
    assert FleetReference(past_runs).expect(runs[0].world, runs[0].measurements[0]) is None


@pytest.mark.parametrize("word", MEANINGS)
def test_every_word_is_stored_listed_and_found(word: Verdict) -> None:
    stored("check", word, 0)
    assert load(find("00000000")).verdict == word
    asked = {"good": "pass", "measured": "measured", "bad": "fail", "undecided": "unknown"}
    with Index.opened() as index:
        assert [row.verdict for row in index.runs(RunFilter())] == [word]
        for standing, filter in asked.items():
            found = index.runs(RunFilter(verdict=filter))
            assert bool(found) == (standing_of(word) == standing)
        assert index.runs(RunFilter(verdict=word.lower()))
