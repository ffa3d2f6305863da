"""Figures that other tools measured, as imported: a row a test with its places, the worst one named."""

from collections.abc import Sequence
from statistics import median

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Run
from wirespeed.model.units import format_figure, format_size
from wirespeed.statistics import lacks_samples
from wirespeed.views.sections import no_interval
from wirespeed.views.text import Grid

_TESTS = "<test|size|places|figure|95 %|n|worst|<at|best"
_EACH = "<test|size|<place|figure|95 %|n"


def tool_tables(run: Run, *, every: bool = False) -> list[tuple[str, Grid]]:
    """(title, table) of each tool; every: a row a figure."""
    tools = dict.fromkeys(one.tool for one in run.figures)
    grid = _each if every else _by_test
    return [
        (f"measured by {tool}", grid([one for one in run.figures if one.tool == tool]))
        for tool in tools
    ]


def _by_test(figures: Sequence[ToolFigure]) -> Grid:
    tests: dict[tuple[object, ...], list[ToolFigure]] = {}
    for one in figures:
        tests.setdefault((_test(one), one.size_bytes, one.unit), []).append(one)
    grid = Grid.of(_TESTS)
    for same in tests.values():
        grid.add(*_row(same))
    return grid


def _row(same: Sequence[ToolFigure]) -> list[str]:
    """Of several places the median; of a unit that is not known the least and the most."""
    first = same[0]
    ordered = sorted(same, key=lambda one: one.value, reverse=first.unit == "s")
    usual = first.value if len(same) == 1 else median(one.value for one in same)
    ends = ["", ordered[0].place, ""]
    if len(same) > 1:
        ends = [_value(ordered[0]), ordered[0].place, _value(ordered[-1])]
    alone = [_reach(first), _samples(first)] if len(same) == 1 else ["", ""]
    shown = format_figure(usual, first.unit) + (", above any link" if first.beyond else "")
    return [_test(first), _size(first), str(len(same)), shown, *alone, *ends]


def _each(figures: Sequence[ToolFigure]) -> Grid:
    grid = Grid.of(_EACH)
    for one in figures:
        grid.add(_test(one), _size(one), one.place, _value(one), _reach(one), _samples(one))
    return grid


def _test(one: ToolFigure) -> str:
    """Return the test with its settings."""
    return f"{one.test} ({one.settings})" if one.settings else one.test


def _value(one: ToolFigure) -> str:
    mark = ", above any link" if one.beyond else ""
    return format_figure(one.value, one.unit) + mark


def _size(one: ToolFigure) -> str:
    return format_size(one.size_bytes) if one.size_bytes else ""


def _samples(one: ToolFigure) -> str:
    return f"{one.samples:,}" if one.samples else ""


def _reach(one: ToolFigure) -> str:
    """`±3.1 %`, as of a measurement."""
    if one.low is None or one.high is None or one.value <= 0:
        return ""
    if lacks_samples(one.samples):
        return no_interval(one.samples)
    return f"±{max(one.high - one.value, one.value - one.low) / one.value * 100:.1f} %"
