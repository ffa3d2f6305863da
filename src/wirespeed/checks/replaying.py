"""From the replay of a job's collectives to one finding: the fabric, or the code around them?"""

from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.checks.registry import tell
from wirespeed.model.bench_records import MedianTime, Replay, call_key
from wirespeed.model.records import Finding, Measurement
from wirespeed.model.units import format_duration

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
    """One: which of the two it is, or what is missing to tell."""
    alone_of = {call_key(m): m for m in measurements}
    pairs = [(call, alone_of.get(call_key(call))) for call in replay.calls]
    if any(m and m.groups == "all" and m.ranks != replay.job_ranks for _, m in pairs):
        return [tell("REPLAY-001", "another size", ranks=replay.job_ranks)]
    timed = [(one, one.in_job, m.time) for one, m in pairs if one.in_job and m]
    if len(timed) < len(pairs):
        return [_by_step(replay)]
    job = _sum([(one.calls, time.median, time.low, time.high) for one, time, _ in timed])
    alone = _sum([(one.calls, time.median, time.low, time.high) for one, _, time in timed])
    if job.median <= 0:
        return [_by_step(replay)]
    lasts = [one.calls * one.last for one, _ in pairs if one.last is not None]
    waiting = max(0.0, job.median - sum(lasts)) if len(lasts) == len(pairs) else None
    told = {"job": job.text, "alone": alone.text, "share": f"{alone.median / job.median:.0%}"}
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
    told = {"step": step.text, "alone": alone.text, "share": f"{alone.median / step.median:.0%}"}
    return tell("REPLAY-001", _BY_STEP[_verdict(alone, step)], **told)


def _whole(time: MedianTime) -> Sum:
    return Sum(time.median, time.low, time.high)


def _sum(parts: Sequence[tuple[int, float, float, float]]) -> Sum:
    return Sum(*(sum(part[0] * part[at] for part in parts) for at in (1, 2, 3)))


def _verdict(alone: Sum, job: Sum) -> str:
    if alone.high < CODE * job.low:
        return "code"
    return "fabric" if alone.low > FABRIC * job.high else "both"
