"""When a rank reads its node's counters, and what it tells of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.node.counters import Snapshot
from wirespeed.plan import Plan
from wirespeed.rank import node_watch as module
from wirespeed.rank.node_watch import counting


class Heartbeat:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def enter(self, label: str) -> None:
        self.said.append(label)

    def record(self, kind: str, data: dict[str, Any]) -> None:
        self.said.append((kind, data["rank"], data["grown"]))


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose only counter grows by one at each reading."""
    readings = iter(range(100))

    def take(bound_s: float) -> Snapshot:
        at = next(readings)
        return Snapshot(at, {"TCP": {"RetransSegs": at}}, {})

    monkeypatch.setattr(module, "take", take)


def place(rank: int, waits: list[str]) -> Any:
    return SimpleNamespace(
        rank=rank,
        hosts=("a", "a", "b"),
        busy=lambda bound: None,
        control=SimpleNamespace(barrier=lambda: waits.append("barrier")),
    )


BEFORE, AFTER = "reading counters before", "reading counters after"


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_first_rank_of_each_node_tells_what_grew(rank: int) -> None:
    heartbeat, waits = Heartbeat(), []
    with counting(place(rank, waits), Plan(command="check", steps=()), heartbeat) as found:
        assert found is not None
        found.look(at_once=False)  # not before its minute is over
    told = [("counters", rank, {"TCP": {"RetransSegs": 1}})] if rank != 1 else []
    assert heartbeat.said == [BEFORE, AFTER, *told], "every rank enters the same operations"
    assert waits == ["barrier"] * 2, "nobody sends before all have read"


def test_a_soak_tells_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    heartbeat = Heartbeat()
    with counting(place(0, []), Plan(command="check", steps=()), heartbeat) as found:
        assert found is not None
        found.look(at_once=False)
    assert [one[2] for one in heartbeat.said if isinstance(one, tuple)] == [
        {"TCP": {"RetransSegs": 1}}
    ] * 2


def test_a_rank_that_raises_tells_what_it_saw_and_waits_for_nobody() -> None:
    heartbeat, waits = Heartbeat(), []
    with pytest.raises(RuntimeError, match="NCCL"):  # noqa: SIM117
        with counting(place(0, waits), Plan(command="check", steps=()), heartbeat):
            raise RuntimeError("NCCL: remote process exited")
    assert heartbeat.said == [BEFORE, ("counters", 0, {"TCP": {"RetransSegs": 1}})]
    assert waits == ["barrier"]


def test_benchmarks_are_not_held_up() -> None:
    heartbeat = Heartbeat()
    with counting(place(0, []), Plan(command="bench", steps=()), heartbeat) as found:
        assert found is None
    assert heartbeat.said == []
