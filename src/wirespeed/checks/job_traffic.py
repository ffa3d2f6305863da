"""What a job's traffic says, played again (`bench --replay`) or cut down to this world (`--shape`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.checks.node_health import visible_cpus
from wirespeed.checks.registry import tell
from wirespeed.model.bench_records import MedianTime, Replay, call_key
from wirespeed.model.records import Finding, Measurement, World
from wirespeed.model.training_records import LoadFigures, Ratio
from wirespeed.model.units import format_duration
from wirespeed.statistics import has_interval, lacks_samples

CODE = 0.5
"""Where the collectives alone explain less than this share, it is the code."""
FABRIC = 0.8
"""Where they explain more than this, it is the fabric."""

_BY_STEP = {"code": "code by step", "both": "both by step", "fabric": "fabric by step"}


@dataclass(frozen=True, slots=True)
class Sum:
    """Seconds of a step, with the ends that the sums of the calls' intervals give."""

    median: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """`4.0 ms [3.9–4.2]`, the ends in the same unit."""
        ends = [format_duration(one) for one in (self.low, self.high)]
        return f"{format_duration(self.median)} [{ends[0]} to {ends[1]}]"


def replay_findings(replay: Replay, measurements: Sequence[Measurement]) -> list[Finding]:
    """One: the fabric, or the code around the collectives; or what is missing to tell."""
    alone_of = {call_key(m): m for m in measurements}
    pairs = [(call, alone_of.get(call_key(call))) for call in replay.calls]
    if any(m and m.groups == "all" and m.ranks != replay.job_ranks for _, m in pairs):
        return [tell("REPLAY-001", "another size", ranks=replay.job_ranks)]
    timed = [(one, one.in_job, m.time) for one, m in pairs if one.in_job and m]
    least = min(
        (min(one.in_job.samples, m.samples) for one, m in pairs if one.in_job and m), default=0
    )
    if len(timed) < len(pairs):
        return [_by_step(replay)]
    job = _sum([(one.calls, time.median, time.low, time.high) for one, time, _ in timed])
    alone = _sum([(one.calls, time.median, time.low, time.high) for one, _, time in timed])
    if job.median <= 0:
        return [_by_step(replay)]
    lasts = [one.calls * one.last for one, _ in pairs if one.last is not None]
    waiting = max(0.0, job.median - sum(lasts)) if len(lasts) == len(pairs) else None
    told = {"job": job.text, "alone": alone.text, "share": f"{alone.median / job.median:.0%}"}
    if lacks_samples(least):
        return [_few_samples(least, alone, job)]
    case = _verdict(alone, job)
    why = "" if waiting is None or case == "fabric" else _waiting(waiting)
    return [tell("REPLAY-001", case, why=why, **told)]


def _waiting(seconds: float) -> str:
    return (
        f"; of the job's time {format_duration(seconds)} is ranks waiting for one that comes later"
    )


def _by_step(replay: Replay) -> Finding:
    """Where the record does not tell how long calls took, the step bounds what they can cost."""
    if replay.job_step is None or replay.job_step.median <= 0:
        return tell("REPLAY-001", "nothing timed")
    alone, step = _whole(replay.unbroken), _whole(replay.job_step)
    least = min(replay.unbroken.samples, replay.job_step.samples)
    if lacks_samples(least):
        return _few_samples(least, alone, step)
    told = {"step": step.text, "alone": alone.text, "share": f"{alone.median / step.median:.0%}"}
    return tell("REPLAY-001", _BY_STEP[_verdict(alone, step)], **told)


def _few_samples(samples: int, alone: Sum, job: Sum) -> Finding:
    """Return the finding that the ends of neither are those of an interval."""
    times = {"alone": format_duration(alone.median), "job": format_duration(job.median)}
    return tell("REPLAY-001", "few samples", samples=samples, **times)


def _whole(time: MedianTime) -> Sum:
    return Sum(time.median, time.low, time.high)


def _sum(parts: Sequence[tuple[int, float, float, float]]) -> Sum:
    return Sum(*(sum(part[0] * part[at] for part in parts) for at in (1, 2, 3)))


def _verdict(alone: Sum, job: Sum) -> str:
    if alone.high < CODE * job.low:
        return "code"
    return "fabric" if alone.low > FABRIC * job.high else "both"


SLOWER = 0.95
"""Where all of it at once is surely slower by more than this, doing it in turn is better."""


def shape_findings(load: Sequence[LoadFigures], world: World) -> list[Finding]:
    """One: of each comparison what it brings to do all at once.

    A loss is no warning where ranks share the cores that they send by.
    """
    first_of = {one.gain: one for one in reversed(load) if one.gain}
    gains = [(one, gain) for gain, one in reversed(first_of.items())]
    if not gains:
        return [tell("SHAPE-001", "nothing timed")]
    said = [f"{one.name} beside {one.beside}: {_said(gain, one.rounds)}" for one, gain in gains]
    slower = [
        text
        for text, (load, gain) in zip(said, gains, strict=True)
        if has_interval(load.rounds) and gain.high < SLOWER
    ]
    if slower and not _crowded(world):
        told = {"saw": "; ".join(slower), "number": len(slower), "of": len(gains)}
        return [tell("SHAPE-001", "slower", **told)]
    ends = dict.fromkeys(f"{pick(gain.value for _, gain in gains):.2f}" for pick in (min, max))
    case = "shared cores" if slower else "gains"
    return [tell("SHAPE-001", case, times=" to ".join(ends), evidence=said)]


def _crowded(world: World) -> bool:
    """Whether ranks that send by their own cores have too few of them."""
    short = [node for node in world.nodes if (visible_cpus(node) or math.inf) < len(node.ranks)]
    return world.backend == "gloo" and bool(short)


def _said(gain: Ratio, rounds: int) -> str:
    if not has_interval(rounds):
        return f"{gain.value:.2f}× ({rounds} rounds, no interval)"
    return f"{gain.value:.2f}× ({gain.low:.2f} to {gain.high:.2f})"
