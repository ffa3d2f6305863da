"""The traffic of a job: replayed, as in the job and alone; or of a large one, cut down to this world."""

from wirespeed.model.bench_records import Replay, ReplayedCall, Shape, call_key
from wirespeed.model.records import Run
from wirespeed.model.units import format_duration, format_size
from wirespeed.views import sections
from wirespeed.views.text import NOTHING, Grid

_CALLS = (
    "<operation|<type|size|<groups|ranks|a step|alone|95 %|busbw GB/s|in the job|95 %|last rank|"
    "alone/job|wrong"
)
_SEQUENCE = "<a step's collectives|time|95 %|n"


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
        row = [NOTHING, str(call.calls), NOTHING, NOTHING, NOTHING]
        if alone:
            row = [str(alone.ranks), str(call.calls), format_duration(alone.time.median)]
            row += [sections.interval(alone.time, alone.samples), sections.gigabytes(alone.busbw)]
        ratio = alone.time.median / call.in_job.median if alone and call.in_job else None
        grid.add(
            *(call.op, call.dtype, format_size(call.size_bytes), call.groups),
            *row,
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
    return [
        format_duration(call.in_job.median),
        sections.interval(call.in_job, call.in_job.samples),
        last,
    ]


def sequence_grid(replay: Replay) -> Grid:
    """The step alone, at the job's pace, and in the job."""
    grid = Grid.of(_SEQUENCE)
    own = f"with the job's own work between them ({format_duration(replay.own)}, as sleep)"
    rows = [("alone, nothing between them", replay.unbroken), (own, replay.paced)]
    for name, time in [*rows, ("in the job, all of it", replay.job_step)]:
        if time is not None:
            grid.add(
                name,
                format_duration(time.median),
                sections.interval(time, time.samples),
                str(time.samples),
            )
    return grid


_GROUPS = (
    "<parallel|<operation|<groups|ranks|in the job|size|in the job|time|95 %|busbw GB/s|n|last rank|"
    "wrong"
)


def shape_tables(run: Run, shape: Shape) -> list[tuple[str, Grid]]:
    """(title, grid); what groups cost each other is a table of `training.tables`."""
    said = [f"{shape.model}: {shape.job} ({shape.job_ranks} ranks)"]
    if shape.ranks != shape.job_ranks:
        said.append("here " + " × ".join(f"{one.kind} {one.ranks}" for one in shape.groups))
    fewer = f" of {shape.job_tokens}" if shape.tokens < shape.job_tokens else ""
    said += [f"{shape.tokens}{fewer} tokens a micro-batch", shape.dtype]
    said += [f"too few ranks for {' and '.join(shape.lost)} groups"] if shape.lost else []
    return [(" · ".join(said), groups_grid(run, shape))]


def groups_grid(run: Run, shape: Shape) -> Grid:
    """One row an operation. Two kinds that are cut alike have no operation in common."""
    grid = Grid.of(_GROUPS)
    measured = {(m.op, m.groups): m for m in run.measurements}
    for group in shape.groups:
        for op in group.ops:
            m = measured.get((op, group.groups))
            sizes = (m.size_bytes if m else group.size_bytes, group.job_size_bytes)
            row = [NOTHING] * 6
            if m:
                last = f"{m.last_rank} ({m.last_share:.0%})" if m.last_rank >= 0 else NOTHING
                row = [format_duration(m.time.median), sections.interval(m.time, m.samples)]
                row += [sections.gigabytes(m.busbw), str(m.iterations), last, sections.wrong(m)]
            grid.add(
                *(group.kind, op, group.groups, str(group.ranks), str(group.job_ranks)),
                *map(format_size, sizes),
                *row,
                color="red" if m and m.wrong else "",
            )
    return grid
