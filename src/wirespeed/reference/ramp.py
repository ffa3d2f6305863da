"""How busbw rises with the size: latency and bandwidth, fitted on the published curves.

An operation of S bytes takes about a + S/B: a is the time that does not depend on the size, B the rate
of full links. So busbw is B·S/(S + S½), where S½ = a·B is the size that reaches half of it. a grows
with the ranks: a = a₀ + a₁·n, a₀ being another within a node than between nodes. The rise is flatter
than that, since other algorithms and protocols take over as the size grows: reached is
1/(1 + (S½/S)^p), with one p for all.

What is fitted on are tables of one source with at least three sizes (data/busbw.csv), as medians of
logarithms, so that one odd table decides nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from wirespeed.reference.figures import Figure
from wirespeed.reference.shape import Shape

_POWER = 0.75
"""p: with it the tables' own a depend least on the size at which they are taken."""
_PER_RANK = 3e-6
"""a₁, seconds a rank: of the largest table, 1,440 ranks of GB200 in 20 racks."""
_FULL = 1.04
"""B over the best figure of a table, whose largest size is not at its limit yet."""
SPREAD = 3.0
"""Factor to both sides of a: nine of ten tables lie within it (tests/reference/test_ramp.py)."""
_SIZES = 3


@dataclass(frozen=True, slots=True)
class Ramp:
    """The fit: seconds that an operation takes without any data, within one node and between nodes."""

    inside_s: float
    between_s: float

    def reached(self, shape: Shape, size: int, algbw: float) -> tuple[float, float, float]:
        """Return (usual, least, most) share of the full rate that is reached at a size.

        algbw: bytes a second of data that full links carry.
        """
        if size <= 0 or algbw <= 0:
            return 1.0, 0.0, 1.0
        half = self.start_s(shape.nodes, shape.ranks) * algbw
        usual, least, most = (
            1 / (1 + (half * factor / size) ** _POWER) for factor in (1.0, SPREAD, 1 / SPREAD)
        )
        return usual, least, most

    def start_s(self, nodes: int, ranks: int) -> float:
        """Return a, the seconds that do not depend on the size."""
        return (self.inside_s if nodes == 1 else self.between_s) + _PER_RANK * ranks


_USUAL = Ramp(inside_s=6e-5, between_s=3e-4)
"""Where there is no table to fit on."""


@lru_cache(maxsize=512)
def fitted(figures: tuple[Figure, ...]) -> Ramp:
    """Return the fit on all tables of `figures` that have several sizes."""
    starts: dict[bool, list[float]] = {True: [], False: []}
    for table in tables(figures):
        seconds = start_of(table)
        nodes, ranks = table[0].nodes or 1, _ranks(table[0])
        if seconds is not None:
            starts[nodes == 1].append(max(seconds - _PER_RANK * ranks, seconds / 4))
    inside = _middle(starts[True], _USUAL.inside_s)
    between = _middle(starts[False], _USUAL.between_s)
    return Ramp(inside, between)


def tables(figures: Iterable[Figure]) -> list[list[Figure]]:
    """Return the all_reduce curves: figures of one source and world, of at least three sizes."""
    curves: dict[tuple[object, ...], list[Figure]] = {}
    for figure in figures:
        if figure.kind == "measured" and figure.collective == "all_reduce" and figure.size_bytes:
            key = (
                figure.source,
                figure.system,
                figure.gpu,
                figure.gpus_per_node,
                figure.nodes,
                figure.switch,
            )
            curves.setdefault(key, []).append(figure)
    return [table for table in curves.values() if len(table) >= _SIZES and table[0].gpus_per_node]


def start_of(table: Sequence[Figure]) -> float | None:
    """Return a of one table, seconds; None where all of its sizes fill the links."""
    ranks = _ranks(table[0])
    full = _FULL * max(figure.busbw or 0.0 for figure in table)
    steps = 2 * (ranks - 1) / ranks
    known = [
        (full / figure.busbw - 1) ** (1 / _POWER) * figure.size_bytes * steps / full
        for figure in table
        if figure.busbw and figure.size_bytes and 0.03 < figure.busbw / full < 0.9
    ]
    return median(known) if known else None


def _ranks(figure: Figure) -> int:
    return (figure.gpus_per_node or 1) * (figure.nodes or 1)


def _middle(values: Sequence[float], usual: float) -> float:
    return math.exp(median(map(math.log, values))) if values else usual
