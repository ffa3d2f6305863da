"""A job's step of collectives, as `bench --replay` measured it, on worlds that nobody has measured.

Every call's time grows as the forecast of its operation says; what the sequence took here, with calls
that overlap and slow each other, grows with their sum. What of it the job's own work hides there is not
known: between as much as here, and the same share of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.model.bench_records import MedianTime, Replay, call_key
from wirespeed.model.derived_records import Refusal, ReplayTime, WorldSize
from wirespeed.model.records import Run
from wirespeed.predict.forecast import (
    DRAWS,
    FARTHEST_SIZE,
    MOST_SPREAD,
    Forecast,
    estimate,
    refuse_size,
    refuse_world,
)
from wirespeed.statistics import reach_of_ends

Array = NDArray[np.float64]
_SEED = 41


@dataclass(frozen=True, slots=True)
class _Kind:
    """Calls that are alike."""

    op: str
    size_bytes: int
    here_s: float
    """What all of them take in a step, one by one."""
    grows: bool
    """False: its groups lie within a node, and stay as they are."""


@dataclass(frozen=True, slots=True)
class _Replayed:
    run: str
    replay: Replay
    world: WorldSize
    kinds: tuple[_Kind, ...]

    @property
    def what(self) -> str:
        return f"the replayed step of run {self.run}"


def replayed_steps(
    runs: Sequence[Run], forecasts: Mapping[str, Forecast], worlds: Sequence[WorldSize]
) -> tuple[list[ReplayTime], list[Refusal]]:
    """Of the last replay among the runs; nothing where there is none."""
    found = [(run, run.replay) for run in runs if run.replay is not None]
    if not found:
        return [], []
    one = _read(*found[-1])
    if isinstance(one, Refusal):
        return [], [one]
    answers = [_answer(one, forecasts, world) for world in worlds]
    told = [answer for answer in answers if isinstance(answer, ReplayTime)]
    return told, [answer for answer in answers if isinstance(answer, Refusal)]


def _read(run: Run, replay: Replay) -> _Replayed | Refusal:
    measured = {call_key(m): m for m in run.measurements}
    alone = [measured.get(call_key(one)) for one in replay.calls]
    each = {len(node.ranks) for node in run.world.nodes}
    kinds = tuple(
        _Kind(m.op, m.size_bytes, one.calls * m.time.median, m.groups == "all")
        for m, one in zip(alone, replay.calls, strict=True)
        if m is not None and (m.groups == "all" or _within_nodes(m.groups, max(each, default=1)))
    )
    if len(kinds) < len(alone) or len(each) != 1:
        why = (
            "its nodes have not all the same number of ranks"
            if len(each) != 1
            else "some of its calls were not timed, or run in groups over several nodes: how these "
            "grow with nodes is for the job to say"
        )
        return Refusal(f"the replayed step of run {run.id}", why, "wirespeed bench --replay there")
    return _Replayed(run.id, replay, WorldSize(len(run.world.nodes), each.pop()), kinds)


def _within_nodes(groups: str, ranks_per_node: int) -> bool:
    size = {"nodes": "1", "pairs": "2"}.get(groups, groups.removeprefix("of-"))
    return size.isdecimal() and ranks_per_node % int(size) == 0


def _answer(
    one: _Replayed, forecasts: Mapping[str, Forecast], world: WorldSize
) -> ReplayTime | Refusal:
    growth = np.zeros(DRAWS)
    whole = sum(kind.here_s for kind in one.kinds)
    for kind in one.kinds:
        grown = _grown(one, kind, forecasts.get(kind.op), world) if kind.grows else 1.0
        if isinstance(grown, Refusal):
            return grown
        growth += kind.here_s / whole * grown
    rng, replay = np.random.default_rng(_SEED), one.replay
    here = _drawn(replay.unbroken, rng)
    there = here * growth
    shown = np.clip(_drawn(replay.paced, rng) - replay.own, 0.0, here)
    as_much, the_same_share = np.maximum(there - (here - shown), 0.0), there * shown / here
    step = replay.own + as_much + rng.uniform(0, 1, DRAWS) * (the_same_share - as_much)
    calls, paced = estimate(there), estimate(step)
    if calls.high > MOST_SPREAD * calls.low:
        why = f"its interval would be wider than a factor of {MOST_SPREAD:g}"
        return Refusal(f"{one.what} on {world.nodes} nodes", why, "wirespeed bench on more nodes")
    return ReplayTime(
        run=one.run, world=world, calls=calls, step=paced, here=replay.unbroken.median
    )


def _grown(
    one: _Replayed, kind: _Kind, forecast: Forecast | None, world: WorldSize
) -> Array | Refusal:
    """How many times as long as here its calls take there, by draw."""
    if forecast is None:
        helps = f"wirespeed bench {kind.op} -b 1K -e 64M -f 4"
        return Refusal(one.what, f"{kind.op}, which it calls, is not predicted", helps)
    series = forecast.series
    # Far below what was measured all of a message is latency: none is refused for being small.
    size = max(kind.size_bytes, -(-series.sizes[0] // FARTHEST_SIZE))
    refusals = (
        refuse_world(series, world),
        refuse_world(series, one.world),
        refuse_size(series, size),
    )
    for refusal in refusals:
        if refusal is not None:
            return Refusal(f"{one.what}: {refusal.what}", refusal.because, refusal.helps)
    draws = forecast.draws([(one.world, size), (world, size)])
    grown: Array = draws[:, 1] / draws[:, 0]
    return grown


def _drawn(time: MedianTime, rng: np.random.Generator) -> Array:
    """By its interval, or by the range of few samples."""
    ends = max(time.high, time.median) / max(min(time.low, time.median), 1e-12)
    spread = np.log(ends) / (2 * reach_of_ends(time.samples))
    drawn: Array = time.median * np.exp(spread * rng.standard_normal(DRAWS))
    return drawn
