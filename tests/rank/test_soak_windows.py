"""Rank 0's windows: what is told, when, and that nothing in them grows."""

from typing import Any

from wirespeed.plan import Case, SoakPlan
from wirespeed.rank.soak_statistics import SoakStatistics, Turn

CASE = Case(op="all_reduce", redop="sum", size_bytes=4084)


def turn(times: list[float], **changes: Any) -> Turn:
    zeros = [[0.0] * len(times)] * 2
    fields: dict[str, Any] = {
        "case": CASE,
        "seed": 7,
        "times": [times, [0.9 * one for one in times]],
        "missed": zeros,
        "waited": zeros,
        "waiting": [0.0, 0.2],
        "rss": [1e8, 2e8],
        "free": [5e9, 5e9],
        "checked_bytes": 4084,
        "wrong": [],
    }
    return Turn(**{**fields, **changes})


def windows(hosts: tuple[str, ...] = ("a", "b"), window_s: float = 10.0) -> SoakStatistics:
    return SoakStatistics(SoakPlan(cases=(CASE,), for_s=60.0, window_s=window_s), hosts)


def kinds(events: Any) -> list[str]:
    return [kind for kind, _ in events]


def test_a_window_is_told_when_its_time_is_up() -> None:
    recorder = windows()
    assert kinds(recorder.take(turn([1e-3] * 40), 1, 1.0)) == []
    (beat, window) = recorder.take(turn([2e-3] * 40), 2, 10.5)
    assert (beat[0], window[0]) == ("soak_beat", "soak_window")
    data = window[1]
    assert data["calls"] == 82, "the proving call counts"
    assert data["cells"][0]["median_us"] == 2000.0
    assert data["last_share"] == [1.0, 0.0]
    assert data["waited"] == [0.0, 0.2]
    assert data["free_bytes"] == {"a": 5_000_000_000, "b": 5_000_000_000}
    assert kinds(recorder.rest(2, 10.5)) == [], "an empty window says nothing"


def test_a_stall_is_measured_by_what_is_usual() -> None:
    recorder = windows()
    assert kinds(recorder.take(turn([1e-3] * 40), 1, 1.0)) == []
    missed = [[0.0], [0.25]]
    one, two = turn([0.3], missed=missed), turn([0.3], missed=missed, waited=[[0.0], [0.2]])
    ((kind, paused),) = recorder.take(one, 2, 1.5)
    ((_, busy),) = recorder.take(two, 3, 1.8)
    assert kind == "soak_stall"
    assert (paused["paused"], paused["busy"]) == ([1], [])
    assert (busy["paused"], busy["busy"]) == ([], [1])
    assert paused["median"] == 1e-3


def test_short_pauses_and_first_calls_are_no_stalls() -> None:
    recorder = windows()
    assert kinds(recorder.take(turn([0.3]), 1, 0.5)) == [], "nothing is usual yet"
    recorder = windows()
    list(recorder.take(turn([1e-4] * 40), 1, 1.0))
    assert kinds(recorder.take(turn([8e-3]), 2, 1.5)) == [], "a slice of the scheduler"


def test_wrong_results_are_told_with_their_seed_and_not_without_end() -> None:
    recorder = windows()
    names = ("rank", "host", "wrong", "elements", "example", "guess", "suspect")
    one = dict.fromkeys(names, 1)
    told = list(recorder.take(turn([1e-3], wrong=[(3, one)]), 1, 0.5))
    assert [(kind, data["seed"], data["call"]) for kind, data in told] == [("soak_wrong", 7, 3)]
    many = [(0, one)] * 500
    assert len(list(recorder.take(turn([1e-3], wrong=many), 2, 1.0))) < 30
    ((_, window),) = recorder.rest(2, 1.0)
    assert window["wrong"] == 2, "calls, not elements or ranks"


def test_a_window_of_a_million_calls_stays_small() -> None:
    recorder = windows(window_s=1e9)
    for number in range(200):
        list(recorder.take(turn([1e-3] * 64), number, 0.0))
    cell = next(iter(recorder._cells.values()))
    assert cell.seen == 200 * 64
    assert len(cell.samples) <= 2048
    assert all(len(one) <= 1024 for one in recorder._usual.values())
