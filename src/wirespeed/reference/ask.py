"""Is this number normal? One figure against what is known, in one answer."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from wirespeed.errors import InputError
from wirespeed.model.records import NodeFacts
from wirespeed.model.units import format_bandwidth, format_size
from wirespeed.reference import ASSUMED_SPREAD, STEADY_BYTES, Expectation, Origin
from wirespeed.reference.capability import Expected, expected_by_hardware, limit_of
from wirespeed.reference.figures import INTERCONNECTS, Figure, data_text, shipped_figures
from wirespeed.reference.known import Match, find
from wirespeed.reference.ramp import fitted
from wirespeed.reference.reasons import reasons
from wirespeed.reference.roofline import Limit, passed, roofline
from wirespeed.reference.shape import BRIDGE, CPU, Shape, links_are_verified
from wirespeed.statistics import lacks_samples

Place = Literal["impossible", "low", "normal", "high", "unknown"]

LOW_BELOW = 0.9
"""Share of what several sources measured on such a world below which a figure is low, unless one of
them was lower still."""
LONE_LOW_BELOW = 0.8
"""The same where one source is all that is known, since nobody knows how far such worlds lie apart."""
HIGH_ABOVE = 1.1
"""Share above which, and above all others, it is worth a question how it was measured."""
CARDS_LOW_BELOW = 0.7
"""The same where what is known is a rule of thumb for such network cards, or another GPU's figure."""
HALF = 0.5
"""Share of what the hardware should give below which a figure is low though nobody published one."""
_UNSTEADY = 2.0
_ROUNDED = 1.02
"""Times the limit from which on a figure is impossible: rates are rounded, and clocks are."""

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

    @property
    def best(self) -> float:
        """The better end of its interval, bytes a second."""
        return self.busbw_range[1] if self.busbw_range else self.busbw


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that somebody published, beside the one that is asked about."""

    figure: Figure
    differs: tuple[str, ...]
    """What is not the same there; empty: nothing that is known."""


@dataclass(frozen=True, slots=True)
class Answer:
    place: Place
    shape: Shape
    op: str
    figure: Asked
    expectation: Expectation | None
    """What was measured or published; None: nothing that holds for such a world."""
    limit: Limit | None
    """The most that any algorithm reaches on these links; for copies in memory their bound."""
    above: str
    """Why busbw is above the ring's rate, or that it is above the limit; empty where it is neither."""
    hardware: Expected | None = None
    """What the hardware that is known should give."""
    reasons: tuple[str, ...] = ()
    """Where it is low: the three likeliest."""
    published: tuple[Published, ...] = ()
    """The nearest figures of such GPUs, the most alike first."""
    by_interconnect: tuple["Answer", ...] = ()
    """One answer for each interconnect that has a figure, where nobody said what connects the nodes."""
    by_switch: tuple["Answer", ...] = ()
    """Without and with SHARP, where nobody said whether the switches reduce."""
    missing: tuple[str, ...] = ()
    """Where it cannot be told: what to say or to measure."""
    remark: str = ""
    """Where a ring explains less than others got: that a ring does."""
    raised: str = ""
    """Where a fact made a normal figure low: what that fact raised."""

    @property
    def share(self) -> float | None:
        """Of what decides: of published figures, else of what the hardware should give."""
        expected = self.expected
        return self.figure.busbw / expected if expected else None

    @property
    def expected(self) -> float | None:
        """Bytes a second that `share` is of; None where nothing is expected."""
        known = self.expectation.busbw if self.expectation else None
        if self.hardware is None or (self.expectation is not None and decides(self.expectation)):
            return known
        return self.hardware.busbw

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


def decides(known: Expectation) -> bool:
    """Return whether such figures are judged by, rather than what the hardware should give.

    The user's own runs and figures are, and those that somebody published of such a world.
    """
    return bool(known.busbw) and (known.origin != "reference" or known.same_world)


def ask(
    shape: Shape,
    op: str,
    figure: Asked,
    expectation: Expectation | None,
    *,
    nodes: Sequence[NodeFacts] = (),
    own: Sequence[Figure] = (),
    shipped: Sequence[Figure] | None = None,
) -> Answer:
    """Return the answer for one figure against `expectation` (None: nothing is known).

    own: the user's figures, for answers by interconnect where the shape does not say which it is.
    shipped: the published figures; None: those of the package.
    """
    published = shipped_figures() if shipped is None else tuple(shipped)
    alone = _answer(shape, op, figure, expectation, nodes, published)
    if alone.place == "impossible" or figure.too_few or figure.too_wide:
        return alone
    if expectation is None and (kinds := _by_interconnect(shape, op, figure, own, published)):
        return _joined_kinds(alone, kinds)
    if expectation is None or expectation.origin == "reference":
        switches = _by_switch(shape, op, figure, nodes, published)
        joined = _joined_switches(alone, switches) if switches else alone
        return _never_worse(joined, nodes, published) if joined.place == "low" else joined
    return alone


def _answer(
    shape: Shape,
    op: str,
    figure: Asked,
    expectation: Expectation | None,
    nodes: Sequence[NodeFacts],
    published: Sequence[Figure],
) -> Answer:
    limit = limit_of(shape, op, figure.engine)
    hardware = expected_by_hardware(shape, op, figure.size_bytes, fitted(tuple(published)))
    place = _place(shape, figure, expectation, limit, hardware)
    if place in ("low", "impossible") and not links_are_verified(shape.gpu):
        # Nothing fails by a link or a slot that was read nowhere; cards that were told still count.
        bare = replace(shape, gpu_link=None, slot=None)
        limit = limit_of(bare, op, figure.engine)
        hardware = expected_by_hardware(bare, op, figure.size_bytes, fitted(tuple(published)))
        place = _place(bare, figure, expectation, limit, hardware)
    above = passed(shape, op, figure.busbw, roofline(shape, op, figure.engine))
    if place == "impossible" and limit:
        above = f"{figure.busbw / limit.busbw:.3g} times the limit: {IMPOSSIBLE}"
    answer = Answer(
        place=place,
        remark=_AS_RING if place == "normal" and _is_below_others(figure, expectation) else "",
        shape=shape,
        op=op,
        figure=figure,
        expectation=expectation,
        limit=limit if limit and limit.holds(figure.busbw) else None,
        above=above,
        hardware=hardware,
        published=_nearest(shape, op, figure.size_bytes, published),
        missing=_missing(shape, op, figure, hardware) if place == "unknown" else (),
    )
    if place != "low":
        return answer
    return replace(answer, reasons=reasons(shape, nodes, answer.share or 0.0))


IMPOSSIBLE = "impossible: check the unit (Gbit/s?) or the clock"
"""Ends the line about a figure that no algorithm can reach on these links."""


def expected_of(
    shape: Shape,
    op: str,
    size_bytes: int,
    own: Sequence[Figure] = (),
    shipped: Sequence[Figure] | None = None,
) -> Expectation | None:
    """Return what is known of such a world: the user's own figures before the published ones."""
    published = shipped_figures() if shipped is None else shipped
    match, origin = _match(shape, op, size_bytes, own, published)
    return match.expectation(origin) if match is not None else None


def _match(
    shape: Shape, op: str, size_bytes: int, own: Sequence[Figure], published: Sequence[Figure]
) -> tuple[Match | None, Origin]:
    mine = find(own, shape, op, size_bytes)
    if mine is not None and mine.expectation("own").busbw:
        return mine, "own"
    return find(published, shape, op, size_bytes), "reference"


# Where a fact is open, each of its values has an answer, and what holds for all of them is the verdict.


def _by_interconnect(
    shape: Shape, op: str, figure: Asked, own: Sequence[Figure], published: Sequence[Figure]
) -> tuple[Answer, ...]:
    """Return an answer for each interconnect that has a figure, where nobody said which it is.

    Figures of so many such nodes stand alone where there are any.
    """
    if shape.interconnect or shape.nodes < 2:
        return ()
    close, every = [], []
    for kind in INTERCONNECTS:
        alike = replace(shape, interconnect=kind)
        match, origin = _match(alike, op, figure.size_bytes, own, published)
        expectation = match.expectation(origin) if match is not None else None
        if match is None or expectation is None or not expectation.busbw:
            continue
        answer = ask(alike, op, figure, expectation, shipped=published)
        every.append(answer)
        if not match.rough and all(one.nodes in (shape.nodes, None) for one in match.figures):
            close.append(answer)
    return tuple(close or every)


def _joined_kinds(alone: Answer, answers: tuple[Answer, ...]) -> Answer:
    """Return the answer that holds on whichever interconnect it is.

    Any cluster may fall back to TCP. So nothing is called low unless it is low on TCP too, and nothing
    normal by a figure of TCP alone.
    """
    places = {option.place for option in answers}
    kinds = {option.shape.interconnect for option in answers}
    place: Place = "unknown"
    if places <= {"normal", "high"} and kinds != {"tcp"}:
        place = "normal" if "normal" in places else "high"
    elif places <= {"low", "unknown"} and "low" in (
        option.place for option in answers if option.shape.interconnect == "tcp"
    ):
        place = "low"
    best = _highest(answers) if place in ("normal", "high") else None
    missing = () if place != "unknown" else ("what connects the nodes: --interconnect",)
    return replace(
        alone, place=place, expectation=best, by_interconnect=answers, missing=missing, reasons=()
    )


def _highest(answers: Sequence[Answer]) -> Expectation | None:
    """Return the highest expectation among the interconnects: a figure that reaches it is normal."""
    known = [
        (option.expectation, option.shape.interconnect) for option in answers if option.expectation
    ]
    best, kind = max(known, key=lambda pair: pair[0].busbw or 0.0)
    note = f"what connects the nodes is not known: {INTERCONNECTS[kind]} has the highest figure"
    return replace(best, notes=(note, *best.notes), may_fail=False)


WHAT_DECIDES = (
    "whether SHARP is on (--switch sharp, or --switch sharp-off): NCCL_COLLNET_ENABLE=1 with the SHARP "
    "plugin turns it on, and NCCL_DEBUG=INFO then names COLLNET"
)


def _by_switch(
    shape: Shape,
    op: str,
    figure: Asked,
    nodes: Sequence[NodeFacts],
    published: Sequence[Figure],
) -> tuple[Answer, ...]:
    """Return the answers without and with SHARP, where that is open and makes a difference."""
    if op != "all_reduce" or shape.switch or shape.interconnect != "ib" or shape.nodes < 3:
        return ()
    answers = []
    for switch in ("sharp off", "sharp"):
        alike = replace(shape, switch=switch)
        expectation = expected_of(alike, op, figure.size_bytes, (), published)
        answers.append(_answer(alike, op, figure, expectation, nodes, published))
    return tuple(answers)


def _joined_switches(alone: Answer, answers: tuple[Answer, ...]) -> Answer:
    """Return the answer that holds with and without SHARP; `unknown` where it makes a difference.

    What is enough with SHARP is enough without, since a ring reaches less.
    """
    without, with_them = answers
    place = without.place
    if with_them.place in ("normal", "high"):
        place = "high" if {without.place, with_them.place} == {"high"} else "normal"
    elif without.place == "impossible":
        place = with_them.place
    elif with_them.place == "low" and without.place != "low":
        place = "unknown"
    decisive = next((option for option in answers if option.place == place), without)
    chosen = alone if alone.place == place else decisive
    missing = (WHAT_DECIDES,) if place == "unknown" else ()
    return replace(
        chosen, place=place, shape=alone.shape, limit=alone.limit, by_switch=answers,
        missing=tuple(dict.fromkeys((*missing, *(chosen.missing if place == "unknown" else ())))),
        reasons=chosen.reasons if place == "low" else (),
    )  # fmt: skip


def _never_worse(answer: Answer, nodes: Sequence[NodeFacts], published: Sequence[Figure]) -> Answer:
    """Return a low answer that says which fact made it so; without a reason a fact makes none worse."""
    shape = answer.shape
    if shape.nics is None:
        return answer
    fewer = replace(shape, nics=None, nic_Gbitps=None, nic_carries_Gbitps=None)
    before = expected_of(fewer, answer.op, answer.figure.size_bytes, (), published)
    without = _answer(fewer, answer.op, answer.figure, before, nodes, published)
    if without.place not in ("normal", "high") or not without.expected or not answer.expected:
        return answer
    if answer.expected <= without.expected:
        return replace(without, shape=shape, limit=answer.limit, hardware=answer.hardware)
    text = (
        f"without the network cards it would be normal: {shape.nics} × {shape.nic_Gbitps:g} Gbit/s "
        f"raise what is expected from {format_bandwidth(without.expected)} to "
        f"{format_bandwidth(answer.expected)}"
    )
    return replace(answer, raised=text)


def _place(
    shape: Shape,
    figure: Asked,
    expectation: Expectation | None,
    limit: Limit | None,
    hardware: Expected | None,
) -> Place:
    """Return the verdict on one world, each of its facts being what it is."""
    known = expectation if expectation and expectation.busbw else None
    own = known.busbw or 0.0 if known and known.origin != "reference" else 0.0
    # What the user's own runs reached is possible, so that the table of links is wrong then.
    holds = limit and not limit.copies and shape.gpu != CPU and own <= _ROUNDED * limit.busbw
    if limit and holds and figure.busbw > _ROUNDED * limit.busbw:
        return "impossible"
    if figure.too_few or figure.too_wide:
        return "unknown"
    if known is not None and known.origin != "reference":
        return _by_runs(figure, known)
    if known is not None and decides(known):
        place = _by_same_world(figure, known)
        return "normal" if place == "low" and _is_ring(shape, figure, hardware) else place
    if hardware is not None:
        return _by_hardware(figure, hardware, known)
    return _by_similar_worlds(shape, figure, known) if known is not None else "unknown"


def _is_ring(shape: Shape, figure: Asked, hardware: Expected | None) -> bool:
    """Return whether two nodes reach what a ring gives, with which NCCL's makers ask to measure them.

    The tree that NCCL chooses itself passes the cards' rate there (nccl-tests#290 and #319).
    """
    ring = hardware.ring if hardware and shape.nodes == 2 and shape.per_node > 1 else 0.0
    return 0 < ring <= figure.best


_AS_RING = "as a ring over the cards gives; others got more with NVLSTree or Tree (NCCL_ALGO)"


def _is_below_others(figure: Asked, known: Expectation | None) -> bool:
    """Return whether others got clearly more on such a world."""
    published = known is not None and known.origin == "reference" and decides(known)
    return known is not None and published and _by_same_world(figure, known) == "low"


def _by_runs(figure: Asked, known: Expectation) -> Place:
    """Judge by the user's own runs and figures, as `check` does."""
    expected = known.busbw or 0.0
    low, high = known.busbw_range or (expected, expected)
    if known.warn_below is not None:
        return "low" if figure.best < known.warn_below * expected else "normal"
    if known.gate and figure.best < known.gate:
        return "low"
    outside = figure.best < low and figure.best <= known.outside_warn * expected
    if figure.busbw < LOW_BELOW * expected and outside:
        return "low"
    return "high" if figure.busbw > max(HIGH_ABOVE * expected, high) else "normal"


def _by_same_world(figure: Asked, known: Expectation) -> Place:
    """Judge by what was measured on such a world; that outranks what a site asks of its own."""
    expected = known.busbw or 0.0
    low, high = known.busbw_range or (expected, expected)
    below = LONE_LOW_BELOW if known.lone else LOW_BELOW
    if figure.size_bytes < STEADY_BYTES:
        below, usual = HALF, below
        if below * expected <= figure.best < min(usual * expected, low):
            return "unknown"
    if figure.best < min(below * expected, low):
        return "low"
    if known.gate and figure.best < known.gate and figure.best < (1 - ASSUMED_SPREAD) * expected:
        return "low"
    return _high_or_normal(figure, max(HIGH_ABOVE * expected, high))


def _high_or_normal(figure: Asked, most: float) -> Place:
    """Return `high` above `most`, or far above it at a size whose rate is not steady."""
    factor = 1.0 if figure.size_bytes >= STEADY_BYTES else _UNSTEADY
    return "high" if figure.busbw > factor * most else "normal"


def _by_hardware(figure: Asked, hardware: Expected, known: Expectation | None) -> Place:
    """Judge by what the links should give; only far below that is low by itself.

    known: figures of worlds that are only like this one. They may show that it is normal, or raise what
    half is taken of.
    """
    similar = known if known is not None and known.warn_below is None else None
    others = similar.busbw or 0.0 if similar else 0.0
    if figure.best >= hardware.low:
        return _high_or_normal(figure, HIGH_ABOVE * max(hardware.high, others))
    of_cards = CARDS_LOW_BELOW if similar is not None and similar.same_cards else HALF
    if figure.best < min(hardware.floor, max(HALF * hardware.busbw, of_cards * others)):
        return "low"
    return "normal" if similar is not None and _reaches(figure, similar) else "unknown"


def _reaches(figure: Asked, known: Expectation) -> bool:
    expected = known.busbw or 0.0
    low = min(expected, known.busbw_range[0] if known.busbw_range else expected)
    return figure.best >= LOW_BELOW * low


def _by_similar_worlds(shape: Shape, figure: Asked, known: Expectation) -> Place:
    """Judge by worlds that are only like this one, where no rate of this one's links is known.

    Between nodes nothing is low then: a node with the same GPUs may have an eighth of the cards.
    """
    expected = known.busbw or 0.0
    asked = HALF if known.warn_below is None else known.warn_below
    inside = shape.nodes == 1 or shape.interconnect.startswith("mnnvl")
    if inside and figure.best < asked * expected:
        return "low"
    if not _reaches(figure, known):
        return "unknown"
    high = known.busbw_range[1] if known.busbw_range else expected
    return _high_or_normal(figure, max(HIGH_ABOVE * expected, high))


# What would decide, and what others got.

_FULL_SIZE = 2**30


def _missing(shape: Shape, op: str, figure: Asked, hardware: Expected | None) -> tuple[str, ...]:
    """Return what to say or to measure so that it can be told."""
    if figure.too_few or figure.too_wide:
        return ()
    needs = []
    if not links_are_verified(shape.gpu):
        needs.append(f"the links of {shape.gpu} by its maker: those in the table are not verified")
    if shape.nodes > 1 and not shape.interconnect:
        needs.append("what connects the nodes: --interconnect")
    racks = shape.interconnect.startswith("mnnvl")
    if shape.nodes > 1 and not racks and not (shape.nics and shape.nic_Gbitps):
        needs.append("the network cards of a node: --nics, such as 8x400")
    if shape.inside == BRIDGE and shape.nodes == 1:
        needs.append("whether a bridge joins the cards: --interconnect nvlink, or pcie")
    if shape.gpu == CPU and shape.nodes == 1:
        needs.append(
            "a run that you trust: wirespeed baseline set RUN, or wirespeed reference add RUN"
        )
    if shape.gpu_link is None and shape.gpu != CPU and (shape.nodes == 1 or racks):
        needs.append(
            f"how fast the links of {shape.gpu} are: nvbandwidth -t device_to_device_memcpy_read_ce, "
            "or a run on a node that you trust and wirespeed reference add RUN"
        )
    if figure.size_bytes < _FULL_SIZE and shape.gpu != CPU:
        needs.append(f"{op} at 1 GiB or more, where latency no longer counts")
    if hardware is not None and shape.nodes > 1:
        needs.append(
            "the parts of it: the same operation within one node, and ib_write_bw or iperf3 on each "
            "card"
        )
    elif hardware is not None and hardware.floor < hardware.low:
        needs.append("whether the GPUs have NVSwitches or links to each other: nvidia-smi topo -m")
    elif hardware is not None:
        needs.append("the parts of it: nvbandwidth between each two GPUs, or wirespeed locate")
    return tuple(needs)


_MOST_PUBLISHED = 4


def _nearest(
    shape: Shape, op: str, size: int, published: Sequence[Figure]
) -> tuple[Published, ...]:
    """Return figures of such GPUs, those first that differ least, one size of each table."""
    alike = [
        row
        for row in published
        if row.kind != "untuned" and row.gpu and (shape.gpu + " ").startswith(row.gpu + " ")
    ]
    alike.sort(key=lambda row: _distance(row, shape, op, size))
    first: dict[tuple[object, ...], Figure] = {}
    for row in alike:
        table = (row.system, row.source, row.nodes, row.collective, row.switch, row.kind)
        first.setdefault(table, row)
    return tuple(
        Published(row, _differs(row, shape, op, size))
        for row in list(first.values())[:_MOST_PUBLISHED]
    )


def _distance(row: Figure, shape: Shape, op: str, size: int) -> tuple[float, ...]:
    nodes = abs(math.log((row.nodes or shape.nodes) / shape.nodes))
    sizes = abs(math.log((row.size_bytes or _FULL_SIZE) / size)) if size else 0.0
    return (
        float(row.collective != op),
        float(len(_differs(row, shape, op, size))),
        float(((row.nodes or 2) > 1) != (shape.nodes > 1)),
        float(row.interconnect != shape.interconnect),
        float(row.gpus_per_node not in (None, shape.per_node)),
        nodes,
        sizes,
    )


def _differs(row: Figure, shape: Shape, op: str, size: int) -> tuple[str, ...]:
    """Return what is not the same in a published figure, in words."""
    differences = []
    if row.collective != op:
        differences.append(row.collective)
    if row.nodes is None or row.nodes != shape.nodes:
        differences.append("any number of nodes" if row.nodes is None else f"{row.nodes} nodes")
    if row.gpus_per_node not in (None, shape.per_node):
        differences.append(f"{row.gpus_per_node} GPUs a node")
    if row.interconnect != shape.interconnect:
        differences.append(INTERCONNECTS[row.interconnect])
    if shape.nodes > 1 and (row.nics, row.nic_Gbitps) != (shape.nics, shape.nic_Gbitps):
        known = row.nics and row.nic_Gbitps
        differences.append(
            f"{row.nics} × {row.nic_Gbitps:g} Gbit/s" if known else "cards not given"
        )
    if row.size_bytes != size:
        differences.append(
            "peak over sizes" if row.size_bytes is None else format_size(row.size_bytes)
        )
    if row.switch and row.switch != shape.switch:
        differences.append(row.switch.upper() if row.switch == "sharp" else row.switch)
    if row.kind != "measured":
        differences.append(f"a {row.kind}, not measured")
    return tuple(differences)


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
