"""Is this number normal? One figure against what is known, in one answer."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from wirespeed.errors import InputError
from wirespeed.model.records import NodeFacts
from wirespeed.reference import ASSUMED_SPREAD, Expectation
from wirespeed.reference.figures import INTERCONNECTS, Figure, data_text, shipped_figures
from wirespeed.reference.known import find
from wirespeed.reference.reasons import reasons
from wirespeed.reference.roofline import Limit, passed, roofline
from wirespeed.reference.shape import Shape

Place = Literal["low", "normal", "high", "unknown"]

LOW_BELOW = 0.9
"""Share of the expected figure below which a figure is low, unless others were lower still."""
HIGH_ABOVE = 1.1
"""Share above which, and above all others, it is worth a question how it was measured."""


_WIDE = 0.5
"""Half of an interval, relative to its median, beyond which no verdict holds."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The figure that is asked about."""

    size_bytes: int
    busbw: float
    """Bytes a second."""
    busbw_range: tuple[float, float] | None = None
    """Its 95 % interval; None: it came without one."""
    iterations: int = 0
    engine: str = "torch"

    @property
    def too_wide(self) -> bool:
        if self.busbw_range is None:
            return False
        low, high = self.busbw_range
        return max(high - self.busbw, self.busbw - low) > _WIDE * self.busbw


@dataclass(frozen=True, slots=True)
class Answer:
    place: Place
    shape: Shape
    op: str
    figure: Asked
    expectation: Expectation | None
    limit: Limit | None
    above: str
    """Why busbw is above the model's limit; empty where it is not."""
    reasons: tuple[str, ...] = ()
    """Where it is low: the three likeliest."""
    known: tuple[Figure, ...] = field(default=())
    """Where nothing holds: the figures of such GPUs that there are."""

    @property
    def share(self) -> float | None:
        """Of what is expected; None where nothing is."""
        expected = self.expectation.busbw if self.expectation else None
        return self.figure.busbw / expected if expected else None

    @property
    def beside(self) -> str:
        """`below`, `near` or `above` the only known figure, by the spread that is assumed.

        Empty where there are several, or it is of another size.
        """
        found, share = self.expectation, self.share
        if found is None or share is None or not found.lone or found.warn_below is not None:
            return ""
        if abs(share - 1) <= ASSUMED_SPREAD:
            return "near"
        return "below" if share < 1 else "above"


def ask(
    shape: Shape,
    op: str,
    figure: Asked,
    expectation: Expectation | None,
    *,
    nodes: Sequence[NodeFacts] = (),
) -> Answer:
    """The answer for one figure against `expectation` (None: nothing is known)."""
    expectation = expectation or _over_any(shape, op, figure)
    limit = roofline(shape, op, figure.engine)
    place = _place(figure, expectation)
    share = figure.busbw / expectation.busbw if expectation and expectation.busbw else 0.0
    return Answer(
        place=place,
        shape=shape,
        op=op,
        figure=figure,
        expectation=expectation,
        limit=limit if limit and limit.holds(figure.busbw) else None,
        above=passed(shape, op, figure.busbw, limit),
        reasons=reasons(shape, nodes, share) if place == "low" else (),
        known=_alike(shape) if place == "unknown" else (),
    )


def expected_of(
    shape: Shape, op: str, size_bytes: int, own: Sequence[Figure] = ()
) -> Expectation | None:
    """Where there are only words to go by: the user's own figures before the package's."""
    mine = find(own, shape, op, size_bytes)
    if mine is not None and (found := mine.expectation("own")).busbw:
        return found
    public = find(shipped_figures(), shape, op, size_bytes)
    return public.expectation("reference") if public is not None else None


def _over_any(shape: Shape, op: str, figure: Asked) -> Expectation | None:
    """Where nobody tells the interconnect: the fastest of so many such nodes, if it is reached.

    What falls short of it may be the best that another interconnect gives, so it stays unknown.
    """
    if shape.interconnect or shape.nodes < 2:
        return None
    size = figure.size_bytes
    known = [
        (match, kind)
        for kind in INTERCONNECTS
        if (match := find(shipped_figures(), replace(shape, interconnect=kind), op, size))
        and not match.rough
        and all(one.nodes == shape.nodes and one.gpu for one in match.figures)
    ]
    told = [(match.expectation("reference"), kind) for match, kind in known]
    best, kind = max(told, key=lambda pair: pair[0].busbw or 0.0, default=(None, ""))
    if best is None or figure.busbw < LOW_BELOW * (best.busbw or math.inf):
        return None
    note = (
        f"the interconnect is not told: {INTERCONNECTS[kind]} has the fastest figure of such nodes"
    )
    return replace(best, notes=(note, *best.notes), may_fail=False)


def _place(figure: Asked, expectation: Expectation | None) -> Place:
    if expectation is None or not expectation.busbw or figure.too_wide:
        return "unknown"
    expected = expectation.busbw
    low, high = expectation.busbw_range or (expected, expected)
    best = figure.busbw_range[1] if figure.busbw_range else figure.busbw
    if expectation.warn_below is not None:
        # A figure of another size: no more is asked than `check` asks.
        return "low" if best < expectation.warn_below * expected else "normal"
    if expectation.gate and best < expectation.gate:
        return "low"
    outside = best < low and best <= expectation.outside_warn * expected
    if figure.busbw < LOW_BELOW * expected and outside:
        return "low"
    return "high" if figure.busbw > max(HIGH_ABOVE * expected, high) else "normal"


def _alike(shape: Shape) -> tuple[Figure, ...]:
    """Of such GPUs, those with a number of nodes like this one's first."""
    alike = [one for one in shipped_figures() if one.gpu and shape.gpu.startswith(one.gpu)]
    return tuple(sorted(alike, key=lambda one: abs(math.log((one.nodes or 2) / shape.nodes))))


_NEEDED = ("system", "ranks", "model", "batch", "strategy", "step_s", "source")
_NUMBERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("ranks", "batch"), int),
    **dict.fromkeys(("bucket_mb", "step_s", "comm_share"), float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigure:
    """One row of a study."""

    system: str
    gpu: str = ""
    """Empty: not told."""
    ranks: int
    model: str
    batch: int
    strategy: str
    """As `train --strategy` calls it."""
    bucket_mb: float | None = None
    step_s: float
    """Mean, in seconds."""
    comm_share: float | None = None
    """Of the step, as the source counted it."""
    source: str
    published: str = ""
    read: str = ""


@lru_cache(maxsize=1)
def shipped_training() -> tuple[TrainingFigure, ...]:
    """The figures in the package."""
    return training_from_csv(data_text("training.csv"), source="training.csv")


def training_from_csv(text: str, *, source: str) -> tuple[TrainingFigure, ...]:
    """The rows; InputError names `source`, the line and what is wrong."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    missing = set(_NEEDED) - set(reader.fieldnames or ())
    if missing:
        raise InputError(f"{source}: no column {', '.join(sorted(missing))}")
    try:
        return tuple(_figure(row) for row in reader)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{source}:{reader.line_num}: {error}", expected="seconds and whole numbers above 0"
        ) from error


def _figure(row: dict[str, str]) -> TrainingFigure:
    cells: dict[str, Any] = {
        name: _NUMBERS.get(name, str)(cell) for name, cell in row.items() if cell
    }
    if not 0 < cells["step_s"] < 1e6:
        raise ValueError(f"step_s is {row['step_s']!r}")
    return TrainingFigure(**cells)


def of_naive(one: TrainingFigure, among: tuple[TrainingFigure, ...]) -> float | None:
    """Its step over naive's in the same study; None where that has no naive."""
    same = [
        other.step_s
        for other in among
        if (other.system, other.model, other.batch, other.ranks, other.strategy)
        == (one.system, one.model, one.batch, one.ranks, "naive")
    ]
    return one.step_s / same[0] if same else None
