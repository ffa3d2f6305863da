"""Pictures that the server draws itself, as SVG: a figure over time, what happened to a node, steps."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from wirespeed.views.html.parts import filled

if TYPE_CHECKING:
    from markupsafe import Markup

_OF = "wirespeed.site"
WIDTH, _LEFT, _RIGHT = 920.0, 86.0, 14.0
_HEIGHT, _TOP, _BOTTOM = 210.0, 26.0, 24.0
_MOST_POINTS = 600
_LANE = 30.0
_GAP = 0.08
"""Of the range of values, left free above and below them."""
_MOST_TICKS = 8
_STEPS = tuple(
    timedelta(minutes=minutes)
    for minutes in (1, 5, 15, 60, 180, 360, 720, 1440, 2880, 10080, 20160, 43200, 129600, 525600)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One mark of a picture."""

    at: datetime
    value: float = 0.0
    label: str = ""
    """What is said when somebody points at it."""
    link: str = ""
    kind: str = ""
    """Class of its colour: `pass`, `warn`, `fail`, `not_checked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Between two changes the figure stayed about here."""

    since: datetime
    until: datetime
    value: float
    label: str = ""
    """At its beginning, of a change: by how much."""


def moment(text: str) -> datetime:
    """ISO 8601 in UTC, as runs tell when they started; what is none is 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def over_time(
    name: str, points: Sequence[Point], levels: Sequence[Level], ticks: Sequence[tuple[float, str]]
) -> "Markup":
    """A figure over time with its levels. points: in order; ticks: values with their words."""
    shown = _thinned(points)
    x = _Times.over([point.at for point in points])
    values = [point.value for point in points] + [level.value for level in levels]
    low, high = _range([*values, *(value for value, _ in ticks)])

    def y(value: float) -> float:
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low), 1)

    return filled(
        "over_time.html",
        of=_OF,
        name=name,
        size={
            "width": WIDTH,
            "height": _HEIGHT,
            "left": _LEFT,
            "right": WIDTH - _RIGHT,
            "top": _TOP,
        },
        bottom=_HEIGHT - _BOTTOM,
        ticks=[(y(value), words) for value, words in ticks],
        times=x.ticks(),
        levels=[
            {"x": x(one.since), "until": x(one.until), "y": y(one.value), "label": one.label}
            for one in levels
        ],
        points=[_placed(point, x(point.at), y(point.value)) for point in shown],
    )


def lanes(name: str, found: Sequence[tuple[str, Sequence[Point]]], until: datetime) -> "Markup":
    """What happened when, a line for each kind of event."""
    x = _Times.over([point.at for _, points in found for point in points] + [until])
    rows = [
        {
            "title": title,
            "y": _LANE * (n + 1),
            "points": [_placed(one, x(one.at), _LANE * (n + 1)) for one in _thinned(points)],
        }
        for n, (title, points) in enumerate(found)
    ]
    height = _LANE * (len(rows) + 0.5) + _BOTTOM
    size = {"width": WIDTH, "height": height, "left": _LEFT, "right": WIDTH - _RIGHT}
    return filled("lanes.html", of=_OF, name=name, size=size, rows=rows, times=x.ticks())


def strip(name: str, values: Sequence[float], words: str) -> "Markup":
    """The last steps of a job as bars, the median at half the height; words: what it shows."""
    middle = sorted(values)[len(values) // 2] if values else 0.0
    bars = [
        (n, round(max(1.0, min(40.0, 20.0 * one / middle)), 1), one > 1.5 * middle)
        for n, one in enumerate(values)
        if middle > 0
    ]
    return filled("strip.html", of=_OF, name=name, bars=bars, words=words)


@dataclass(frozen=True, slots=True)
class _Times:
    """The axis of time."""

    first: datetime
    last: datetime

    @classmethod
    def over(cls, moments: Sequence[datetime]) -> "_Times":
        first, last = min(moments), max(moments)
        return cls(first, max(last, first + timedelta(minutes=1)))

    def __call__(self, at: datetime) -> float:
        share = (at - self.first) / (self.last - self.first)
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * share, 1)

    def ticks(self) -> list[tuple[float, str]]:
        """At whole hours or days."""
        span = self.last - self.first
        step = next((one for one in _STEPS if span / one <= _MOST_TICKS), span)
        zero = datetime(2000, 1, 3, tzinfo=UTC)
        found = []
        for n in range(math.ceil((self.first - zero) / step), (self.last - zero) // step + 1):
            at = zero + n * step
            words = at.strftime("%d %b" if step >= timedelta(days=1) else "%d %b %H:%M")
            found.append((self(at), words if step < timedelta(days=60) else at.strftime("%b %Y")))
        return found


def _placed(point: Point, x: float, y: float) -> dict[str, Any]:
    return {"x": x, "y": y, "label": point.label, "link": point.link, "kind": point.kind}


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    low, high = min(known), max(known)
    room = (high - low) * _GAP or abs(high) * _GAP or 1.0
    return low - room, high + room


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Of very many the lowest and the highest of each stretch, and whatever is marked."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    size = math.ceil(2 * len(points) / _MOST_POINTS)
    kept: dict[int, None] = {}
    for start in range(0, len(points), size):
        part = range(start, min(start + size, len(points)))
        kept[min(part, key=lambda n: points[n].value)] = None
        kept[max(part, key=lambda n: (points[n].kind in ("fail", "warn"), points[n].value))] = None
    return [points[n] for n in sorted(kept)]
