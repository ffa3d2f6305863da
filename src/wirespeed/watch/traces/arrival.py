"""Who came last to collectives that all members leave together, on one clock.

The clocks of ranks are brought together by the common end of such collectives
(`training/trace.py:align`), over as many groups as it takes to reach a rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wirespeed.training.trace import Stretch, align, union_length
from wirespeed.watch.calls import Call
from wirespeed.watch.traces.naming import synchronises

_MOST = 8192
"""Passages of one rank that are kept."""
_LEAST = 3
"""Common passages that tell an offset."""
_UNNUMBERED = 1 << 40
_SPREAD = 0x9E3779B97F4A7C15
Group = tuple[tuple[int, ...], str]
"""Global ranks, and the group's name."""


@dataclass(slots=True)
class Passages:
    """Of one rank through collectives of one group; arrays are by passage, in order of `keys`."""

    keys: NDArray[np.int64]
    """The collective's number; where it has none, the step's number and its place in the step."""
    begins: NDArray[np.float64]
    """Seconds since 1970 on the rank's own clock, as `ends`."""
    ends: NDArray[np.float64]
    steps: NDArray[np.int64]
    """Number of the step in which it began; -1: none."""


@dataclass(slots=True)
class Arrivals:
    """All ranks' passages; what is told of them is bounded by ranks × `_MOST`."""

    passages: dict[Group, dict[int, Passages]] = field(default_factory=dict)
    """By group and rank."""

    def add(
        self, rank: int, zero_s: float, calls: Sequence[Call], step_of: NDArray[np.int64]
    ) -> None:
        """step_of: by call the number of the step in which it began; -1: none."""
        for group, found in _passages(zero_s, calls, step_of).items():
            self.passages.setdefault(group, {}).setdefault(rank, found)

    def offsets(self) -> dict[int, float]:
        """How far each clock is ahead of the first rank's, of ranks that common ends lead to."""
        ranks = sorted({rank for of in self.passages.values() for rank in of})
        known: dict[int, float] = {}
        for start in ranks:
            if start in known:
                continue
            if known:  # no collective joins it to the others
                break
            known[start] = 0.0
            waiting = [start]
            while waiting:
                waiting += self._reached(waiting.pop(), known)
        return known

    def _reached(self, rank: int, known: dict[int, float]) -> list[int]:
        """Ranks whose offset is known from now on."""
        found = []
        for of in self.passages.values():
            for other in of if rank in of else ():
                if other not in known and (offset := _offset(of[other], of[rank])) is not None:
                    known[other] = known[rank] + offset
                    found.append(other)
        return found

    def caused(self, offsets: Mapping[int, float], first: NDArray[np.int64]) -> NDArray[np.float32]:
        """[ranks, rows]: seconds that a rank, the last to come, let the others wait in those steps.

        first: by row the number of its first step. NaN: nothing of that rank was compared.
        """
        size = max(offsets, default=-1) + 1
        waits: dict[tuple[int, int], list[Stretch]] = {}
        seen = np.zeros((size, len(first)), np.bool_)
        for of in self.passages.values():
            ranks = [rank for rank in sorted(of) if rank in offsets]
            keys = _common([of[rank] for rank in ranks]) if len(ranks) > 1 else ()
            if not len(keys):
                continue
            places = [np.searchsorted(of[rank].keys, keys) for rank in ranks]
            pairs = list(zip(ranks, places, strict=True))
            begins = np.array([of[rank].begins[at] - offsets[rank] for rank, at in pairs])
            rows = np.array([_rows(first, of[rank].steps[at]) for rank, at in pairs])
            for rank, row in zip(ranks, rows, strict=True):
                seen[rank, row[row >= 0]] = True
            _note_last(ranks, begins, rows, waits)
        table = np.where(seen, 0.0, np.nan).astype(np.float32)
        for (rank, row), parts in waits.items():
            table[rank, row] = union_length(parts)
        return table


def _rows(first: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(steps >= 0, np.searchsorted(first, steps, "right") - 1, -1)


def _note_last(
    ranks: Sequence[int],
    begins: NDArray[np.float64],
    rows: NDArray[np.int64],
    waits: dict[tuple[int, int], list[Stretch]],
) -> None:
    """From when the median of the others had come until the last came; begins, rows: [ranks, keys]."""
    last, ordered = np.argmax(begins, axis=0), np.sort(begins, axis=0)
    since = np.median(ordered[:-1], axis=0)
    row = rows[last, np.arange(len(last))]
    kept = row >= 0
    found = (one[kept].tolist() for one in (last, row, since, ordered[-1]))
    for index, at, begin, end in zip(*found, strict=True):
        waits.setdefault((ranks[index], at), []).append((begin, end))


def _passages(
    zero_s: float, calls: Sequence[Call], step_of: NDArray[np.int64]
) -> dict[Group, Passages]:
    rows: dict[Group, list[tuple[int, float, float, int]]] = {}
    places: dict[tuple[Group, int], int] = {}
    for call, step in zip(calls, step_of.tolist(), strict=True):
        if call.end_s is None or len(call.group) < 2 or not synchronises(call.op):
            continue
        group = (call.group, call.group_name)
        key = call.seq
        if key < 0:
            if step < 0:
                continue
            place = places[group, step] = places.get((group, step), -1) + 1
            key = _UNNUMBERED + (step << 16) + min(place, 0xFFFF)
        rows.setdefault(group, []).append((key, call.begin_s + zero_s, call.end_s + zero_s, step))
    most = max(64, _MOST // max(1, len(rows)))
    return {group: _kept(found, most) for group, found in rows.items()}


def _kept(rows: list[tuple[int, float, float, int]], most: int) -> Passages:
    """All, or those that every rank keeps: by the key alone, as many halvings as it takes."""
    keys = np.array([row[0] for row in rows], np.int64)
    times = np.array([row[1:3] for row in rows])
    steps = np.array([row[3] for row in rows], np.int64)
    keys, place = np.unique(keys, return_index=True)
    mixed = (keys.astype(np.uint64) * np.uint64(_SPREAD)) >> np.uint64(32)
    mask = 0
    while np.count_nonzero(mixed & np.uint64(mask) == 0) > most:
        mask = mask * 2 + 1
    chosen = mixed & np.uint64(mask) == 0
    keys, place = keys[chosen], place[chosen]
    return Passages(keys, times[place, 0], times[place, 1], steps[place])


def _common(parts: Sequence[Passages]) -> NDArray[np.int64]:
    keys = parts[0].keys
    for part in parts[1:]:
        keys = np.intersect1d(keys, part.keys, assume_unique=True)
    return keys


def _offset(own: Passages, other: Passages) -> float | None:
    keys = _common([own, other])
    if len(keys) < _LEAST:
        return None
    pairs = []
    for part in (other, own):
        at = np.searchsorted(part.keys, keys)
        pairs.append(list(zip(part.begins[at].tolist(), part.ends[at].tolist(), strict=True)))
    return align(pairs, ends_together=True).offsets[1]
