"""Training steps on worlds that nobody has measured, from the cost model and forecasts of all_reduce.

timeline.py says what a step takes from its computation and what each message does; here these times are
draws of a forecast, so that every figure has an interval. What the model missed where the training run
measured (cores that compute and send at once) is carried over to other worlds, half of it taken as its
standard error. Where more ranks than cores share a node, computing takes as many
times as long (to the power of 1 ± 0.1: caches and memory are shared, too).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.predict.bounds import FARTHEST_SIZE
from wirespeed.predict.forecast import DRAWS, Forecast
from wirespeed.predict.timeline import messages_of, step_s
from wirespeed.predict.workload import Workload
from wirespeed.records_prediction import Refusal, WorldSize
from wirespeed.training.strategies.registry import STRATEGIES

__all__ = ["KNOWN", "Choice", "Stepper", "choices_of", "stepper"]

Array = NDArray[np.float64]
KNOWN = ("naive", "flat", "overlap", "bucketed", "ddp", "ddp-view")
"""Strategies that the cost model knows; all of them send by all_reduce."""
_DEFAULT = ("flat", "overlap", "bucketed")
_SEED = 99
_UNCHECKED = 0.10
"""Standard error of a step, relative to it, where nothing measured tells how far the model is off."""
_MOST_MISSED = 0.5
"""Of the step, where it was measured."""
_BUCKETS = 7


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy with a bucket size."""

    strategy: str
    bucket_mb: float | None


@dataclass(frozen=True, slots=True)
class Stepper:
    """Draws of step times of one workload."""

    workload: Workload
    forecast: Forecast
    excess: Mapping[str, float]
    """Seconds by strategy that the model misses; `` for those that were not measured."""
    checked: bool

    def draws(
        self,
        world: WorldSize,
        choices: Sequence[Choice],
        factors: Mapping[str, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(seconds without synchronisation by draw, seconds of a step by draw and choice)."""
        rng = np.random.default_rng(_SEED)
        mood = 1 + self.workload.uncertainty * rng.standard_normal(DRAWS)
        carried = 1 + 0.5 * rng.standard_normal(DRAWS)
        sharing = self.workload.sharing(world) ** (1 + _UNCHECKED * rng.standard_normal(DRAWS))
        compute = np.clip(mood, 0.2, 5.0) * sharing
        sizes = sorted({size for choice in choices for size in self.messages(choice)})
        # Far below what was measured, all of a message is latency: no size is refused for being small.
        least = -(-self.forecast.series.sizes[0] // FARTHEST_SIZE)
        times = self.forecast.draws([(world, max(size, least)) for size in sizes], factors)
        steps = np.empty((DRAWS, len(choices)))
        for column, choice in enumerate(choices):
            sent = self.messages(choice)
            own = times[:, np.searchsorted(sizes, sent)]
            steps[:, column] = step_s(
                choice.strategy, sent, own, self.workload.backward_s * compute
            )
            steps[:, column] += self.workload.rest_s * compute
            missed = self.excess.get(choice.strategy, self.excess.get("", 0.0))
            steps[:, column] += missed * carried * sharing
        alone = self.workload.alone_s * compute
        if not self.checked:
            steps *= np.exp(_UNCHECKED * rng.standard_normal(DRAWS))[:, None]
        return alone, np.maximum(steps, alone[:, None])

    def messages(self, choice: Choice) -> tuple[int, ...]:
        """Bytes of each call of a step."""
        return messages_of(choice.strategy, self.workload.gradients, choice.bucket_mb)


def stepper(
    workload: Workload, forecast: Forecast, *, known_world: bool
) -> tuple[Stepper | Refusal, str]:
    """The stepper with what the model misses, and a note about that.

    known_world: the forecast may be asked about the world that the training run was measured on.
    """
    plain = Stepper(workload, forecast, {}, False)
    mates = [one for one in workload.measured if one.strategy in KNOWN] if known_world else []
    if not mates:
        return plain, (
            f"no strategy measured with {workload.model} can be compared with the step model: "
            f"its error is taken as {_UNCHECKED:.0%} (one sigma)"
        )
    missed: dict[str, list[float]] = {}
    for one in mates:
        choice = Choice(one.strategy, one.bucket_mb)
        _, told = plain.draws(workload.world, [choice])
        missed.setdefault(one.strategy, []).append(one.step.mean - float(np.median(told)))
    excess = {name: float(np.mean(values)) for name, values in missed.items()}
    excess[""] = float(np.mean(list(excess.values())))
    worst = max(mates, key=lambda one: abs(excess[one.strategy]) / one.step.mean)
    share = excess[worst.strategy] / worst.step.mean
    if abs(share) > _MOST_MISSED:
        return Refusal(
            what=f"steps of {workload.model}",
            because=f"the step model misses {worst.strategy} by {share:+.0%} of the step where it "
            f"was measured ({workload.world.ranks} ranks): computing and sending slow each other",
            helps="wirespeed train on nodes whose cores are not shared by more ranks than they have",
        ), ""
    return Stepper(workload, forecast, excess, True), (
        f"where it was measured ({workload.world.ranks} ranks) the step model misses up to "
        f"{share:+.0%} of a step ({worst.strategy}); that is carried over, ± half of it"
    )


def choices_of(
    workload: Workload, strategies: Sequence[str], buckets: Sequence[float]
) -> list[Choice]:
    """Each strategy with each bucket size; by default those measured, and sizes on a scale."""
    measured = [one.strategy for one in workload.measured if one.strategy in KNOWN]
    names = list(dict.fromkeys(strategies or measured or _DEFAULT))
    sizes = list(buckets) or _scale(workload)
    return [
        Choice(name, size)
        for name in names
        if name in KNOWN
        for size in (sizes if STRATEGIES[name].buckets else [None])
    ]


def _scale(workload: Workload) -> list[float]:
    """Bucket sizes from a hundredth of the gradients to all of them, and those that were measured."""
    most = sum(workload.gradients) / 1e6
    scale = [float(f"{most * 100 ** (k / (_BUCKETS - 1) - 1):.2g}") for k in range(_BUCKETS)]
    measured = [one.bucket_mb for one in workload.measured if one.bucket_mb is not None]
    measured = [size for size in measured if size <= most]
    apart = [one for one in scale if all(max(one / m, m / one) > 1.3 for m in measured)]
    return sorted({*apart, *measured})
