"""All that can be said of the asked worlds, as one record; what cannot is refused with its reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.derived_records import (
    BestStep,
    CollectiveTime,
    Estimate,
    FittedModel,
    Gain,
    Prediction,
    Refusal,
    StepTime,
    Stretch,
    WorldSize,
)
from wirespeed.model.records import Run
from wirespeed.predict.forecast import (
    MOST_SPREAD,
    Forecast,
    Improvement,
    estimate,
    factors_of,
    fit,
    line_rate,
    refuse_fit,
    refuse_series,
    refuse_size,
    refuse_spread,
    refuse_world,
)
from wirespeed.predict.points import Series, collect, known_ops
from wirespeed.predict.steps import (
    KNOWN,
    Choice,
    Stepper,
    Workload,
    choices_of,
    stepper,
    workload_of,
)

Array = NDArray[np.float64]
_SHOWN = 3
"""Sizes of each collective, unless they are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked."""

    nodes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    """Worlds on one node, instead of nodes."""
    ranks_per_node: int | None = None
    """None: as in the largest run over several nodes."""
    ops: tuple[str, ...] = ()
    """Empty: all that were measured."""
    sizes: tuple[int, ...] = ()
    """Bytes; empty: the smallest, the middle and the largest measured."""
    model: str | None = None
    strategies: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Megabytes (10^6 bytes)."""
    improvements: tuple[Improvement, ...] = ()


def predict(
    runs: Sequence[Run], question: Question, progress: Callable[[str], None] = lambda _: None
) -> Prediction:
    """Fit what was measured, and answer; nothing is measured here."""
    series, sources, notes = collect(runs, question.ranks_per_node)
    refusals = list(_not_measured(series, question))
    forecasts: dict[str, Forecast] = {}
    for op, one in series.items():
        if op not in known_ops() or (question.ops and op not in question.ops):
            continue
        progress(f"fitting {op}: {len(one.points)} measurements")
        refusal, forecast = _fitted(one)
        refusals += [refusal] if refusal else []
        if forecast is not None:
            forecasts[op] = forecast
    worlds = _worlds(question, series)
    collectives, refused = _collectives(forecasts, worlds, question)
    gains, without = _gains(forecasts, worlds, question, line_rate(runs))
    steps = answer_steps(
        runs,
        forecasts.get("all_reduce"),
        worlds,
        model=question.model,
        strategies=question.strategies,
        buckets=question.buckets,
        improvements=question.improvements,
    )
    return Prediction(
        sources=sources,
        models=tuple(_model(one) for one in forecasts.values()),
        collectives=tuple(collectives),
        steps=steps.steps,
        best=steps.best,
        stretches=steps.stretches,
        gains=(*gains, *steps.gains),
        refusals=tuple(dict.fromkeys([*refusals, *refused, *without, *steps.refusals])),
        notes=(*notes, *steps.notes),
    )


def _not_measured(series: dict[str, Series], question: Question) -> list[Refusal]:
    wanted = question.ops or (() if series else ("any collective",))
    return [
        Refusal(
            what=op,
            because="no run that was given measured it over at least 2 ranks",
            helps=f"wirespeed bench {op if op in CATALOGUE else 'all_reduce'} -b 1K -e 64M -f 4",
        )
        for op in wanted
        if op not in series or op not in known_ops()
    ]


def _fitted(series: Series) -> tuple[Refusal | None, Forecast | None]:
    if refusal := refuse_series(series):
        return refusal, None
    forecast = fit(series)
    refusal = refuse_fit(forecast, series)
    return refusal, None if refusal else forecast


def _worlds(question: Question, series: dict[str, Series]) -> list[WorldSize]:
    if question.ranks:
        return [WorldSize(1, ranks) for ranks in sorted(set(question.ranks))]
    measured = [world for one in series.values() for world in one.worlds]
    largest = max(measured, key=lambda one: (one.nodes, one.ranks), default=WorldSize(1, 1))
    each = question.ranks_per_node or largest.ranks_per_node
    return [WorldSize(nodes, each) for nodes in sorted(set(question.nodes)) if nodes * each > 1]


def _collectives(
    forecasts: dict[str, Forecast], worlds: Sequence[WorldSize], question: Question
) -> tuple[list[CollectiveTime], list[Refusal]]:
    told: list[CollectiveTime] = []
    refused: list[Refusal] = []
    for forecast in forecasts.values():
        good: list[tuple[WorldSize, int]] = []
        for world in worlds:
            refusal = refuse_world(forecast.series, world)
            refused += [refusal] if refusal else []
            for size in _sizes(forecast.series, question) if refusal is None else ():
                too_far = refuse_size(forecast.series, size)
                refused += [too_far] if too_far else []
                good += [] if too_far else [(world, size)]
        found, vague = _told(forecast, good)
        told += found
        refused += vague
    return told, refused


def _told(
    forecast: Forecast, places: Sequence[tuple[WorldSize, int]]
) -> tuple[list[CollectiveTime], list[Refusal]]:
    """Those whose interval says something, and refusals of the others, one a world."""
    draws = forecast.draws(places) if places else np.empty((0, 0))
    found = [_time(forecast, world, size, draws[:, k]) for k, (world, size) in enumerate(places)]
    vague = [one for one in found if one.time.high > MOST_SPREAD * one.time.low]
    worlds = dict.fromkeys(one.world for one in vague)
    refused = [
        refuse_spread(forecast.series, world, [v.size_bytes for v in vague if v.world == world])
        for world in worlds
    ]
    return [one for one in found if one not in vague], refused


def _sizes(series: Series, question: Question) -> tuple[int, ...]:
    if question.sizes:
        return question.sizes
    classes = [one[-1] for one in series.classes]
    return tuple(dict.fromkeys((classes[0], classes[len(classes) // 2], classes[-1])))


def _time(forecast: Forecast, world: WorldSize, size: int, draws: Array) -> CollectiveTime:
    series = forecast.series
    same = [p.seconds for p in series.points if (p.world, p.size_bytes) == (world, size)]
    factor = CATALOGUE[series.op].bus_factor(world.ranks)
    return CollectiveTime(
        op=series.op,
        world=world,
        size_bytes=size,
        time=estimate(draws),
        busbw=estimate(size * factor / draws),
        measured=median(same) if same else None,
        points=len(series.points),
        beyond=_beyond(series, world, size),
    )


def _beyond(series: Series, world: WorldSize, size: int) -> str:
    most = max(one.ranks for one in series.worlds)
    parts = [f"{world.ranks / most:.3g} × the ranks"] if world.ranks > most else []
    parts += [f"{size / series.sizes[-1]:.3g} × the size"] if size > series.sizes[-1] else []
    return ", ".join(parts)


def _gains(
    forecasts: dict[str, Forecast],
    worlds: Sequence[WorldSize],
    question: Question,
    rate: float | None,
) -> tuple[list[Gain], list[Refusal]]:
    """Of every collective at its largest size shown."""
    gains: list[Gain] = []
    refused: list[Refusal] = []
    for improvement in question.improvements:
        for op, forecast in forecasts.items():
            found = factors_of(improvement, forecast, rate)
            if isinstance(found, Refusal):
                refused.append(found)
                continue
            factors, assumes = found
            for world in worlds:
                size = max(_sizes(forecast.series, question))
                away = refuse_world(forecast.series, world) or refuse_size(forecast.series, size)
                if away is not None or world.nodes < 2:
                    continue
                before = forecast.draws([(world, size)])[:, 0]
                after = forecast.draws([(world, size)], factors)[:, 0]
                if _vague(before) or _vague(after):
                    continue
                gains.append(
                    Gain(
                        name=improvement.text,
                        what=f"{op} {size}",
                        world=world,
                        before=estimate(before),
                        after=estimate(after),
                        ratio=estimate(before / after),
                        assumes=assumes,
                    )
                )
    return gains, refused


def _vague(draws: Array) -> bool:
    told = estimate(draws)
    return told.high > MOST_SPREAD * told.low


def _model(forecast: Forecast) -> FittedModel:
    series, first = forecast.series, forecast.members[0]
    theta = first.solved.theta.tolist()
    named = [
        f"{m.shape.name}{'' if m.shape.power == 1 else ', overlapping'}" for m in forecast.members
    ]
    return FittedModel(
        op=series.op,
        how=series.how,
        shape=named[0],
        weight=forecast.weights[0],
        others=tuple(named[1:]),
        terms={term.name: value for term, value in zip(first.shape.terms, theta, strict=True)},
        error=float(np.median(forecast.errors)),
        error_p90=float(np.quantile(forecast.errors, 0.9)),
        points=len(series.points),
        sizes=len(series.classes),
        worlds=series.worlds,
        smallest=series.sizes[0],
        largest=series.sizes[-1],
        iterations=sum(point.iterations for point in series.points),
    )


# Steps of every strategy on every world asked: the best, where it stops scaling, what helps.

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
