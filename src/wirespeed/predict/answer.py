"""All that can be said of the asked worlds, as one record; what cannot is refused with its reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.predict.bounds import (
    MOST_SPREAD,
    refuse_fit,
    refuse_series,
    refuse_size,
    refuse_spread,
    refuse_world,
)
from wirespeed.predict.forecast import Forecast, estimate, fit
from wirespeed.predict.improve import Improvement, factors_of, line_rate
from wirespeed.predict.points import Series, collect
from wirespeed.predict.shapes import known_ops
from wirespeed.predict.step_answer import answer_steps
from wirespeed.records import Run
from wirespeed.records_prediction import (
    CollectiveTime,
    FittedModel,
    Gain,
    Prediction,
    Refusal,
    WorldSize,
)

__all__ = ["Question", "predict"]

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
