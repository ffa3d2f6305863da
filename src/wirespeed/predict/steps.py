"""Training steps on worlds that nobody has measured, from the cost model and forecasts of all_reduce.

`step_s` says what a step takes from its computation and what each message does; here these times are
draws of a forecast, so that every figure has an interval. What the model missed where the training run
measured (cores that compute and send at once) is carried over to other worlds, half of it taken as its
standard error. Where more ranks than cores share a node, computing takes as many
times as long (to the power of 1 ± 0.1: caches and memory are shared, too).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.errors import UsageError
from wirespeed.model.derived_records import Refusal, WorldSize
from wirespeed.model.records import Run
from wirespeed.model.training_records import Training
from wirespeed.predict.forecast import DRAWS, FARTHEST_SIZE, Forecast
from wirespeed.predict.points import cores_of
from wirespeed.training.buckets import MEGA, Piece, plan_buckets
from wirespeed.training.models.sizes import FLOAT32_BYTES, SIZES, Size, TransformerSize
from wirespeed.training.strategies.registry import STRATEGIES

Array = NDArray[np.float64]
_AFTER = ("naive", "flat")
"""Strategies that send when the backward pass is over."""
_FIRST = {"bucketed": MEGA, "ddp": 2**20, "ddp-view": 2**20}
"""Bytes of the first bucket at most: ours, and torch's (kDefaultFirstBucketBytes)."""


def gradients_of(size: Size) -> tuple[int, ...]:
    """Bytes of each gradient, float32, in the order in which the model registers its parameters."""
    return tuple(FLOAT32_BYTES * one for one in size.tensor_elements)


def messages_of(
    strategy: str, gradients: tuple[int, ...], bucket_mb: float | None
) -> tuple[int, ...]:
    """Bytes of each all_reduce of a step, in the order in which they leave."""
    if strategy == "flat":
        return (sum(gradients),)
    if strategy == "naive" or bucket_mb is None:
        return tuple(reversed(gradients))
    limit = max(1, int(bucket_mb * MEGA))
    pieces = [Piece(size_bytes=one, kind="") for one in gradients]
    plan = plan_buckets(pieces, limit, min(_FIRST.get(strategy, limit), limit))
    return tuple(one.size_bytes for one in plan)


def step_s(strategy: str, sizes: tuple[int, ...], times: Array, backward: Array) -> Array:
    """Seconds of the backward pass and all that is sent, by draw.

    times: of each message, a row a draw; backward: the pass alone, by draw.
    """
    if strategy in _AFTER:
        one_after_the_other: Array = backward + times.sum(axis=1)
        return one_after_the_other
    end = np.zeros(len(backward))
    ready = np.cumsum(sizes) / sum(sizes)
    for column, share in enumerate(ready):
        end = np.maximum(end, share * backward) + times[:, column]
    return np.maximum(end, backward)


_OPTIONS = ("context", "layers", "vocab", "tied")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step takes by a strategy, where the workload was measured."""

    strategy: str
    bucket_mb: float | None
    step_s: float


@dataclass(frozen=True, slots=True)
class Workload:
    """One model's step as it was measured."""

    model: str
    backward_s: float
    rest_s: float
    """Forward, optimizer, data."""
    gradients: tuple[int, ...]
    """Bytes of each, in the order in which the model registers its parameters."""
    uncertainty: float
    """Standard error of the step without synchronisation, relative to it."""
    world: WorldSize
    measured: tuple["Measured", ...]
    """The strategies that were measured beside it."""
    rounds: int
    run: str
    cores: int = 0
    """That the ranks of a node share (`points.cores_of`)."""

    @property
    def alone_s(self) -> float:
        return self.backward_s + self.rest_s

    def sharing(self, world: WorldSize) -> float:
        """How many times as long as here computing takes there: ranks beyond the cores take turns."""
        if not self.cores:
            return 1.0
        there, here = (max(1.0, w.ranks_per_node / self.cores) for w in (world, self.world))
        return there / here


def workload_of(runs: Sequence[Run], model: str | None) -> Workload | Refusal | None:
    """The last training run's (of `model`), else the last watched job's; None where none was given and
    none asked for."""
    helps = f"wirespeed train --model {model or 'small'} --strategy flat,overlap,bucketed,ddp"
    found = [(run, one) for run in runs for one in run.training if _is_yardstick(one, model)]
    if not found:
        trained = sorted({one.model for run in runs for one in run.training})
        jobs = [run for run in runs if run.watched is not None]
        if jobs and model is None:
            return _of_job(jobs[-1])
        if not trained and model is None:
            return None
        why = f"training of {', '.join(trained)} only" if trained else "no training run"
        return Refusal(f"steps of {model or 'any model'}", f"{why} with its step alone", helps)
    run, alone = found[-1]
    size = _size(alone.model, run.config)
    if isinstance(size, Refusal):
        return size
    backward = alone.parts["backward"] / max(alone.micro_batches, 1)
    mates = [one for one in run.training if one.study == "compare" and one.model == alone.model]
    return Workload(
        model=alone.model,
        backward_s=min(backward, alone.step.mean),
        rest_s=max(alone.step.mean - backward, 0.0),
        gradients=gradients_of(size),
        uncertainty=(alone.step.high - alone.step.low) / (2 * 1.96 * alone.step.mean),
        world=WorldSize(max(alone.nodes, 1), max(alone.ranks // max(alone.nodes, 1), 1)),
        measured=tuple(
            Measured(one.strategy, one.bucket_mb, one.step.mean)
            for one in mates
            if one.strategy != "none"
        ),
        rounds=alone.rounds,
        run=run.id,
        cores=cores_of(run),
    )


_DDP_MB = 25.0
"""torch's default `bucket_cap_mb`."""
_TRAVELS = 0.1
"""Of the gradients: what a job's all_reduces may differ from them."""


def _of_job(run: Run) -> Workload | Refusal:
    """Of a user's own job that was watched, and sends its gradients by all_reduce."""
    job, what = run.watched, f"steps of the job of run {run.id}"
    helps = "wirespeed launch --watch of a job by DDP, for some hundred steps"
    if job is None or not (job.gradients and job.exposed_known and job.parts_ms.get("backward")):
        why = "its gradients, backward or waits were not seen"
        return Refusal(what, why, helps)
    whole = sum(job.gradients)
    sent = [one for one in job.traffic if one.op == "all_reduce" and one.bytes_per_step > 4096]
    told = sum(one.bytes_per_step for one in sent)
    if abs(told - whole) > _TRAVELS * whole:
        why = f"its gradients are {whole / 1e6:.4g} MB, its all_reduces {told / 1e6:.4g} MB a step"
        return Refusal(what, why, helps)
    nodes = len({one for one in job.hosts if one}) or 1
    backward, alone = job.parts_ms["backward"] / 1e3, job.step * (1 - job.exposed)
    calls = len(messages_of("ddp", job.gradients, _DDP_MB))
    as_is = round(sum(one.calls for one in sent)) == calls
    return Workload(
        model=f"the job of run {run.id}",
        backward_s=min(backward, alone),
        rest_s=max(alone - backward, 0.0),
        gradients=job.gradients,
        uncertainty=(job.step_high - job.step_low) / (2 * 1.96 * job.step),
        world=WorldSize(nodes, max(job.ranks // nodes, 1)),
        measured=(Measured("ddp", _DDP_MB, job.step),) if as_is else (),
        rounds=len(job.windows),
        run=run.id,
        cores=cores_of(run),
    )


def _is_yardstick(one: Training, model: str | None) -> bool:
    known = one.step.mean > 0 and one.parts.get("backward", 0) > 0
    wanted = model is None or one.model == model
    return known and wanted and one.strategy == "none" and one.study == "compare"


def _size(model: str, config: dict[str, Any]) -> Size | Refusal:
    """Its size by formula; a Refusal for a user's own model, whose size only torch knows."""
    if model not in SIZES:
        why = "only the models of `wirespeed train --list` have a size by formula"
        return Refusal(f"steps of {model}", why, "wirespeed train --list")
    size = SIZES[model]
    changes = {name: config[name] for name in _OPTIONS if config.get(name) is not None}
    if not changes or not isinstance(size, TransformerSize):
        return size
    try:
        return replace(size, **changes)
    except (TypeError, UsageError) as error:
        return Refusal(f"steps of {model}", f"its run was configured in a strange way: {error}", "")


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
        missed.setdefault(one.strategy, []).append(one.step_s - float(np.median(told)))
    excess = {name: float(np.mean(values)) for name, values in missed.items()}
    excess[""] = float(np.mean(list(excess.values())))
    worst = max(mates, key=lambda one: abs(excess[one.strategy]) / one.step_s)
    share = excess[worst.strategy] / worst.step_s
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
