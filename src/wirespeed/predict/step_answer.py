"""Steps of every strategy on every world asked: the best, where it stops scaling, what helps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.predict.bounds import MOST_SPREAD, refuse_size, refuse_spread, refuse_world
from wirespeed.predict.forecast import Forecast, estimate
from wirespeed.predict.improve import Improvement, factors_of, line_rate
from wirespeed.predict.steps import KNOWN, Choice, Stepper, choices_of, stepper
from wirespeed.predict.workload import Workload, workload_of
from wirespeed.records import Run
from wirespeed.records_prediction import (
    BestStep,
    Estimate,
    Gain,
    Refusal,
    StepTime,
    Stretch,
    WorldSize,
)

__all__ = ["StepAnswer", "answer_steps"]

Array = NDArray[np.float64]
_SETTLED, _RIVAL = 0.95, 0.05
_BOUNDS = (0.8, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswer:
    steps: tuple[StepTime, ...] = ()
    best: tuple[BestStep, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    gains: tuple[Gain, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    stepper: Stepper
    choices: tuple[Choice, ...]
    samples: int


def answer_steps(
    runs: Sequence[Run],
    forecast: Forecast | None,
    worlds: Sequence[WorldSize],
    *,
    model: str | None,
    strategies: Sequence[str],
    buckets: Sequence[float],
    improvements: Sequence[Improvement],
) -> StepAnswer:
    """Nothing where no training run was given and no model asked for."""
    workload = workload_of(runs, model)
    if workload is None:
        return StepAnswer()
    if isinstance(workload, Refusal):
        return StepAnswer(refusals=(workload,))
    if forecast is None:
        why = "all_reduce, which its gradients travel by, is not predicted"
        helps = "wirespeed bench all_reduce -b 1K -e 64M -f 4"
        return StepAnswer(refusals=(Refusal(f"steps of {workload.model}", why, helps),))
    known = refuse_world(forecast.series, workload.world) is None and workload.world.ranks > 1
    made, note = stepper(workload, forecast, known_world=known)
    if isinstance(made, Refusal):
        return StepAnswer(refusals=(made,))
    choices = tuple(choices_of(workload, strategies, buckets))
    refusals = _unknown(strategies)
    if not choices:
        return StepAnswer(refusals=tuple(refusals))
    asked = _Asked(made, choices, len(forecast.series.points) + workload.rounds)
    return _answered(
        asked, worlds, improvements, line_rate(runs), [*_notes(workload), note], refusals
    )


def _answered(
    asked: _Asked,
    worlds: Sequence[WorldSize],
    improvements: Sequence[Improvement],
    rate: float | None,
    notes: list[str],
    refusals: list[Refusal],
) -> StepAnswer:
    steps: list[StepTime] = []
    best: list[BestStep] = []
    gains: list[Gain] = []
    for world in worlds:
        good = _predictable(asked, world)
        if not good:
            continue
        alone, draws = asked.stepper.draws(world, good)
        told = [k for k in range(len(good)) if not _vague(draws[:, k])]
        if not told:
            refusals.append(_too_vague(asked, world))
            continue
        good, draws = [good[k] for k in told], draws[:, told]
        steps += _rows(asked, world, good, alone, draws)
        best.append(_best(world, good, draws))
        for improvement in improvements:
            gain = _gain(asked, world, best[-1], improvement, rate)
            gains += [gain] if isinstance(gain, Gain) else []
    return StepAnswer(
        steps=tuple(steps),
        best=tuple(best),
        stretches=_stretches(asked, worlds, best),
        gains=tuple(gains),
        refusals=tuple(refusals),
        notes=tuple(notes),
    )


def _unknown(strategies: Sequence[str]) -> list[Refusal]:
    return [
        Refusal(
            what=f"steps with {name}",
            because="the step model does not know what it sends when",
            helps=f"one of {', '.join(KNOWN)}; wirespeed train --strategy {name} on the cluster itself",
        )
        for name in strategies
        if name not in KNOWN
    ]


def _notes(workload: Workload) -> list[str]:
    gradients = workload.gradients
    return [
        f"{workload.model}: {sum(gradients) / 1e6:.4g} MB of gradients in {len(gradients)} tensors, "
        f"backward {workload.backward_s * 1e3:.4g} ms of a step of "
        f"{workload.alone_s * 1e3:.4g} ms alone, measured in run {workload.run}; the batch of a rank "
        "stays the same on every world"
    ]


def _predictable(asked: _Asked, world: WorldSize) -> list[Choice]:
    """Choices whose messages the forecast of this world covers."""
    series = asked.stepper.forecast.series
    if world.ranks < 2 or refuse_world(series, world) is not None:
        return []
    known = {size for one in asked.choices for size in asked.stepper.messages(one)}
    least = series.sizes[0]
    far = {size for size in known if refuse_size(series, max(size, least)) is not None}
    return [one for one in asked.choices if not far.intersection(asked.stepper.messages(one))]


def _vague(draws: Array) -> bool:
    told = estimate(draws)
    return told.high > MOST_SPREAD * told.low


def _too_vague(asked: _Asked, world: WorldSize) -> Refusal:
    series = asked.stepper.forecast.series
    largest = {max(asked.stepper.messages(one)) for one in asked.choices}
    refusal = refuse_spread(series, world, sorted(largest))
    return Refusal(f"steps on {world.nodes} nodes: {refusal.what}", refusal.because, refusal.helps)


def _rows(
    asked: _Asked, world: WorldSize, choices: Sequence[Choice], alone: Array, draws: Array
) -> list[StepTime]:
    quickest = np.argmin(draws, axis=1)
    return [
        StepTime(
            world=world,
            strategy=choice.strategy,
            bucket_mb=choice.bucket_mb,
            step=estimate(draws[:, k]),
            efficiency=estimate(alone / draws[:, k]),
            first=float(np.mean(quickest == k)),
            samples=asked.samples,
        )
        for k, choice in enumerate(choices)
    ]


def _best(world: WorldSize, choices: Sequence[Choice], draws: Array) -> BestStep:
    """The strategy that is quickest most often, over its buckets; then its quickest bucket."""
    quickest = np.argmin(draws, axis=1)
    shares: dict[str, float] = {}
    for k, choice in enumerate(choices):
        shares[choice.strategy] = shares.get(choice.strategy, 0.0) + float(np.mean(quickest == k))
    ranked = sorted(shares, key=lambda name: -shares[name])
    own = [k for k, choice in enumerate(choices) if choice.strategy == ranked[0]]
    chosen = choices[min(own, key=lambda k: float(np.median(draws[:, k])))]
    return BestStep(
        world=world,
        strategy=chosen.strategy,
        bucket_mb=chosen.bucket_mb,
        settled=shares[ranked[0]] >= _SETTLED,
        rivals=tuple(name for name in ranked[1:] if shares[name] >= _RIVAL),
    )


def _stretches(
    asked: _Asked, worlds: Sequence[WorldSize], best: Sequence[BestStep]
) -> tuple[Stretch, ...]:
    """Of the strategy that is best on the largest world, with its best bucket on each."""
    if not best or best[-1].world.nodes < 2:
        return ()
    strategy, each = best[-1].strategy, best[-1].world.ranks_per_node
    counts = {one.nodes for one in worlds} | {
        2**k for k in range(1, best[-1].world.nodes.bit_length())
    }
    curve: list[tuple[int, Estimate]] = []
    for nodes in sorted(n for n in counts if n > 1):
        world = WorldSize(nodes, each)
        own = [one for one in _predictable(asked, world) if one.strategy == strategy]
        if own:
            alone, draws = asked.stepper.draws(world, own)
            column = int(np.argmin(np.median(draws, axis=0)))
            curve.append((nodes, estimate(alone / draws[:, column])))
    looked = curve[-1][0] if curve else 0
    return tuple(
        Stretch(
            strategy=strategy,
            bucket_mb=best[-1].bucket_mb,
            bound=bound,
            nodes=next((n for n, one in curve if one.value < bound), None),
            low=next((n for n, one in curve if one.low < bound), None),
            high=next((n for n, one in curve if one.high < bound), None),
            looked=looked,
        )
        for bound in _BOUNDS
    )


def _gain(
    asked: _Asked, world: WorldSize, best: BestStep, improvement: Improvement, rate: float | None
) -> Gain | Refusal:
    found = factors_of(improvement, asked.stepper.forecast, rate)
    if isinstance(found, Refusal):
        return found
    factors, assumes = found
    choice = [Choice(best.strategy, best.bucket_mb)]
    before = asked.stepper.draws(world, choice)[1][:, 0]
    after = asked.stepper.draws(world, choice, factors)[1][:, 0]
    bucket = f" {best.bucket_mb:g} MB" if best.bucket_mb is not None else ""
    return Gain(
        name=improvement.text,
        what=f"step, {best.strategy}{bucket}",
        world=world,
        before=estimate(before),
        after=estimate(after),
        ratio=estimate(before / after),
        assumes=assumes,
    )
