"""All that can be said of the asked worlds, as one record; what cannot is refused with its reason."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
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
from wirespeed.predict.replays import replayed_steps
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
    answer = _Answer(question, _worlds(question, series), line_rate(runs))
    answer.refusals += _not_measured(series, question)
    for op, one in series.items():
        if op in known_ops() and (not question.ops or op in question.ops):
            progress(f"fitting {op}: {len(one.points)} measurements")
            answer.fit(one)
    for forecast in answer.forecasts.values():
        answer.tell_collective(forecast)
    answer.tell_gains()
    answer.tell_steps(runs)
    replays, refused = replayed_steps(runs, answer.forecasts, answer.worlds)
    return Prediction(
        sources=sources,
        models=tuple(_model(one) for one in answer.forecasts.values()),
        collectives=tuple(answer.collectives),
        steps=tuple(answer.steps),
        best=tuple(answer.best),
        stretches=answer.stretches,
        gains=tuple(answer.gains),
        replays=tuple(replays),
        refusals=tuple(dict.fromkeys((*answer.refusals, *refused))),
        notes=(*notes, *answer.notes),
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


def _worlds(question: Question, series: dict[str, Series]) -> list[WorldSize]:
    if question.ranks:
        return [WorldSize(1, ranks) for ranks in sorted(set(question.ranks))]
    measured = [world for one in series.values() for world in one.worlds]
    largest = max(measured, key=lambda one: (one.nodes, one.ranks), default=WorldSize(1, 1))
    each = question.ranks_per_node or largest.ranks_per_node
    return [WorldSize(nodes, each) for nodes in sorted(set(question.nodes)) if nodes * each > 1]


class _Answer:
    """What is told so far, of the worlds that were asked for."""

    def __init__(self, question: Question, worlds: list[WorldSize], rate: float | None) -> None:
        """rate: of the slowest node's links, in bytes a second, where it is known."""
        self.question, self.worlds, self.rate = question, worlds, rate
        self.forecasts: dict[str, Forecast] = {}
        self.collectives: list[CollectiveTime] = []
        self.steps: list[StepTime] = []
        self.best: list[BestStep] = []
        self.stretches: tuple[Stretch, ...] = ()
        self.gains: list[Gain] = []
        self.refusals: list[Refusal] = []
        self.notes: tuple[str, ...] = ()

    def _refused(self, refusal: Refusal | None) -> bool:
        self.refusals += [refusal] if refusal else []
        return refusal is not None

    def fit(self, series: Series) -> None:
        if self._refused(refuse_series(series)):
            return
        forecast = fit(series)
        if not self._refused(refuse_fit(forecast, series)) and forecast is not None:
            self.forecasts[series.op] = forecast

    def tell_collective(self, forecast: Forecast) -> None:
        """Where the interval says something; refusals of the others, one a world."""
        series = forecast.series
        places = [
            (world, size)
            for world in self.worlds
            if not self._refused(refuse_world(series, world))
            for size in _sizes(series, self.question)
            if not self._refused(refuse_size(series, size))
        ]
        draws = forecast.draws(places) if places else np.empty((0, 0))
        vague: dict[WorldSize, list[int]] = {}
        for k, (world, size) in enumerate(places):
            if _vague(draws[:, k]):
                vague.setdefault(world, []).append(size)
            else:
                self.collectives.append(_time(forecast, world, size, draws[:, k]))
        self.refusals += [refuse_spread(series, world, sizes) for world, sizes in vague.items()]

    def tell_gains(self) -> None:
        """Of every collective at its largest size shown."""
        for improvement, (op, forecast) in product(
            self.question.improvements, self.forecasts.items()
        ):
            found = factors_of(improvement, forecast, self.rate)
            if isinstance(found, Refusal):
                self.refusals.append(found)
                continue
            factors, assumes = found
            size = max(_sizes(forecast.series, self.question))
            for world in self.worlds:
                away = refuse_world(forecast.series, world) or refuse_size(forecast.series, size)
                if away is not None or world.nodes < 2:
                    continue
                before = forecast.draws([(world, size)])[:, 0]
                after = forecast.draws([(world, size)], factors)[:, 0]
                if not (_vague(before) or _vague(after)):
                    what = f"{op} {size}"
                    self.gains.append(_gain(improvement, what, world, before, after, assumes))

    def tell_steps(self, runs: Sequence[Run]) -> None:
        """Nothing where no training run was given and no model asked for."""
        workload = workload_of(runs, self.question.model)
        if workload is None:
            return
        if isinstance(workload, Refusal):
            self.refusals.append(workload)
            return
        forecast = self.forecasts.get("all_reduce")
        if forecast is None:
            why = "all_reduce, which its gradients travel by, is not predicted"
            helps = "wirespeed bench all_reduce -b 1K -e 64M -f 4"
            self.refusals.append(Refusal(f"steps of {workload.model}", why, helps))
            return
        known = refuse_world(forecast.series, workload.world) is None and workload.world.ranks > 1
        made, note = stepper(workload, forecast, known_world=known)
        if isinstance(made, Refusal):
            self.refusals.append(made)
            return
        choices = choices_of(workload, self.question.strategies, self.question.buckets)
        self.refusals += _unknown(self.question.strategies)
        if choices:
            self.notes = (_note(workload), note)
            self._tell_worlds(_Asked(made, choices, len(forecast.series.points) + workload.rounds))

    def _tell_worlds(self, asked: "_Asked") -> None:
        """Steps of every strategy on every world asked: the best, where it stops scaling, what helps."""
        for world in self.worlds:
            good = asked.predictable(world)
            if not good:
                continue
            alone, draws = asked.stepper.draws(world, good)
            told = [k for k in range(len(good)) if not _vague(draws[:, k])]
            if not told:
                self.refusals.append(_too_vague(asked, world))
                continue
            good, draws = [good[k] for k in told], draws[:, told]
            rows = _rows(asked, world, good, alone, draws)
            self.steps += rows
            self.best.append(_best(rows))
            self.gains += [
                gain
                for improvement in self.question.improvements
                if (gain := _step_gain(asked, self.best[-1], improvement, self.rate))
            ]
        self.stretches = _stretches(asked, self.worlds, self.best)


@dataclass(frozen=True, slots=True)
class _Asked:
    stepper: Stepper
    choices: list[Choice]
    samples: int

    def predictable(self, world: WorldSize) -> list[Choice]:
        """Choices whose messages the forecast of this world covers."""
        series = self.stepper.forecast.series
        if world.ranks < 2 or refuse_world(series, world) is not None:
            return []
        known = {size for one in self.choices for size in self.stepper.messages(one)}
        least = series.sizes[0]
        far = {size for size in known if refuse_size(series, max(size, least)) is not None}
        return [one for one in self.choices if not far.intersection(self.stepper.messages(one))]


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


def _gain(
    improvement: Improvement,
    what: str,
    world: WorldSize,
    before: Array,
    after: Array,
    assumes: str,
) -> Gain:
    return Gain(
        name=improvement.text,
        what=what,
        world=world,
        before=estimate(before),
        after=estimate(after),
        ratio=estimate(before / after),
        assumes=assumes,
    )


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


_SETTLED, _RIVAL = 0.95, 0.05
_BOUNDS = (0.8, 0.5)


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


def _note(workload: Workload) -> str:
    gradients = workload.gradients
    return (
        f"{workload.model}: {sum(gradients) / 1e6:.4g} MB of gradients in {len(gradients)} tensors, "
        f"backward {workload.backward_s * 1e3:.4g} ms of a step of "
        f"{workload.alone_s * 1e3:.4g} ms alone, measured in run {workload.run}; the batch of a rank "
        "stays the same on every world"
    )


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


def _best(rows: Sequence[StepTime]) -> BestStep:
    """The strategy that is quickest most often, over its buckets; then its quickest bucket."""
    shares: dict[str, float] = defaultdict(float)
    for one in rows:
        shares[one.strategy] += one.first
    ranked = sorted(shares, key=lambda name: -shares[name])
    own = [one for one in rows if one.strategy == ranked[0]]
    chosen = min(own, key=lambda one: one.step.value)
    return BestStep(
        world=chosen.world,
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
        own = [one for one in asked.predictable(world) if one.strategy == strategy]
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


def _step_gain(
    asked: _Asked, best: BestStep, improvement: Improvement, rate: float | None
) -> Gain | None:
    found = factors_of(improvement, asked.stepper.forecast, rate)
    if isinstance(found, Refusal):
        return None
    factors, assumes = found
    choice = [Choice(best.strategy, best.bucket_mb)]
    before = asked.stepper.draws(best.world, choice)[1][:, 0]
    after = asked.stepper.draws(best.world, choice, factors)[1][:, 0]
    bucket = f" {best.bucket_mb:g} MB" if best.bucket_mb is not None else ""
    what = f"step, {best.strategy}{bucket}"
    return _gain(improvement, what, best.world, before, after, assumes)
