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
from wirespeed.reference import ASSUMED_SPREAD, Expectation, Origin
from wirespeed.reference.figures import INTERCONNECTS, Figure, data_text, shipped_figures
from wirespeed.reference.known import Match, find
from wirespeed.reference.reasons import reasons
from wirespeed.reference.roofline import Limit, passed, roofline
from wirespeed.reference.shape import Shape
from wirespeed.statistics import lacks_samples

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
    def too_few(self) -> bool:
        """Whether its samples are known and give no interval."""
        return lacks_samples(self.iterations)

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
    by_interconnect: tuple["Answer", ...] = ()
    """One answer for each interconnect that has a figure, where nobody said what connects the nodes."""

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
    own: Sequence[Figure] = (),
) -> Answer:
    """Return the answer for one figure against `expectation` (None: nothing is known).

    own: the user's figures, for answers by interconnect where the shape does not say which it is.
    """
    known = () if expectation else _by_interconnect(shape, op, figure, own, nodes)
    limit = roofline(shape, op, figure.engine)
    place = _joint_place(known) if known else _place(figure, expectation)
    if place in ("normal", "high") and known:
        expectation = _highest(known)
    share = figure.busbw / expectation.busbw if expectation and expectation.busbw else 0.0
    return Answer(
        place=place,
        shape=shape,
        op=op,
        figure=figure,
        expectation=expectation,
        limit=limit if limit and limit.holds(figure.busbw) else None,
        above=passed(shape, op, figure.busbw, limit),
        reasons=reasons(shape, nodes, share) if place == "low" and not known else (),
        known=_alike(shape) if place == "unknown" and not known else (),
        by_interconnect=known,
    )


def expected_of(
    shape: Shape, op: str, size_bytes: int, own: Sequence[Figure] = ()
) -> Expectation | None:
    """Where there are only words to go by: the user's own figures before the package's."""
    match, origin = _match(shape, op, size_bytes, own)
    return match.expectation(origin) if match is not None else None


def _match(
    shape: Shape, op: str, size_bytes: int, own: Sequence[Figure]
) -> tuple[Match | None, Origin]:
    mine = find(own, shape, op, size_bytes)
    if mine is not None and mine.expectation("own").busbw:
        return mine, "own"
    return find(shipped_figures(), shape, op, size_bytes), "reference"


def _by_interconnect(
    shape: Shape, op: str, figure: Asked, own: Sequence[Figure], nodes: Sequence[NodeFacts]
) -> tuple[Answer, ...]:
    """Return an answer for each interconnect that has a figure, where nobody said which it is.

    Figures of so many such nodes stand alone where there are any.
    """
    if shape.interconnect or shape.nodes < 2:
        return ()
    close, every = [], []
    for kind in INTERCONNECTS:
        alike = replace(shape, interconnect=kind)
        match, origin = _match(alike, op, figure.size_bytes, own)
        expectation = match.expectation(origin) if match is not None else None
        if match is None or expectation is None or not expectation.busbw:
            continue
        answer = ask(alike, op, figure, expectation, nodes=nodes)
        every.append(answer)
        if not match.rough and all(one.nodes in (shape.nodes, None) for one in match.figures):
            close.append(answer)
    return tuple(close or every)


def _joint_place(answers: Sequence[Answer]) -> Place:
    """Return the place that holds on whichever interconnect it is; `unknown` where that matters.

    Any cluster may fall back to TCP. So nothing is called low unless it is low on TCP too, and nothing
    normal by a figure of TCP alone.
    """
    places = {one.place for one in answers}
    kinds = {one.shape.interconnect for one in answers}
    if places <= {"normal", "high"} and kinds != {"tcp"}:
        return "normal" if "normal" in places else "high"
    return "low" if places == {"low"} and "tcp" in kinds else "unknown"


def _highest(answers: Sequence[Answer]) -> Expectation | None:
    """Return the highest expectation among the interconnects: a figure that reaches it is normal."""
    known = [(one.expectation, one.shape.interconnect) for one in answers if one.expectation]
    best, kind = max(known, key=lambda pair: pair[0].busbw or 0.0)
    note = f"what connects the nodes is not known: {INTERCONNECTS[kind]} has the highest figure"
    return replace(best, notes=(note, *best.notes), may_fail=False)


def _place(figure: Asked, expectation: Expectation | None) -> Place:
    if expectation is None or not expectation.busbw or figure.too_few or figure.too_wide:
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
