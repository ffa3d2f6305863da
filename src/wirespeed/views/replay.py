"""A replayed job: each kind of call in the job and alone, and the whole sequence."""

from wirespeed.model.bench_records import MedianTime, Replay, ReplayedCall, call_key
from wirespeed.model.records import Run
from wirespeed.model.units import format_duration, format_size
from wirespeed.views import sections
from wirespeed.views.text import NOTHING, Grid, Style, titled

_CALLS = (
    "<operation|<type|size|<groups|ranks|a step|alone|95 %|busbw GB/s|in the job|95 %|last rank|"
    "alone/job|wrong"
)
_SEQUENCE = "<a step's collectives|time|95 %|n"


def replay_lines(run: Run, replay: Replay, style: Style) -> list[str]:
    return titled(replay_tables(run, replay), style)[:-1]


def replay_tables(run: Run, replay: Replay) -> list[tuple[str, Grid]]:
    return [
        (f"what a step of {replay.source} sends", calls_grid(run, replay)),
        ("the sequence", sequence_grid(replay)),
    ]


def calls_grid(run: Run, replay: Replay) -> Grid:
    """One row a kind of call."""
    grid = Grid.of(_CALLS)
    measured = {call_key(m): m for m in run.measurements}
    for call in replay.calls:
        alone = measured.get(call_key(call))
        row = (
            [str(alone.ranks), str(call.calls), format_duration(alone.time.median)] if alone else []
        )
        row += (
            [sections.interval(alone) or NOTHING, sections.gigabytes(alone.busbw)] if alone else []
        )
        ratio = alone.time.median / call.in_job.median if alone and call.in_job else None
        grid.add(
            *(call.op, call.dtype, format_size(call.size_bytes), call.groups),
            *(row or [NOTHING, str(call.calls), NOTHING, NOTHING, NOTHING]),
            *_in_job(call),
            f"{ratio:.2f}" if ratio is not None else NOTHING,
            sections.wrong(alone) if alone else NOTHING,
            color="red" if alone and alone.wrong else "",
        )
    return grid


def _in_job(call: ReplayedCall) -> list[str]:
    if call.in_job is None:
        return [NOTHING] * 3
    last = format_duration(call.last) if call.last is not None else NOTHING
    return [format_duration(call.in_job.median), _reach(call.in_job), last]


def sequence_grid(replay: Replay) -> Grid:
    """The step alone, at the job's pace, and in the job."""
    grid = Grid.of(_SEQUENCE)
    own = f"with the job's own work between them ({format_duration(replay.own)}, as sleep)"
    rows = [("alone, nothing between them", replay.unbroken), (own, replay.paced)]
    for name, time in [*rows, ("in the job, all of it", replay.job_step)]:
        if time is not None:
            grid.add(name, format_duration(time.median), _reach(time), str(time.samples))
    return grid


def _reach(time: MedianTime) -> str:
    """`±3.1 %`, as `sections.interval`."""
    if time.median <= 0 or time.low == time.high:
        return NOTHING
    reach = max(time.high - time.median, time.median - time.low) / time.median
    return f"±{reach:.1%}".replace("%", " %")
