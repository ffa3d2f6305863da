"""The traffic of a large job, cut down to this world: each kind of group alone."""

from wirespeed.model.records import Run
from wirespeed.model.shape_records import Shape
from wirespeed.model.units import format_duration, format_size
from wirespeed.views import sections
from wirespeed.views.text import NOTHING, Grid, Style, titled

_GROUPS = (
    "<parallel|<operation|<groups|ranks|in the job|size|in the job|time|95 %|busbw GB/s|n|last rank|"
    "wrong"
)


def shape_lines(run: Run, shape: Shape, style: Style) -> list[str]:
    return titled(shape_tables(run, shape), style)[:-1]


def shape_tables(run: Run, shape: Shape) -> list[tuple[str, Grid]]:
    """(title, grid); what groups cost each other is a table of `training.tables`."""
    said = [f"{shape.title} ({shape.job_ranks} ranks)"]
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
                row = [format_duration(m.time.median), sections.interval(m) or NOTHING]
                row += [sections.gigabytes(m.busbw), str(m.iterations), last, sections.wrong(m)]
            grid.add(
                *(group.kind, op, group.groups, str(group.ranks), str(group.job_ranks)),
                *map(format_size, sizes),
                *row,
                color="red" if m and m.wrong else "",
            )
    return grid
