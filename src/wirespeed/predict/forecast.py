"""Shapes weighed by how they foretell what they were not shown, and draws of the future from them.

Each size and each world is left out in turn, the shape is fitted to the rest and asked for what is
missing (`residual.Trial`). The errors of one such group go together, so a group counts as one piece of
evidence: the weight of a shape is its score to the power of minus the number of groups (the
likelihood of that many normal errors, each of unknown variance). The forecast is a mixture: every
draw takes a shape by its weight, coefficients from their distribution, a residual, and what worlds
and sizes beyond the measured ones may add. Where the shapes disagree, far out, the interval is as
wide as they disagree.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.errors import UsageError
from wirespeed.model.derived_records import Estimate, Refusal, WorldSize
from wirespeed.model.records import Run
from wirespeed.model.units import format_size
from wirespeed.predict.points import Place, Series, shapes_for
from wirespeed.predict.residual import Drift, Member, attempt, near_enough

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Factors = Mapping[str, Array]
DRAWS = 600
_SEED = 20_261_121
_LEAST_WEIGHT = 0.02
_NOT_IN_SOURCE = 0.05
"""Weight of a shape before any measurement, where the backend's source has others (`Shape.known`)."""
_TRIED, _MOST_TERMS = 32, 8
"""Draws of coefficients for each that is needed: those with one below 0 are not taken."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What can be said of one collective."""

    series: Series
    members: tuple[Member, ...]
    """By weight, the heaviest first."""
    weights: tuple[float, ...]
    """They add up to 1."""
    errors: Array
    """|log(measured / predicted)| of every measurement when it was left out, by the heaviest."""
    world: Drift
    size: Drift

    def draws(self, places: Sequence[Place], factors: Factors | None = None) -> Array:
        """Seconds at these places: a row a draw, a column a place.

        factors: by term name, one a draw, that coefficients are multiplied with. The random numbers
        are the same on every call, so that forecasts can be compared draw by draw.
        """
        rng = np.random.default_rng(_SEED)
        freedom = max(3, len(self.series.worlds) + 1)
        shared = rng.standard_normal((DRAWS, 3))
        shared *= np.sqrt(freedom / rng.chisquare(freedom, DRAWS))[:, None]
        deviates = rng.standard_normal((_TRIED * DRAWS, _MOST_TERMS))
        rows = np.empty((DRAWS, len(places)))
        for member, chosen in zip(self.members, self._rows(), strict=True):
            theta = _coefficients(member, deviates, len(chosen))
            for column, term in enumerate(member.shape.terms):
                if factors and term.name in factors:
                    theta[:, column] *= factors[term.name][chosen]
            share = member.share(places)
            mean, deviation = member.leftover.at(places, share)
            beyond = np.stack([deviation, *self._beyond(places, share)])
            rows[chosen] = member.log_times(places, theta) + mean + shared[chosen] @ beyond
        return np.exp(np.clip(rows, -50, 50))

    def _rows(self) -> list[Rows]:
        """Draws by member, spread evenly (the golden ratio's multiples)."""
        edges = np.cumsum(self.weights)
        at = (np.arange(DRAWS) * 0.6180339887498949) % 1.0
        which = np.minimum(np.searchsorted(edges, at, side="right"), len(self.members) - 1)
        return [np.flatnonzero(which == k) for k in range(len(self.members))]

    def _beyond(self, places: Sequence[Place], share: Array) -> tuple[Array, Array]:
        """(by world, by size): one sigma of log time at each place, for lying beyond."""
        ranks, sizes = [world.ranks for world in self.series.worlds], self.series.sizes
        worlds = [_doublings(world.ranks, min(ranks), max(ranks)) for world, _ in places]
        far = [_doublings(size, sizes[0], sizes[-1]) for _, size in places]
        return self.world.sigma(share) * np.array(worlds), self.size.sigma(share) * np.array(far)


def estimate(draws: Array) -> Estimate:
    """The median and the interval that holds 95 % of the draws."""
    low, middle, high = np.quantile(draws, (0.025, 0.5, 0.975))
    return Estimate(float(middle), float(low), float(high))


def fit(series: Series) -> Forecast | None:
    """Every shape of the operation tried on the series; None where none can be told from it."""
    shapes = shapes_for(series.op, series.worlds, series.cores, series.backend)
    found = [attempt(shape, series) for shape in near_enough(shapes, series)]
    tried = [one for one in found if one.sizes]
    if not tried:
        return None
    best = min(tried, key=lambda one: one.score)
    groups = len(best.sizes) + len(best.worlds)
    known = [1.0 if one.member.shape.known else _NOT_IN_SOURCE for one in tried]
    likelihoods = [(best.score / one.score) ** groups for one in tried]
    weights = np.array([a * b for a, b in zip(likelihoods, known, strict=True)])
    weights[weights < _LEAST_WEIGHT * weights.sum()] = 0.0
    order = [int(k) for k in np.argsort(-weights, kind="stable") if weights[k] > 0]
    return Forecast(
        series=series,
        members=tuple(tried[k].member for k in order),
        weights=tuple(float(weights[k] / weights.sum()) for k in order),
        errors=np.abs(np.concatenate(best.sizes + best.worlds)),
        world=best.drift_world,
        size=best.drift_size,
    )


def _doublings(value: float, least: float, most: float) -> float:
    return float(max(0.0, np.log2(value / most), np.log2(least / value)))


def _coefficients(member: Member, deviates: Array, count: int) -> Array:
    """That many draws of what is known of them, none below 0: a normal that is cut there keeps how the
    coefficients go together, which drawing all and raising some would not."""
    fitted = member.solved.theta
    covariance = member.solved.covariance * member.leftover.variance
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    # Independent deviates times this have that covariance.
    root = (vectors * np.sqrt(np.maximum(values, 0))).T
    theta = fitted + deviates[:, : len(fitted)] @ root
    good = theta[(theta >= 0).all(axis=1)]
    return np.resize(good, (count, len(fitted))) if len(good) else np.tile(fitted, (count, 1))


LEAST_SIZES, LEAST_SPAN = 4, 16
MOST_ERROR, MOST_ERROR_P90 = 0.2, 0.9
"""Of log time, of what was left out of the fit: 22 % in the median, a factor of 2.5 one time in ten."""
MOST_SPREAD = 10.0
"""Upper over lower end of an interval: beyond, it tells nobody anything."""
FARTHEST_OF_TWO, FARTHEST = 4, 64
"""Times the largest world that was measured: with two worlds, with three or more."""
FARTHEST_SIZE = 64
LEAST_SHARING = 2
"""Measured worlds with more ranks than cores, below which no other such world is told."""


def refuse_series(series: Series) -> Refusal | None:
    """Too few sizes to tell latency from bandwidth."""
    classes = series.classes
    span = classes[-1][-1] / classes[0][0]
    if len(classes) >= LEAST_SIZES and span >= LEAST_SPAN:
        return None
    return Refusal(
        what=series.op,
        because=f"{_count(len(classes), 'size')} over a factor of {span:.3g}: latency and bandwidth "
        f"cannot be told apart below {LEAST_SIZES} sizes over a factor of {LEAST_SPAN}",
        helps=f"wirespeed bench {series.op} -b 1K -e 64M -f 4",
    )


def refuse_fit(forecast: Forecast | None, series: Series) -> Refusal | None:
    """The shapes do not foretell what they were not shown."""
    more = f"wirespeed bench {series.op} --precision 2 --max-time 10, on a quiet cluster, twice"
    if forecast is None:
        why = f"{_count(len(series.points), 'measurement')} are too few for any algorithm's terms"
        return Refusal(what=series.op, because=why, helps=more)
    middle = float(np.median(forecast.errors))
    tail = float(np.quantile(forecast.errors, 0.9))
    if middle <= MOST_ERROR and tail <= MOST_ERROR_P90:
        return None
    return Refusal(
        what=series.op,
        because="the fit does not hold: measurements that were left out of it are missed by "
        f"{np.expm1(middle):.0%} in the median and {np.expm1(tail):.0%} one time in ten (at most "
        f"{np.expm1(MOST_ERROR):.0%} and {np.expm1(MOST_ERROR_P90):.0%})",
        helps=more,
    )


def refuse_world(series: Series, world: WorldSize) -> Refusal | None:
    """A world that lies too far from those that were measured, or in a direction none of them shows."""
    if world in series.worlds:
        return None
    what = f"{series.op} on {_where(world)}"
    alike, why = _comparable(series.worlds, world)
    if why:
        return Refusal(what=what, because=why, helps=_bench(series, world, alike))
    if refusal := _refuse_sharing(series, world, alike):
        return refusal
    far = world.ranks / max(one.ranks for one in alike)
    most = FARTHEST_OF_TWO if len(alike) == 2 else FARTHEST
    if far <= most:
        return None
    return Refusal(
        what=what,
        because=f"{far:.3g} times the largest world measured; {_count(len(alike), 'world')} carry a "
        f"forecast up to {most} times",
        helps=_bench(series, world, alike),
    )


def _refuse_sharing(series: Series, world: WorldSize, alike: Sequence[WorldSize]) -> Refusal | None:
    """Ranks that take turns on the cores of a node: nothing that had cores enough shows how."""
    cores = series.cores
    if not cores or world.nodes > 1 or world.ranks <= cores:
        return None
    sharing = sum(one.ranks > cores for one in alike)
    if sharing >= LEAST_SHARING:
        return None
    return Refusal(
        what=f"{series.op} on {_where(world)}",
        because=f"its {world.ranks} ranks take turns on {_count(cores, 'core')}, and so did those of "
        f"{_count(sharing, 'measured world')}, not {LEAST_SHARING}: what waiting for a core costs is "
        "not known",
        helps=f"wirespeed bench {series.op} --ranks N, for N = {cores + 1}, {cores + 2}",
    )


def refuse_size(series: Series, size: int) -> Refusal | None:
    sizes = series.sizes
    if sizes[0] / FARTHEST_SIZE <= size <= sizes[-1] * FARTHEST_SIZE:
        return None
    return Refusal(
        what=f"{series.op} of {format_size(size)}",
        because=f"measured from {format_size(sizes[0])} to {format_size(sizes[-1])}, and no forecast "
        f"goes {FARTHEST_SIZE} times beyond",
        helps=f"wirespeed bench {series.op} -b {min(size, sizes[0])} -e {max(size, sizes[-1])}",
    )


def refuse_spread(series: Series, world: WorldSize, sizes: Sequence[int]) -> Refusal:
    """The interval of these sizes is wider than a factor of 10."""
    told = ", ".join(format_size(size) for size in sizes)
    return Refusal(
        what=f"{series.op} of {told} on {_where(world)}",
        because=f"its interval would be wider than a factor of {MOST_SPREAD:g}: what was measured does "
        "not tell how it grows that far",
        helps=_bench(series, world, [one for one in series.worlds if one.nodes > 1]),
    )


def _where(world: WorldSize) -> str:
    return f"{_count(world.nodes, 'node')} × {_count(world.ranks_per_node, 'rank')}"


def _comparable(worlds: Sequence[WorldSize], asked: WorldSize) -> tuple[list[WorldSize], str]:
    """Measured worlds that show how time grows towards `asked`, and why they are not enough."""
    if asked.nodes == 1:
        alike = [one for one in worlds if one.nodes == 1]
        if len(alike) < 2:
            return alike, f"{_count(len(alike), 'number')} of ranks on one node measured, not 2"
        return alike, ""
    several = [one for one in worlds if one.nodes > 1]
    if not several:
        return [], "no run over several nodes: their links were never measured"
    alike = [one for one in several if one.ranks_per_node == asked.ranks_per_node]
    if not alike:
        known = sorted({one.ranks_per_node for one in several})
        return [], f"measured with {', '.join(map(str, known))} ranks a node only"
    if len({one.nodes for one in alike}) < 2:
        return (
            alike,
            f"measured on {alike[0].nodes} nodes only: nothing shows how it grows with nodes",
        )
    return alike, ""


def _bench(series: Series, world: WorldSize, alike: Sequence[WorldSize]) -> str:
    each = f" --ranks-per-node {world.ranks_per_node}" if world.ranks_per_node > 1 else ""
    known = {one.nodes for one in alike}
    if world.nodes == 1:
        return f"wirespeed bench {series.op} --ranks N, for three numbers of ranks"
    wanted = [n for n in (2, 3, 4, 6, 8, 16) if n not in known and n <= world.nodes][:3]
    listed = ", ".join(map(str, wanted)) or str(world.nodes)
    return f"wirespeed bench {series.op} --on ssh --nodes N{each}, for N = {listed}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_TIMES = re.compile(r"(\d+(?:\.\d+)?)x")
_RATE = re.compile(r"(\d+(?:\.\d+)?)([mg])bit")
_RDMA_SHARE = (0.85, 0.97)
"""Of the line rate that RDMA reaches: an assumption (headers take some per cent), said with the gain."""
_RDMA_STEP_S = (2.7e-6, 9.6e-6)
"""A hop over RDMA, from NCCL's tuning model (NVIDIA/nccl, src/graph/tuning.cc at 01afd20, hwLat of NET
for rings: 2.7 µs for LL, 9.6 µs for Simple)."""
_IMPROVE_SEED = 77
_NO_LINKS = "no term of the fit is about links between nodes: all runs are on one node"


@dataclass(frozen=True, slots=True)
class Improvement:
    kind: str
    """`nic`, `latency` or `rdma`."""
    value: float | None
    """nic, latency: the factor; rdma: bytes a second of a node's links, None: as the runs tell."""
    text: str


def parse_improvement(text: str) -> Improvement:
    """UsageError for anything but the three kinds, and for a factor that is not above 0."""
    kind, _, value = text.strip().lower().partition("=")
    times, rate = _TIMES.fullmatch(value), _RATE.fullmatch(value)
    if kind in ("nic", "latency") and times and 0.001 <= float(times[1]) <= 1000:
        return Improvement(kind, float(times[1]), text.strip().lower())
    if kind == "rdma" and (not value or (rate and float(rate[1]) > 0)):
        unit = {"m": 1e6, "g": 1e9}
        bytes_per_s = float(rate[1]) * unit[rate[2]] / 8 if rate else None
        return Improvement(kind, bytes_per_s, text.strip().lower())
    raise UsageError(
        f"--improve {text!r} is no improvement that we know",
        expected="nic=2x (twice the bandwidth between nodes), latency=0.5x (half the time a step), "
        "rdma (instead of TCP, on the NICs that the runs found) or rdma=100gbit",
    )


def line_rate(runs: Sequence[Run]) -> float | None:
    """Bytes a second of the slowest node's fastest physical NIC; None where no run tells."""
    slowest: list[float] = []
    for run in runs:
        for node in run.world.nodes if len(run.world.nodes) > 1 else ():
            speeds = [
                float(nic["speed_Gbitps"])
                for nic in node.nics
                if not nic.get("loopback")
                and not nic.get("virtual", True)
                and isinstance(nic.get("speed_Gbitps"), int | float)
            ]
            slowest += [max(speeds)] if speeds else []
    return min(slowest) * 1e9 / 8 if slowest else None


def factors_of(
    improvement: Improvement, forecast: Forecast, rate: float | None
) -> tuple[dict[str, Array], str] | Refusal:
    """(factor of each coefficient by draw, what is assumed); a Refusal where it means nothing here."""
    terms = {
        term.name: (term.bandwidth, float(theta))
        for member in forecast.members[::-1]
        for term, theta in zip(member.shape.terms, member.solved.theta, strict=True)
        if term.between
    }
    if not terms:
        helps = f"wirespeed bench {forecast.series.op} --on ssh --nodes 2"
        return Refusal(what=f"--improve {improvement.text}", because=_NO_LINKS, helps=helps)
    if improvement.kind == "rdma":
        return _rdma(improvement, terms, rate)
    value = improvement.value or 1.0
    if improvement.kind == "latency":
        steps = [name for name, (bandwidth, _) in terms.items() if not bandwidth]
        told = {name: np.full(DRAWS, value) for name in steps}
        return told, f"every step between nodes takes {value:g} times as long"
    wire, why = _wire_share(terms, rate)
    told = {name: 1 - wire + wire / value for name, (bandwidth, _) in terms.items() if bandwidth}
    return told, f"the wire is {value:g} times as fast; {why}"


def _wire_share(terms: dict[str, tuple[bool, float]], rate: float | None) -> tuple[Array, str]:
    """(how much of a byte's cost is the wire's, by draw; why): the rest is memory, cores, PCIe.

    Nobody measured it. Nearly all of it unless the runs reach less than half of the line rate.
    """
    rng = np.random.default_rng(_IMPROVE_SEED)
    costs = [theta for bandwidth, theta in terms.values() if bandwidth and theta > 0]
    reached = 1 / min(costs) if costs else 0.0
    if rate is not None and reached < rate / 2:
        why = f"only {reached / rate:.0%} of the line rate was reached, so that the gain is unsure"
        return rng.uniform(0, 1, DRAWS), why
    share: Array = 1 - 0.5 * rng.uniform(0, 1, DRAWS) ** 6
    return share, "it is nearly all of a byte's cost (in 1 of 40 forecasts below 57 %)"


def _rdma(
    improvement: Improvement, terms: dict[str, tuple[bool, float]], rate: float | None
) -> tuple[dict[str, Array], str] | Refusal:
    line = improvement.value or rate
    if line is None:
        return Refusal(
            what="--improve rdma",
            because="no run tells the speed of the nodes' NICs",
            helps="name it: --improve rdma=100gbit",
        )
    rng = np.random.default_rng(_IMPROVE_SEED)
    share = rng.uniform(*_RDMA_SHARE, DRAWS)
    step = np.exp(rng.uniform(math.log(_RDMA_STEP_S[0]), math.log(_RDMA_STEP_S[1]), DRAWS))
    factors = {}
    for name, (bandwidth, theta) in terms.items():
        new = 1 / (line * share) if bandwidth else step
        # What is quicker already stays as it is: RDMA does not slow a link down.
        factors[name] = np.minimum(new / max(theta, 1e-30), 1.0)
    low, high = _RDMA_SHARE
    return factors, (
        f"{low:.0%}–{high:.0%} of {line * 8 / 1e9:g} Gbit/s a node and 2.7–9.6 µs a hop "
        "(NCCL's tuning model), nothing else the bottleneck"
    )
