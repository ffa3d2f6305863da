"""Figures that were graded against, as JSON and back: the unit stands in the name of the figure."""

from collections.abc import Mapping
from typing import Any

from wirespeed.records_reference import Quantity, ReferenceFigure
from wirespeed.units import GIGA

__all__ = ["reference_from_json", "reference_to_json"]

_US = 1e6
_NAMES: dict[Quantity, tuple[dict[str, str], float]] = {
    "busbw": (
        {"value": "busbw_GBps", "low": "busbw_low_GBps", "high": "busbw_high_GBps"},
        1 / GIGA,
    ),
    "time": ({"value": "time_us", "low": "time_low_us", "high": "time_high_us"}, _US),
}
"""By quantity: what its fields are called, and by what a value is multiplied."""
_WHAT = ("kind", "source", "op", "engine", "dtype", "redop", "in_place", "size_bytes", "ranks")


def reference_to_json(one: ReferenceFigure) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(one, name) for name in _WHAT}
    names, factor = _NAMES[one.quantity]
    figures = {called: getattr(one, name) for name, called in names.items()}
    return data | {name: value * factor for name, value in figures.items() if value is not None}


def reference_from_json(data: Mapping[str, Any]) -> ReferenceFigure | None:
    """None where it has neither a busbw nor a time, as a later version may write."""
    what = {name: data[name] for name in _WHAT}
    for quantity, (names, factor) in _NAMES.items():
        if names["value"] in data:
            figures = {name: data[key] / factor for name, key in names.items() if key in data}
            return ReferenceFigure(quantity=quantity, **figures, **what)
    return None
