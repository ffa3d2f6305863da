"""Figures over time, with the changes of their level."""

import math
from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response

from wirespeed.compare.compare import trend as trend_of
from wirespeed.model.derived_records import Series, Trend
from wirespeed.model.units import counted
from wirespeed.runs.index import RunFilter
from wirespeed.runs.store import stored_points
from wirespeed.site.framing import Site, framed, made, version_of
from wirespeed.site.links import query_link, run_link
from wirespeed.site.pictures import Level, Point, moment, over_time
from wirespeed.views import comparison
from wirespeed.views import trend as words
from wirespeed.views.html.parts import html_table
from wirespeed.views.text import Grid

_LAST = {"100": "100 runs", "300": "300 runs", "1000": "1,000 runs"}
_USUAL = "100"
_LOOKED_AT = 100
"""Runs whose figures tell what can be asked for."""
_MOST = 12
"""Pictures of a page; figures that changed come first."""


def trends_page(site: Site, request: Request) -> Response:
    """One operation or strategy over the newest runs."""
    last = request.query_params.get("last", _USUAL)
    last = last if last in _LAST else _USUAL
    with site.index() as index:
        seen = Counter(row.name for row in index.figures(which=RunFilter(last=_LOOKED_AT)))
        names = sorted(seen)
        asked = request.query_params.get("op", "")
        op = asked if asked in names else max(names, key=lambda name: seen[name], default="")
        version = version_of(index)
    trend = _shown_of(_trend(int(last), version), op) if op else Trend(series=())
    series = sorted(trend.series, key=lambda one: (not one.changes, -len(one.runs)))
    part = made(
        "trends.html",
        op=op,
        names=[(name, query_link("/trends", op=name, last=last)) for name in names],
        last=_LAST,
        chosen=last,
        said=_said(trend),
        series=[_drawn(one, n) for n, one in enumerate(series[:_MOST])],
        rest=_rest(series[_MOST:]),
        left=len(series) - _MOST,
    )
    return framed(site, f"Trend of {op}" if op else "Trends", "Trends", [part])


@lru_cache(maxsize=4)
def _trend(last: int, _version: tuple[object, ...]) -> Trend:
    """Return all series of the newest runs: a change is corrected for all of them, shown or not.

    Looking for changes takes longer than all else, and the same runs have the same.
    """
    return trend_of(stored_points(last))


def _shown_of(trend: Trend, op: str) -> Trend:
    return replace(trend, series=tuple(one for one in trend.series if one.what.name == op))


def _said(trend: Trend) -> str:
    changed = [one for one in trend.series if one.changes]
    if not trend.series:
        return "No figure was measured by two runs yet."
    counted = f"{len(changed)} of {len(trend.series)} figures changed their level"
    newest = max((change.at for one in changed for change in one.changes), default="")
    when = f", the last time on {newest[:16].replace('T', ' ')} UTC" if newest else ""
    return f"{counted}{when}. A change is one that noise does not explain (wirespeed trend)."


def _drawn(one: Series, number: int) -> dict[str, object]:
    rate = comparison.by_rate(one.what, *one.busbw)
    values = list(one.busbw) if rate and all(one.busbw) else [_shown(one, s) for s in one.times]
    moments = [moment(at) for at in one.at]
    points = [
        Point(
            at=at,
            value=value,
            label=f"{_told(one, n, rate)}, {at:%Y-%m-%d %H:%M}, run {one.runs[n]}",
            link=run_link(one.runs[n]),
        )
        for n, (at, value) in enumerate(zip(moments, values, strict=True))
    ]
    name = words.name(one)
    ticks = [(value, _tick(one, value, rate)) for value in _round_values(values)]
    return {
        "name": name,
        "how": words.how(one),
        "picture": over_time(name, points, _levels(one, moments, values, rate), ticks),
        "table": html_table(
            Grid.filled(words.LEVELS, words.rows(one)), f"levels of {name}", f"levels-{number}"
        ),
        "remark": _remark(one),
        "kind": "" if one.judged else "warn",
    }


def _remark(one: Series) -> str:
    if one.changes:
        return counted(len(one.changes), "change")
    return "no change found" if one.judged else "too few runs to tell a change"


def _shown(one: Series, seconds: float) -> float:
    """Shares and rates are better when they are more, as they are told."""
    scale = 100 if one.what.is_ratio else 1 if one.what.unit else 0
    return scale / seconds if scale else seconds


def _told(one: Series, n: int, rate: bool) -> str:
    return comparison.value(one.what, one.times[n], one.busbw[n], rate=rate)


def _tick(one: Series, value: float, rate: bool) -> str:
    time = _shown(one, value) if value > 0 else value
    return comparison.value(one.what, time, value, rate=rate)


def _levels(one: Series, moments: list[datetime], values: list[float], rate: bool) -> list[Level]:
    starts = [0, *(one.runs.index(change.run) for change in one.changes)]
    ends = [*starts[1:], len(one.runs)]
    return [
        Level(
            since=moments[start],
            until=moments[end if end < len(moments) else end - 1],
            value=sorted(values[start:end])[(end - start) // 2],
            label=comparison.change(one.changes[k - 1].ratio, rate=rate) if k else "",
        )
        for k, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _round_values(values: list[float]) -> list[float]:
    """Two to five round values that the figures lie between or among."""
    low, high = min(values), max(values)
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10(high - low))
    for factor in (0.2, 0.5, 1.0, 2.0, 5.0):
        first, last = math.ceil(low / (step * factor)), math.floor(high / (step * factor))
        if last - first < 5:
            return [n * step * factor for n in range(first, last + 1)]
    return [low, high]


def _rest(series: list[Series]) -> str:
    if not series:
        return ""
    return html_table(words.steady_grid(series), "the others", "others")
