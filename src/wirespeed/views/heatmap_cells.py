"""The pair matrix as numbers: who is shown, and the median figures of each cell."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.records import Located, PairFigures

__all__ = [
    "MOST_IN_MAP",
    "Axis",
    "Cell",
    "Cells",
    "Matrix",
    "axis_of",
    "cells_of",
    "matrix_of",
    "usual_figures",
]

MOST_IN_MAP = 128
"""Nodes; with more, a cell would be smaller than what a mouse can point at."""
SHOWN_OF_MANY = 24
"""Rows of a larger fleet: the nodes that are named or slowest. All others share one more row."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows, which are the columns too."""

    names: tuple[str, ...]
    index: dict[str, int]
    """Row of each node."""
    folded: int = 0
    """Nodes that share the last row; 0: each has its own."""


@dataclass(frozen=True, slots=True)
class Cell:
    """From the node of the row to that of the column: medians over rounds and rails."""

    rate: float
    """Bytes a second; 0: nothing came through."""
    latency: float | None
    """Seconds; None: no reading has one."""
    readings: int


Cells = dict[tuple[int, int], Cell]
"""(row, column) of the pairs that were measured."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What maps of the same pairs share: made once, since a run may have 80,000 pairs."""

    axis: Axis
    cells: Cells


def matrix_of(located: Located, named: Sequence[str], rail: int | None = None) -> Matrix:
    """Of one rail, or (None) of all rails together."""
    axis = axis_of(located, named)
    return Matrix(axis, cells_of(located, axis, rail))


def axis_of(located: Located, named: Sequence[str]) -> Axis:
    """Every node up to `MOST_IN_MAP`; of more, those of `named` and the slowest, in their order."""
    if len(located.nodes) <= MOST_IN_MAP:
        return Axis(located.nodes, {node: row for row, node in enumerate(located.nodes)})
    chosen = set(list(dict.fromkeys((*named, *_slowest_first(located))))[:SHOWN_OF_MANY])
    shown = [node for node in located.nodes if node in chosen]
    index = {node: len(shown) for node in located.nodes}
    index.update((node, row) for row, node in enumerate(shown))
    folded = len(located.nodes) - len(shown)
    return Axis((*shown, f"median of {folded:,} others"), index, folded)


def _slowest_first(located: Located) -> list[str]:
    rates: dict[str, list[float]] = defaultdict(list)
    for pair in located.pairs:
        for node in (pair.first, pair.second):
            rates[node] += (pair.forth, pair.back)
    return sorted(rates, key=lambda node: median(rates[node]))


def cells_of(located: Located, axis: Axis, rail: int | None = None) -> Cells:
    """The cells of one rail, or (None) of all rails together."""
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    late: dict[tuple[int, int], list[float]] = defaultdict(list)
    for pair in located.pairs:
        row, column = axis.index.get(pair.first), axis.index.get(pair.second)
        if (rail is not None and pair.rail != rail) or row is None or column is None:
            continue
        forth = row, column
        for place, rate in ((forth, pair.forth), (forth[::-1], pair.back)):
            if math.isfinite(rate):
                rates[place].append(rate)
                late[place] += _known(pair)
    return {
        place: Cell(median(found), median(late[place]) if late[place] else None, len(found))
        for place, found in rates.items()
    }


def _ends(pair: PairFigures) -> set[str]:
    return {pair.first, pair.second}


def _known(pair: PairFigures) -> list[float]:
    """The latency, where there is one: in a stored run it may be anything that JSON can say."""
    return [] if pair.latency is None or not math.isfinite(pair.latency) else [pair.latency]


def usual_figures(located: Located, named: frozenset[str]) -> tuple[float, float]:
    """(bytes a second, seconds): the medians of the readings without a node of `named`.

    Of all readings where none is without; 0 where there is none at all.
    """
    others = [pair for pair in located.pairs if named.isdisjoint(_ends(pair))]
    pairs = others or located.pairs
    rates = [rate for pair in pairs for rate in (pair.forth, pair.back) if 0 < rate < math.inf]
    late = [latency for pair in pairs for latency in _known(pair)]
    return (median(rates) if rates else 0.0), (median(late) if late else 0.0)
