"""Colour says how much slower than usual a figure is; this is the scale for that."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.units import GIGA, format_duration

__all__ = ["COLORS", "Quantity", "Scale", "figure_text", "scale_for"]

Quantity = Literal["bandwidth", "latency"]

COLORS: tuple[tuple[float, str], ...] = (
    (0.0, "rgb(39,63,108)"),
    (0.2, "rgb(76,85,107)"),
    (0.36, "rgb(104,106,112)"),
    (0.5, "rgb(131,129,120)"),
    (0.64, "rgb(161,152,118)"),
    (0.79, "rgb(192,177,109)"),
    (0.93, "rgb(225,204,92)"),
    (1.0, "rgb(255,233,69)"),
)
"""From usual to slow: cividis without its darkest end, which a dark page would swallow.

Cividis was made so that colour-blind and other readers see the same picture (Nuñez, Anderton,
Renslow, 2018, doi 10.1371/journal.pone.0199239). Its lightness rises evenly, so it prints grey, too.
"""

_TICKS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Times slower than usual."""
_MOST, _LEAST_MOST = 8.0, 2.0
"""The brightest colour stands for no more, so that 8 and 100 times look alike, and for no less, so
that noise stays dark."""
_BELOW = 0.25
"""Share of the way up that the scale goes down: what is faster than usual needs fewer colours."""
_TICK_GAP = 0.11
"""Of the bar's length: ticks that are nearer than this would overlap."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Figures to colours: z is log2 of (times slower than usual)."""

    quantity: Quantity
    usual: float
    """What a good pair shows: bytes a second or seconds."""
    low: float
    high: float
    """z of the ends of the colour bar."""

    def z(self, value: float) -> float:
        """Of a rate that is 0 the end of the scale."""
        return round(_slowness(self.quantity, self.usual, value, self.high), 3)

    def ticks(self) -> tuple[list[float], list[str]]:
        """(places, texts) of the colour bar: the figure, and times slower than usual."""
        kept: list[float] = []
        for times in _TICKS:
            z = math.log2(times)
            gap = _TICK_GAP * (self.high - self.low)
            fits = self.low - 1e-9 <= z <= self.high + 1e-9
            if fits and (not kept or z - math.log2(kept[-1]) >= gap):
                kept.append(times)
        return [math.log2(times) for times in kept], [self._tick(times) for times in kept]

    def _tick(self, times: float) -> str:
        value = self.usual / times if self.quantity == "bandwidth" else self.usual * times
        text = figure_text(self.quantity, value)
        more = "+" if times == _MOST else ""
        return f"{text}  usual" if times == 1 else f"{text}  {times:g}×{more}"

    def colorbar(self) -> dict[str, Any]:
        """The colour bar of plotly for this scale."""
        places, texts = self.ticks()
        return {
            "tickvals": places,
            "ticktext": texts,
            "thickness": 14,
            "outlinewidth": 0,
        }


def scale_for(quantity: Quantity, usual: float, values: Iterable[float]) -> Scale:
    """A scale that reaches to the slowest of `values`, within reason."""
    least, most = math.log2(_LEAST_MOST), math.log2(_MOST)
    slowest = max((_slowness(quantity, usual, value, most) for value in values), default=least)
    high = min(max(slowest, least), most)
    return Scale(quantity, usual, -_BELOW * high, high)


def _slowness(quantity: Quantity, usual: float, value: float, worst: float) -> float:
    if value <= 0 or usual <= 0:
        return worst if quantity == "bandwidth" else 0.0
    times = usual / value if quantity == "bandwidth" else value / usual
    return math.log2(times)


def figure_text(quantity: Quantity, value: float) -> str:
    """`49.0` GB/s without its unit, `6.34 µs` with it; three digits."""
    if quantity == "latency":
        return format_duration(value)
    rate = value / GIGA
    if rate >= 999.5:
        return f"{rate:,.0f}"
    return f"{rate:#.3g}".rstrip(".") if rate else "0"
