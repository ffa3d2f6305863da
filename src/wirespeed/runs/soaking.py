"""A soak put together from its records, in bounded memory: as they come, or read again later."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from wirespeed.records_lasting import Incident, Soak, SoakCell, SoakStall, SoakWindow, SoakWrong
from wirespeed.records_lasting_json import (
    incident_from_json,
    soak_stall_from_json,
    soak_window_from_json,
    soak_wrong_from_json,
)

__all__ = ["MOST_EVENTS", "MOST_WINDOWS", "SOAK_KINDS", "SoakTally", "merged"]

MOST_WINDOWS = 240
"""With more, each is put together with the next."""
MOST_EVENTS = 200
"""Of each kind: the first half stays, and of the rest the newest."""
SOAK_KINDS = {
    "soak_window": "soak_window",
    "soak_stall": "soak_stall",
    "soak_wrong": "soak_wrong",
    "soak_incident": "incident",
}
"""Kinds of records that a tally takes, with their part of the schema."""

_Event = TypeVar("_Event", Incident, SoakStall, SoakWrong)


class SoakTally:
    """Takes records that know when they were; gives the whole at any time."""

    def __init__(self, start: Soak) -> None:
        self._start = start
        self._known_s = start.elapsed_s
        self._windows = list(start.windows)
        self._incidents = list(start.incidents)
        self._stalls = list(start.stalls)
        self._wrong = list(start.wrong)
        self._more = dict(start.uncounted)
        self.calls = start.calls
        self.checked_bytes = start.checked_bytes
        self.wrong_calls = start.wrong_calls
        self.stall_calls = start.stall_calls
        self.elapsed_s = start.elapsed_s
        self.worlds = start.worlds

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """One record of those kinds; others are passed over."""
        match kind:
            case "soak_window":
                self._take_window(soak_window_from_json(data))
            case "soak_stall":
                self._event("stalls", self._stalls, soak_stall_from_json(data))
            case "soak_wrong":
                self._event("wrong", self._wrong, soak_wrong_from_json(data))
            case "soak_incident":
                self._take_incident(incident_from_json(data))

    def take_again(self, kind: str, data: Mapping[str, Any]) -> None:
        """As `take`, of a record that the start may hold already."""
        end = float(data["since_s"]) + (float(data["seconds"]) if kind == "soak_window" else 0.0)
        if end > self._known_s or kind == "soak_incident":
            self.take(kind, data)

    def _take_window(self, window: SoakWindow) -> None:
        self.calls += window.calls
        self.checked_bytes += window.checked_bytes
        self.wrong_calls += window.wrong
        self.stall_calls += window.stalls
        self._reach(window.since_s + window.seconds, window.world)
        self._windows.append(window)
        if len(self._windows) > MOST_WINDOWS:
            self._windows = _halved(self._windows)

    def _take_incident(self, incident: Incident) -> None:
        """What is known better later (what it cost) takes the place of what was known at once."""
        for index, known in enumerate(self._incidents):
            if (known.id, known.since_s, known.subject) == (
                incident.id,
                incident.since_s,
                incident.subject,
            ):
                self._incidents[index] = incident
                return
        self._event("incidents", self._incidents, incident)

    def _event(self, name: str, events: list[_Event], one: _Event) -> None:
        self._reach(one.since_s, one.world)
        events.append(one)
        if len(events) > MOST_EVENTS:
            del events[MOST_EVENTS // 2]
            self._more[name] = self._more.get(name, 0) + 1

    def _reach(self, since_s: float, world: int) -> None:
        self.elapsed_s = max(self.elapsed_s, since_s)
        self.worlds = max(self.worlds, world)

    @property
    def incidents(self) -> int:
        return len(self._incidents) + self._more.get("incidents", 0)

    def soak(self) -> Soak:
        return replace(
            self._start,
            elapsed_s=self.elapsed_s,
            worlds=self.worlds,
            calls=self.calls,
            checked_bytes=self.checked_bytes,
            wrong_calls=self.wrong_calls,
            stall_calls=self.stall_calls,
            windows=tuple(self._windows),
            incidents=tuple(sorted(self._incidents, key=lambda one: one.since_s)),
            stalls=tuple(self._stalls),
            wrong=tuple(self._wrong),
            uncounted=dict(self._more),
        )


def _halved(windows: Sequence[SoakWindow]) -> list[SoakWindow]:
    """Neighbours put together, of one world where that does: a world's memory is its own."""
    for alike in (True, False):
        found: list[SoakWindow] = []
        joined = True  # the first has nobody to be put together with
        for one in windows:
            if not joined and (not alike or found[-1].world == one.world):
                found[-1], joined = merged(found[-1], one), True
            else:
                found.append(one)
                joined = False
        if len(found) < MOST_WINDOWS:
            break
    return found


def merged(first: SoakWindow, second: SoakWindow) -> SoakWindow:
    """Two windows, one after the other, as one."""
    cells = {(one.op, one.dtype, one.size_bytes): one for one in first.cells}
    for one in second.cells:
        key = one.op, one.dtype, one.size_bytes
        cells[key] = _both(cells[key], one) if key in cells else one
    last = zip(first.last_share, second.last_share, strict=False)
    total = max(1, first.calls + second.calls)
    seconds = first.seconds + second.seconds
    return SoakWindow(
        since_s=first.since_s,
        seconds=seconds,
        world=second.world,
        calls=first.calls + second.calls,
        checked_bytes=first.checked_bytes + second.checked_bytes,
        wrong=first.wrong + second.wrong,
        stalls=first.stalls + second.stalls,
        stalled_s=first.stalled_s + second.stalled_s,
        cells=tuple(cells.values()),
        last_share=tuple((a * first.calls + b * second.calls) / total for a, b in last),
        rss_bytes=second.rss_bytes,
        waited=tuple(
            (a * first.seconds + b * second.seconds) / max(seconds, 1e-9)
            for a, b in zip(first.waited, second.waited, strict=False)
        ),
        free_bytes=second.free_bytes,
    )


def _both(a: SoakCell, b: SoakCell) -> SoakCell:
    """Medians by their weight: what a list of all calls would give is not kept."""
    total = max(1, a.calls + b.calls)

    def mean(first: float, second: float) -> float:
        return (first * a.calls + second * b.calls) / total

    slower = a if a.max >= b.max else b
    return replace(
        slower,
        calls=a.calls + b.calls,
        wrong=a.wrong + b.wrong,
        low=mean(a.low, b.low),
        median=mean(a.median, b.median),
        p99=max(a.p99, b.p99),
    )
