"""The codec: records to JSON and back, by their types alone (`field_types.py`).

Two ways in: `from_json` takes what this program wrote itself, such as a rank's message; `validated`
takes what others may have cut, damaged or never written, and checks it first (`validation.py`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from wirespeed.model.field_types import CHECKED, SPARSE, SPLIT, Unit
from wirespeed.model.node_facts import FACT_NAMES, Facts
from wirespeed.model.validation import FREE, Free, checked, fitting, optional, places

T = TypeVar("T")
_Convert = Callable[[Any], Any]

_EMPTY: tuple[object, ...] = (None, "", (), {}, False)


def to_json(record: Any) -> Any:
    """A record as plain data: dicts, lists, texts, numbers."""
    return _converter(cast("Any", type(record)), None, writing=True)(record)


def plain(value: Any) -> Any:
    """`value` with only what JSON knows; what it has no word for (paths, NaN, …) becomes text."""
    kind = type(value)
    if kind is str and value.isascii():
        return value
    if kind is float and math.isfinite(value):
        return value
    if isinstance(value, (dict, Mapping)):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    # A lone surrogate (from a file name that is not UTF-8) could not be written later.
    return str(value).encode("utf-8", "replace").decode()


def from_json(kind: type[T], data: Any) -> T:
    """The inverse of `to_json`, of data that need no check; keys that are not known are left out."""
    found: T = _converter(cast("Any", kind), None, writing=False)(data)
    return found


def validated(kind: type[T], data: object, *, source: str) -> T:
    """The same for data of unknown origin.

    InputError gives the path in the document, what was seen and what was expected.
    """
    return from_json(kind, checked(kind, data, source))


@cache
def _converter(annotation: Any, unit: Unit | None, *, writing: bool) -> _Convert:
    """What makes JSON of a value of that type, or back; within a field with a unit that unit."""

    def of(inner: Any) -> _Convert:
        return _converter(inner, unit, writing=writing)

    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        own = next((one for one in args[1:] if isinstance(one, Unit)), unit)
        return _converter(args[0], own, writing=writing)
    if annotation is Facts:
        return _facts_written if writing else _facts_read
    if is_dataclass(annotation):
        return (_record_writer if writing else _record_reader)(annotation, unit)
    if origin is tuple:
        one, many = of(args[0]), list if writing else tuple
        return many if one is _same else lambda value: many([one(item) for item in value])
    if annotation == FREE and not writing:
        return _freed
    if origin is dict:
        one = of(args[1])
        return dict if one is _same else lambda value: {k: one(v) for k, v in value.items()}
    if inner := optional(annotation):
        one = of(inner)
        return one if one is _same else lambda value: None if value is None else one(value)
    if annotation is int and not writing:
        return _whole
    if annotation is float and unit and (unit.times, unit.over) != (1.0, 1.0):
        return partial(_scaled if writing else _unscaled, unit)
    return _same


# Writing.


def _record_writer(kind: Any, unit: Unit | None) -> _Convert:
    rows = [
        (
            *(place, place.name, place.key, _left_out(place.marks)),
            _converter(place.annotation, unit, writing=True),
        )
        for place in places(kind, unit)
    ]
    split = any(SPLIT in place.marks for place, *_ in rows)

    def write(record: Any) -> dict[str, Any]:
        data = {}
        for place, name, key, left_out, one in rows:
            value = getattr(record, name)
            if value in left_out:
                continue
            data[key] = value if one is _same else one(value)
            if split and SPLIT in place.marks:
                ratio = data[key]
                data[key] = ratio and ratio["value"]
                data[place.ends_key] = ratio and {"low": ratio["low"], "high": ratio["high"]}
        return data

    return write


def _left_out(marks: tuple[Any, ...]) -> tuple[object, ...]:
    """Return the values for which the key of a field with these marks is absent."""
    if SPARSE in marks:
        return _EMPTY
    return (None,) if CHECKED in marks else ()


def _facts_written(facts: Facts) -> dict[str, Any]:
    known = {key: getattr(facts, name) for key, name in FACT_NAMES.items()}
    found = {key: value for key, value in known.items() if value is not None} | facts.other
    return {key: found[key] for key in (*facts.order, *found) if key in found}


def _same(value: Any) -> Any:
    return value


def _scaled(unit: Unit, value: float) -> float:
    found = value * unit.times if unit.over == 1.0 else value / unit.over
    return found if unit.digits is None else round(found, unit.digits)


def _unscaled(unit: Unit, value: float) -> float:
    return value / unit.times if unit.over == 1.0 else value * unit.over


# Reading.


def _record_reader(kind: Any, unit: Unit | None) -> _Convert:
    rows = [
        (place, place.name, place.key, _converter(place.annotation, unit, writing=False))
        for place in places(kind, unit)
        if not place.computed
    ]

    def read(data: dict[str, Any]) -> Any:
        found = {}
        for place, name, key, one in rows:
            if key in data:
                value = data[key]
                if SPLIT in place.marks:
                    ends = data.get(place.ends_key)
                    value = None if value is None or ends is None else {"value": value, **ends}
                found[name] = value if one is _same else one(value)
        return kind(**found)

    return read


def _facts_read(value: Any) -> Facts:
    data = _freed(value)
    names = fitting(data)
    return Facts(
        **{FACT_NAMES[key]: data[key] for key in names},
        other={key: value for key, value in data.items() if key not in names},
        order=tuple(data),
    )


def _whole(value: Any) -> Any:
    """JSON Schema takes 3.0 for an integer too."""
    return int(value) if type(value) is float else value


def _freed(value: Any) -> Any:
    return value.data if isinstance(value, Free) else value
