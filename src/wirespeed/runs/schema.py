"""The published shape of a run, `wirespeed.run/1`, and the check of what is read back.

`schema/run-1.schema.json` is the one definition. The check here walks that file itself and knows
just the keywords that it uses, so that reading a run needs no library; the tests compare its
answers with the jsonschema package's. It is stricter in two points: a number must be below 1e30
(an integer below 2^64), because a figure beyond that is damage, and what may be anything (settings,
facts) is nested 16 deep at most.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

from wirespeed.errors import InputError

__all__ = ["load_schema", "prune", "validate"]

Schema = Mapping[str, Any]
_Checker = Callable[[object], None]

_HUGE = 1e30
_HUGE_INTEGER = 1 << 64
_WHOLE = 1 << 53
"""Beyond it a float tells no integer."""
_DEEPEST = 16
_HELD = (str, bool, type(None))
_PLAIN = (str, int, bool, type(None))
"""Kinds of values that pruning leaves as they are; a float may stand for an integer."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@lru_cache(maxsize=1)
def load_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `run.json` and of `-o json`; do not change what comes back."""
    text = files("wirespeed.runs").joinpath("schema/run-1.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def validate(data: object, *, part: str = "", source: str = "run") -> None:
    """Raise InputError where `data` is not a run, or not the `$defs` entry named `part`.

    The message gives the path in the document, what was seen and what was expected. Unknown keys
    are allowed.
    """
    _check(data, _schema_of(part), f"{source}: $")


def prune(data: Any, *, part: str = "") -> Any:
    """A copy of valid `data` without the keys that this version does not know."""
    return _prune(data, _schema_of(part))


def _schema_of(part: str) -> Schema:
    schema: Schema = load_schema()["$defs"][part] if part else load_schema()
    return schema


def _resolve(schema: Schema) -> Schema:
    reference = schema.get("$ref")
    return _schema_of(reference.rpartition("/")[2]) if reference else schema


class _Wrong(Exception):
    """What does not fit, and where: keys and places in lists, the innermost first.

    The path is put together only here, since a run of 10,000 ranks has a million values.
    """

    def __init__(self, seen: object, expected: str) -> None:
        super().__init__(expected)
        self.seen, self.expected = seen, expected
        self.path: list[str] = []


def _check(data: object, schema: Schema, path: str) -> None:
    try:
        _checker(schema)(data)
    except _Wrong as wrong:
        where = path + "".join(reversed(wrong.path))
        raise _wrong(where, wrong.seen, wrong.expected) from None


_CHECKERS: dict[int, _Checker] = {}
"""By the id of a part of the schema, which is read once and kept."""


def _checker(schema: Schema) -> _Checker:
    """What raises _Wrong for data that are not as `schema` says; made once for each part of it."""
    schema = _resolve(schema)
    found = _CHECKERS.get(id(schema))
    if found is None:
        found = _CHECKERS[id(schema)] = _made(schema)
    return found


def _made(schema: Schema) -> _Checker:
    asked = [make(schema) for key, make in _KEYWORDS.items() if key in schema]
    if "type" not in schema:
        asked.append(partial(_check_range, schema=schema))
    if "properties" in schema or "additionalProperties" in schema:
        asked.append(_object(schema))

    def check(data: object) -> None:
        for one in asked:
            one(data)

    return asked[0] if len(asked) == 1 else check


def _const(schema: Schema) -> _Checker:
    wanted = schema["const"]

    def check(data: object) -> None:
        if data != wanted:
            raise _Wrong(data, repr(wanted))

    return check


def _enum(schema: Schema) -> _Checker:
    allowed = schema["enum"]

    def check(data: object) -> None:
        if not (isinstance(data, str) and data in allowed):
            raise _Wrong(data, "one of " + ", ".join(allowed))

    return check


def _type(schema: Schema) -> _Checker:
    names = schema["type"]
    wanted = [names] if isinstance(names, str) else names
    # Most values are told by their very type; whole floats, which are integers too, by _is_a.
    plain = {kind for name in wanted for kind in _TYPES[name]}
    plain -= {float} if "number" not in wanted else set()
    low, high = schema.get("minimum", -_HUGE), schema.get("maximum", _HUGE)
    bounds: dict[type, tuple[Any, Any]] = {float: (max(low, -_HUGE), min(high, _HUGE))}
    bounds[int] = (max(low, -_HUGE_INTEGER), min(high, _HUGE_INTEGER))

    def check(data: object) -> None:
        kind = type(data)
        if kind not in plain and not any(_is_a(data, name) for name in wanted):
            raise _Wrong(data, " or ".join(wanted))
        ends = bounds.get(kind)
        if ends is not None and not ends[0] <= data <= ends[1]:
            _check_range(data, schema)

    return check


def _min_length(schema: Schema) -> _Checker:
    least = schema["minLength"]

    def check(data: object) -> None:
        if isinstance(data, str) and len(data) < least:
            raise _Wrong(data, "a text that is not empty")

    return check


def _is_a(data: object, name: str) -> bool:
    if not isinstance(data, _TYPES[name]):
        return False
    if isinstance(data, bool):
        return name == "boolean"
    if name != "integer" or not isinstance(data, float):
        return True
    return data.is_integer() and abs(data) < _WHOLE


def _check_range(data: object, schema: Schema) -> None:
    if not isinstance(data, (int, float)) or isinstance(data, bool):
        return
    huge = _HUGE_INTEGER if isinstance(data, int) else _HUGE
    if not -huge < data < huge:
        raise _Wrong(data, "a finite number: an integer below 2^64, or below 1e30")
    if data < schema.get("minimum", data):
        raise _Wrong(data, f"at least {schema['minimum']}")
    if data > schema.get("maximum", data):
        raise _Wrong(data, f"at most {schema['maximum']}")


def _required(schema: Schema) -> _Checker:
    names = schema["required"]

    def check(data: object) -> None:
        if isinstance(data, dict):
            for name in names:
                if name not in data:
                    raise _Wrong(f"no {name!r}", f"the key {name!r}")

    return check


def _object(schema: Schema) -> _Checker:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    any_other = _checker(rest) if isinstance(rest, Mapping) else _check_free if rest else None
    of_name = {name: _checker(inner) for name, inner in known.items() if isinstance(inner, Mapping)}

    def check(data: object) -> None:
        if not isinstance(data, dict):
            return
        name = ""
        try:
            for name, item in data.items():
                one = of_name.get(name, any_other)
                if one is not None:
                    one(item)
        except _Wrong as wrong:
            wrong.path.append(f".{name}")
            raise

    return check


def _check_free(data: Any, depth: int = _DEEPEST) -> None:
    """What may be anything is shown all the same: no depth and no number that a view chokes on."""
    kind = type(data)
    if kind in _HELD:
        return
    if kind is dict or kind is list:
        if not depth:
            raise _Wrong(data, f"at most {_DEEPEST} levels")
        for item in data.values() if kind is dict else data:
            if type(item) not in _HELD:
                _check_free(item, depth - 1)
    else:
        _check_range(data, {})


def _list(schema: Schema) -> _Checker:
    one = _checker(schema["items"])

    def check(data: object) -> None:
        if not isinstance(data, list):
            return
        index = 0
        try:
            for index in range(len(data)):
                one(data[index])
        except _Wrong as wrong:
            wrong.path.append(f"[{index}]")
            raise

    return check


_KEYWORDS: dict[str, Callable[[Schema], _Checker]] = {
    "const": _const,
    "enum": _enum,
    "type": _type,
    "minLength": _min_length,
    "required": _required,
    "items": _list,
}
"""In the order in which they are looked at."""


def _wrong(path: str, seen: object, expected: str) -> InputError:
    shown = seen if isinstance(seen, str) and seen.startswith("no '") else _short(seen)
    return InputError(f"{path}: {shown}", expected=expected)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) > _HUGE:
        return "a number of more than 30 digits"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _prune(data: Any, schema: Schema) -> Any:
    schema = _resolve(schema)
    if isinstance(data, list):
        return [_prune(item, schema.get("items", {})) for item in data]
    if type(data) is float:  # JSON Schema takes 3.0 for an integer too
        return int(data) if "integer" in schema.get("type", ()) else data
    if not isinstance(data, dict) or not schema:
        return data
    known = schema.get("properties", {})
    rest = schema.get("additionalProperties", "properties" not in schema)
    if rest is True:
        return data  # facts and settings, by whatever version
    # Most of a large run are single values: those are taken as they are, without another call.
    return {
        name: item if type(item) in _PLAIN else _prune(item, known.get(name, rest))
        for name, item in data.items()
        if rest or name in known
    }
