"""Figures over many runs, with the changes of their level, as table, Markdown or JSON."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from wirespeed.model.derived_records import Change, Difference, Series, Trend, What
from wirespeed.model.units import GIGA
from wirespeed.views import comparison
from wirespeed.views.text import Grid, Style, Views, counted, escape, rendered

SCHEMA = "wirespeed.trend/1"

LEVELS = "<since|<run|level|change|95 % interval|runs|<changed then"
_STEADY = "<figure|<how|level|runs|<since|<remark"
_MOST_DIFFERENCES = 4
_US = 1e6


def render(trend: Trend, format: str, style: Style) -> str:
    """Text that ends in a line end; UsageError for a format that there is not."""
    return rendered(trend, format, style, _VIEWS)


def _table(trend: Trend, style: Style) -> str:
    lines: list[str] = []
    for one in _changed(trend):
        lines.append(f"{style.paint(style.text(name(one)), 'bold')}  {style.text(how(one))}")
        lines += [*Grid.filled(LEVELS, rows(one)).lines(style, indent="  "), ""]
    if steady := _steady(trend):
        lines += [*steady_grid(steady).lines(style), ""]
    return "\n".join([*lines, style.text(_closing(trend))]) + "\n"


def _markdown(trend: Trend, shown: Style) -> str:
    style = Style(ascii=shown.ascii)
    blocks = []
    for one in _changed(trend):
        table = Grid.filled(LEVELS, rows(one)).markdown(style, every=True)
        title = f"### {escape(name(one), style)}"
        blocks.append([title, "", escape(how(one), style), "", *table])
    if steady := _steady(trend):
        blocks.append(steady_grid(steady).markdown(style, every=True))
    blocks.append([escape(_closing(trend), style)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _changed(trend: Trend) -> list[Series]:
    return [one for one in trend.series if one.changes]


def _steady(trend: Trend) -> list[Series]:
    return [one for one in trend.series if not one.changes]


def steady_grid(series: Iterable[Series]) -> Grid:
    """Return a row for each figure without a change; amber where too few runs were made to tell."""
    grid = Grid.of(_STEADY)
    for one in series:
        grid.add(*_steady_row(one), color="" if one.judged else "yellow")
    return grid


def _steady_row(one: Series) -> list[str]:
    level = _level(one, 0, len(one.runs), comparison.by_rate(one.what, *one.busbw))
    remark = "no change" if one.judged else "not enough runs"
    since = one.at[0][:16].replace("T", " ")
    return [name(one), how(one), level, str(len(one.runs)), since, remark]


def name(one: Series) -> str:
    """`all_reduce 1 GiB busbw`."""
    return comparison.label(one.what, rate=comparison.by_rate(one.what, *one.busbw))


def how(one: Series) -> str:
    """How it was measured."""
    told, _ = comparison.common_words([one.what])
    return " · ".join(filter(None, (told, one.backend)))


def rows(one: Series) -> list[list[str]]:
    """A row of `LEVELS` a level: when it began, what it is, how far from the one before."""
    starts = [0, *(one.runs.index(change.run) for change in one.changes)]
    ends = [*starts[1:], len(one.runs)]
    rate = comparison.by_rate(one.what, *one.busbw)
    found = []
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        change = one.changes[k - 1] if k else None
        found.append(
            [
                one.at[start][:16].replace("T", " "),
                one.runs[start],
                _level(one, start, end, rate),
                comparison.change(change.ratio, rate=rate) if change else "",
                comparison.interval(change.low, change.high, rate=rate) if change else "",
                str(end - start),
                _differences(change.differences) if change else "",
            ]
        )
    return found


def _level(one: Series, start: int, end: int, rate: bool) -> str:
    """The middle run's figure."""
    times, rates = (sorted(values[start:end]) for values in (one.times, one.busbw))
    middle = (end - start) // 2
    return comparison.value(one.what, times[middle], rates[middle], rate=rate)


def _differences(found: tuple[Difference, ...]) -> str:
    shown = [comparison.difference(one) for one in found[:_MOST_DIFFERENCES]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; {more} more" if more else "") or "no recorded difference"


def _closing(trend: Trend) -> str:
    judged = sum(one.judged for one in trend.series)
    changes = sum(len(one.changes) for one in trend.series)
    word = "REGRESSION  " if trend.regressions else ""
    all_figures = trend.family > len(trend.series)
    family = f" (allowing for all {trend.family} figures of these runs)" if all_figures else ""
    return (
        f"{word}{judged} of {len(trend.series)} figures have runs enough to be judged (8), "
        f"{counted(changes, 'change')} of level{family}   exit {trend.exit_code}"
    )


def document(trend: Trend) -> dict[str, Any]:
    """As JSON: times in µs, bandwidths in GB/s, ratios of times (above 1 is slower, less goodput)."""
    return {
        "schema": SCHEMA,
        "exit_code": trend.exit_code,
        "series": [_series(one) for one in trend.series],
    }


def _series(one: Series) -> dict[str, Any]:
    return {
        "kind": one.what.kind,
        "measured": dict(one.what.fields),
        "backend": one.backend,
        "judged": one.judged,
        "points": [
            {"run": run, "at": at, **_figures(one.what, time, busbw)}
            for run, at, time, busbw in zip(one.runs, one.at, one.times, one.busbw, strict=True)
        ],
        "changes": [_change(change) for change in one.changes],
    }


def _figures(what: What, time: float, busbw: float) -> dict[str, float]:
    if what.is_ratio:
        return dict([comparison.share(what, time)])
    if what.unit:
        return {"rate": 1 / time}
    return {"time_us": time * _US, "busbw_GBps": busbw / GIGA}


def _change(one: Change) -> dict[str, Any]:
    return {
        **asdict(one),
        "runs": list(one.runs),
        "differences": [asdict(d) for d in one.differences],
    }


_VIEWS: Views[Trend] = {"table": _table, "md": _markdown, "json": lambda one, _: document(one)}
FORMATS = tuple(_VIEWS)
