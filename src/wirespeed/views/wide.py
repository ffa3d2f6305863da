"""Everything in columns: percentiles, skew, who was last, groups, timing, and each data check."""

from wirespeed.records import Measurement, Run, Verification
from wirespeed.units import format_size
from wirespeed.views import figures
from wirespeed.views.findings import finding_lines
from wirespeed.views.goodput import goodput_lines
from wirespeed.views.grid import Column, Grid
from wirespeed.views.sections import bandwidth_note, choice_lines, closing_lines, head_line
from wirespeed.views.settings import settings_lines
from wirespeed.views.soak import soak_lines
from wirespeed.views.style import Style
from wirespeed.views.table import join_blocks
from wirespeed.views.training import training_lines

__all__ = ["render"]

_LEFT = (
    *(
        "setting",
        "op",
        "engine",
        "dtype",
        "redop",
        "groups",
        "timing",
        "place",
        "stopped",
        "why not",
    ),
    *("host", "chunk", "guess", "example"),
)
_CONFIGURATION = (
    *("setting", "op", "engine", "dtype", "redop", "root", "groups", "ranks", "place", "size"),
)
_MEASURED = (
    *("count", "timing", "flight", "warm", "n", "stopped", "median", "95 %", "mean", "low", "high"),
    *("min", "p95", "p99", "max", "algbw GB/s", "busbw GB/s", "wrong", "skew", "last rank"),
)
_VERIFIED = ("count", "elements", "wrong", "why not")
_WRONG = ("rank", "host", "wrong", "of", "bytes", "chunk", "guess", "example")


def render(run: Run, style: Style) -> str:
    blocks = [
        [head_line(run, style)],
        choice_lines(run, style),
        finding_lines(run.findings, style),
        training_lines(run, style),
        settings_lines(run, style),
        soak_lines(run, style),
        goodput_lines(run, style),
        _measurements(run, style),
        _verifications(run, style),
        _wrong_data(run, style),
        bandwidth_note(run, style),
        closing_lines(run, style),
    ]
    return join_blocks(blocks)


def _measurements(run: Run, style: Style) -> list[str]:
    grid = Grid(_columns(*_CONFIGURATION, *_MEASURED))
    red = len(_CONFIGURATION) + _MEASURED.index("wrong")
    for m in run.measurements:
        grid.add(*_configuration(m), *_measured(m), red=red if m.wrong else None)
    return grid.lines(style) if grid.rows else []


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, left=name in _LEFT) for name in names)


def _configuration(m: Measurement | Verification) -> list[str]:
    root = str(m.root) if m.root >= 0 else "–"
    place = "in" if m.in_place else "out"
    shape = [m.groups, str(m.ranks or "–"), place, format_size(m.size_bytes)]
    return [m.setting, m.op, m.engine, m.dtype, m.redop, root, *shape]


def _measured(m: Measurement) -> list[str]:
    times = (m.time.mean, m.time.low, m.time.high, m.time.min, m.time.p95, m.time.p99, m.time.max)
    return [
        str(m.count),
        m.timing if m.blocking else f"{m.timing} async",
        str(m.in_flight),
        str(m.warmup),
        str(m.iterations or "–"),
        m.stopped_by,
        figures.duration(m.time.median),
        figures.interval(m) or "–",
        *map(figures.duration, times),
        figures.gigabytes(m.algbw),
        figures.gigabytes(m.busbw),
        figures.wrong(m),
        figures.duration(m.skew) if m.skew else "–",
        f"{m.last_rank} ({m.last_share:.0%})" if m.last_rank >= 0 else "–",
    ]


def _verifications(run: Run, style: Style) -> list[str]:
    grid = Grid(_columns(*_CONFIGURATION, *_VERIFIED))
    for v in run.verifications:
        wrong = "–" if v.wrong is None else str(v.wrong)
        cells = [str(v.count), f"{v.elements:,}", wrong, v.reason]
        red = len(_CONFIGURATION) + _VERIFIED.index("wrong") if v.wrong else None
        grid.add(*_configuration(v), *cells, red=red)
    return ["data checks", *grid.lines(style, indent="  ")] if grid.rows else []


def _wrong_data(run: Run, style: Style) -> list[str]:
    grid = Grid(_columns("op", *_WRONG))
    for v in run.verifications:
        for e in v.errors:
            span = f"{e.first_byte}–{e.last_byte}"
            cells = [str(e.wrong), str(e.elements), span, e.chunk, e.guess, e.example]
            grid.add(v.op, str(e.rank), e.host, *cells)
    return ["wrong data", *grid.lines(style, indent="  ")] if grid.rows else []
