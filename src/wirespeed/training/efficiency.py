"""How training scales with ranks: efficiency with its interval, its grade, and where the loss goes.

efficiency = (throughput_N / N) / (throughput_1 / 1), throughput = samples of a step / mean step.
Strong scaling shares one batch over more ranks; weak scaling keeps the batch of a rank.

The loss is split along a chain of step times, each measured, that leads from what N ranks should
take to what they take; the differences sum up to the loss exactly:

    ideal         the smallest world's time, had it scaled perfectly
    alone         one rank with this world's share of the batch, nobody beside it
    together      mean over ranks, all working at once, without synchronisation
    slowest       the slowest of these ranks
    step          the synchronised step

    alone - ideal       smaller batches cost more a sample (strong scaling; 0 in weak scaling)
    together - alone    memory bandwidth, shared cores or clocks: N ranks on a host are slower
    slowest - together  one rank has more to do, or a slower machine
    step - slowest      exposed communication
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from wirespeed.statistics import student_t

Grade = Literal["excellent", "good", "poor"]
EXCELLENT, GOOD = 0.90, 0.80
"""Efficiencies above these have that grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """One number of ranks, measured."""

    ranks: int
    samples: int
    """Of one step, over all ranks."""
    step_s: tuple[float, ...]
    """Mean step of each round, of the slowest rank."""
    unsynchronised_s: tuple[float, ...] = ()
    """By rank: mean step without synchronisation, all ranks at once, in the same rounds."""
    alone_s: float | None = None
    """Mean step of one rank alone with samples / ranks; None: not measured."""

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.samples < 1 or not self.step_s or min(self.step_s) <= 0:
            raise ValueError(f"{self.ranks} ranks, {self.samples} samples, steps {self.step_s}")

    @property
    def mean_step_s(self) -> float:
        return fmean(self.step_s)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.mean_step_s


@dataclass(frozen=True, slots=True)
class Efficiency:
    value: float
    low: float
    high: float
    """The 95 % interval (low, high); infinite where a point has one round only."""
    grade: Grade
    sure: bool
    """The whole interval has that grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Shares of the step; they sum up to `total`. Noise can make a small one negative."""

    total: float
    """1 - efficiency."""
    exposed_communication: float | None
    slowest_rank: float | None
    contention: float | None
    """N ranks at once against one alone: memory bandwidth, cores, clocks. None: not measured, and
    then `smaller_batch` is None too and `slower_compute` has both."""
    smaller_batch: float | None
    slower_compute: float | None
    """contention + smaller_batch."""
    unexplained: float
    """The whole loss where ranks were not measured without synchronisation, else 0."""


_PARTS = (
    "exposed_communication",
    "slowest_rank",
    "contention",
    "smaller_batch",
    "slower_compute",
)


@dataclass(frozen=True, slots=True)
class Scaled:
    point: ScalePoint
    efficiency: Efficiency
    loss: Loss


def scaled(points: Sequence[ScalePoint]) -> tuple[Scaled, ...]:
    """Each point against the one with the fewest ranks, in ascending order of ranks."""
    ordered = sorted(points, key=lambda point: point.ranks)
    return tuple(
        Scaled(one, efficiency_of(ordered[0], one), loss_of(ordered[0], one)) for one in ordered
    )


def grade_of(efficiency: float) -> Grade:
    if efficiency > EXCELLENT:
        return "excellent"
    return "good" if efficiency > GOOD else "poor"


def efficiency_of(base: ScalePoint, point: ScalePoint) -> Efficiency:
    """Against base, which need not be one rank, with the interval of a ratio of two means.

    The interval is by the delta method on the logarithm with Welch's degrees of freedom (B. L.
    Welch, 1947); rounds are taken as independent. Base against itself is 1 by definition.
    """
    if point is base:
        return Efficiency(1.0, 1.0, 1.0, "excellent", True)
    value = _ideal_s(base, point) / point.mean_step_s
    half = _log_half_width(base.step_s, point.step_s)
    low, high = value * math.exp(-half), value * math.exp(half)
    grade = grade_of(value)
    return Efficiency(value, low, high, grade, grade_of(low) == grade_of(high))


def loss_of(base: ScalePoint, point: ScalePoint) -> Loss:
    """Where the time beyond the ideal goes, as shares of the point's step."""
    step, ideal = point.mean_step_s, _ideal_s(base, point)
    total = (step - ideal) / step
    if not point.unsynchronised_s or point is base:
        part = 0.0 if point is base else None
        return Loss(total=total, unexplained=total, **dict.fromkeys(_PARTS, part))
    slowest, together = max(point.unsynchronised_s), fmean(point.unsynchronised_s)
    alone = _alone_s(base, point)
    return Loss(
        total=total,
        exposed_communication=(step - slowest) / step,
        slowest_rank=(slowest - together) / step,
        contention=None if alone is None else (together - alone) / step,
        smaller_batch=None if alone is None else (alone - ideal) / step,
        slower_compute=(together - ideal) / step,
        unexplained=0.0,
    )


def _ideal_s(base: ScalePoint, point: ScalePoint) -> float:
    """The point's step if each of its ranks trained as many samples a second as each of base's."""
    share = (point.samples / point.ranks) / (base.samples / base.ranks)
    return share * base.mean_step_s


def _alone_s(base: ScalePoint, point: ScalePoint) -> float | None:
    """Measured, or base itself where it is one rank with the same share of the batch."""
    if point.alone_s is not None:
        return point.alone_s
    same_share = point.samples * base.ranks == base.samples * point.ranks
    return base.mean_step_s if base.ranks == 1 and same_share else None


def _log_half_width(one: Sequence[float], other: Sequence[float]) -> float:
    """Half the 95 % interval of log(mean(one) / mean(other)); infinite below 2 values each."""
    if min(len(one), len(other)) < 2:
        return math.inf
    terms = [(variance(v) / (len(v) * fmean(v) ** 2), len(v) - 1) for v in (one, other)]
    total = sum(term for term, _ in terms)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(term**2 / degrees for term, degrees in terms)
    return student_t(0.95, freedom) * math.sqrt(total)
