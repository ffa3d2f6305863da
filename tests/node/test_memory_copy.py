"""How fast a core copies: told within its time, or why it is not."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from wirespeed.model.codec import to_json
from wirespeed.node import limits
from wirespeed.node.limits import BUDGET_S, note_copy_rate
from wirespeed.node.reading import Notes


def ticking(step: float) -> Callable[[], float]:
    """A clock on which each look takes `step` seconds."""
    ticks = count()
    return lambda: next(ticks) * step


def noted(clock: Callable[[], float], root: Path = Path("/")) -> Notes:
    notes = Notes(root)
    note_copy_rate(notes, clock=clock)
    return notes


def test_a_rate_is_told() -> None:
    notes = noted(ticking(0.0))
    assert 0.01 < notes.facts.memory_copy_GBps < 10_000
    assert notes.unknown == {}


def test_no_time_is_a_reason() -> None:
    notes = noted(ticking(BUDGET_S))
    assert to_json(notes.facts) == {}
    assert "too busy" in notes.unknown["memory.copy_GBps"]


def test_a_slow_machine_maps_less_and_looks_no_longer() -> None:
    looks: list[float] = []
    clock = ticking(BUDGET_S / 20)

    def counted() -> float:
        looks.append(clock())
        return looks[-1]

    assert noted(counted).facts.memory_copy_GBps is not None
    beyond = [at for at in looks if at > looks[0] + BUDGET_S]
    assert len(beyond) <= 1, "the look that ends it"


def test_little_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_available_bytes", lambda: 900 << 20)
    notes = noted(ticking(0.0))
    assert to_json(notes.facts) == {}
    assert "less than 1 GiB" in notes.unknown["memory.copy_GBps"]


def test_a_refused_mapping_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refuse)
    assert "Cannot allocate" in noted(ticking(0.0)).unknown["memory.copy_GBps"]


def test_facts_of_another_machine_are_not_measured_here(tmp_path: Path) -> None:
    notes = noted(ticking(0.0), tmp_path)
    assert to_json(notes.facts) == {}
    assert "not read from this machine" in notes.unknown["memory.copy_GBps"]
