"""The block that repeats in what one rank called: a step, where nothing tells where steps begin."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_CALLS = 1 << 16
"""Of one rank, the newest, that are looked at."""
LEAST_REPEATS = 3
_LOOKED_AT = 512
"""Places at which every length is tried before the best are tried at all places."""
_TRIED = 200
_LEAST_SHARE = 0.3
"""Of the calls that the block must explain."""
_ALIKE = 1e-9
"""Shares that differ by less are equal; else the better is taken, however long: of a thousand calls of
tensor parallelism and one of data parallelism, the thousand alone explain nearly all."""
_LEAST_GAPS = 6
_MOST_TIMES = 64
_BY_PHASE = 0.3
"""Of the spread of the gaps, that must go where the place in a longer block explains it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Calls `start` to `start + length` and so on are whole repeats of one block, turned alike."""

    length: int
    starts: tuple[int, ...]


def repeating_block(signs: Sequence[int], gaps: Sequence[float], hint: int = 0) -> Block | None:
    """The shortest block that explains most of the sequence; None where nothing repeats three times.

    signs: what each call is, equal where calls are alike; gaps: seconds since the call before, NaN:
    not known. Calls that come between repeats now and then, and all before the first, are left out.
    hint: a length to try first, such as another rank's.
    """
    found = np.asarray(signs[-MOST_CALLS:], np.int64)
    offset = len(signs) - len(found)
    lengths = [hint] if hint and _explained(found, hint)[0] >= 0.5 else _likely(found)
    rated = [(_explained(found, length), length) for length in lengths]
    best = max((share for (share, _), _ in rated), default=0.0)
    if best < _LEAST_SHARE:
        return None
    (_, runs), length = min((one for one in rated if one[0][0] > best - _ALIKE), key=_length)
    length *= _steps_of(np.asarray(gaps[-MOST_CALLS:]), length, max(runs, key=_long))
    starts = [
        offset + start + turn * length
        for start, end in _in_phase(found, runs, length)
        for turn in range((end - start) // length)
    ]
    return Block(length, tuple(starts)) if len(starts) >= LEAST_REPEATS else None


def _length(rated: tuple[object, int]) -> int:
    return rated[1]


def _long(run: tuple[int, int]) -> int:
    return run[1] - run[0]


def _likely(signs: NDArray[np.int64]) -> list[int]:
    """Lengths at which many of some evenly spaced calls are followed by their like."""
    lengths = np.arange(1, len(signs) // 2 + 1)
    if not len(lengths):
        return []
    places = np.linspace(0, len(signs) // 2 - 1, _LOOKED_AT).astype(int).clip(0)
    alike = np.array([(signs[places] == signs[places + one]).mean() for one in lengths])
    return [int(lengths[at]) for at in np.argsort(-alike, kind="stable")[:_TRIED]]


def _explained(signs: NDArray[np.int64], length: int) -> tuple[float, list[tuple[int, int]]]:
    """(share of the calls in stretches in which one block of that length repeats, these stretches).

    Blocks with the same calls count as the same: within a stretch they are turns of each other.
    """
    alike = signs[:-length] == signs[length:]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], alike, [False])).astype(np.int8)))
    runs = [(int(a), int(b) + length) for a, b in edges.reshape(-1, 2) if b - a >= length]
    covered: dict[bytes, int] = {}
    blocks = [np.sort(signs[start : start + length]).tobytes() for start, _ in runs]
    for key, (start, end) in zip(blocks, runs, strict=True):
        covered[key] = covered.get(key, 0) + end - start
    if not covered:
        return 0.0, []
    best = max(covered, key=lambda key: covered[key])
    kept = [run for key, run in zip(blocks, runs, strict=True) if key == best]
    return covered[best] / len(signs), kept


def _in_phase(
    signs: NDArray[np.int64], runs: list[tuple[int, int]], length: int
) -> list[tuple[int, int]]:
    """The stretches, each begun where its block reads as that of the longest; others are left out."""
    start, _ = max(runs, key=_long)
    block = signs[start : start + length]
    found = []
    for begin, end in runs:
        for at in range(begin, min(begin + length, end - length + 1)):
            if np.array_equal(signs[at : at + length], block):
                found.append((at, end))
                break
    return found


def _steps_of(gaps: NDArray[np.float64], length: int, run: tuple[int, int]) -> int:
    """How many blocks make a step, by the gaps: of equal calls, one in every so many comes late."""
    times = gaps[run[0] + 1 : run[1]]
    if length == 1 and (apart := _usual_distance(np.flatnonzero(np.isnan(times)))):
        return apart
    times = np.log(np.maximum(times, 1e-7))
    if not np.isfinite(times).any():
        return 1
    times = np.nan_to_num(times, nan=np.nanmax(times))  # calls are missing: a step may begin there
    spread = {
        k: _spread(times, k * length)
        for k in range(1, min(_MOST_TIMES, len(times) // (_LEAST_GAPS * length)) + 1)
    }
    if not spread or spread[1] <= 0:
        return 1
    least = min(spread.values())
    if least > (1 - _BY_PHASE) * spread[1]:
        return 1
    good = spread[1] - 0.8 * (spread[1] - least)
    return min(k for k, value in spread.items() if value <= good)


def _usual_distance(places: NDArray[np.int64]) -> int:
    """Calls from one hole to the next where most holes lie alike, as between sampled steps; else 0."""
    apart = np.diff(places)
    if len(apart) < LEAST_REPEATS - 1:
        return 0
    usual = int(np.median(apart))
    return usual if 2 * np.count_nonzero(apart == usual) > len(apart) else 0


def _spread(times: NDArray[np.float64], length: int) -> float:
    """Mean distance of the values from the median of their place in a block of that length."""
    rows = times[: len(times) // length * length].reshape(-1, length)
    return float(np.abs(rows - np.median(rows, axis=0)).mean())
