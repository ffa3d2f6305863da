"""The published shape of a run, `wirespeed.run/1`, and the check of what is read back.

`schema/run-1.schema.json` is the one definition. The check here walks that file itself and knows
just the keywords that it uses, so that reading a run needs no library; the tests compare its
answers with the jsonschema package's. It is stricter in one point: a number must be finite and
below 1e300, because a figure beyond that is damage.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from wirespeed.errors import InputError

__all__ = ["load_schema", "prune", "validate"]

Schema = Mapping[str, Any]

_HUGE = 1e300
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


def _check(data: object, schema: Schema, path: str) -> None:
    schema = _resolve(schema)
    if "const" in schema and data != schema["const"]:
        raise _wrong(path, data, repr(schema["const"]))
    if "enum" in schema and not (isinstance(data, str) and data in schema["enum"]):
        raise _wrong(path, data, "one of " + ", ".join(schema["enum"]))
    if "type" in schema:
        _check_type(data, schema["type"], path)
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        _check_range(data, schema, path)
    if isinstance(data, str) and len(data) < schema.get("minLength", 0):
        raise _wrong(path, data, "a text that is not empty")
    if isinstance(data, dict):
        _check_object(data, schema, path)
    elif isinstance(data, list) and "items" in schema:
        for index, item in enumerate(data):
            _check(item, schema["items"], f"{path}[{index}]")


def _check_type(data: object, names: str | list[str], path: str) -> None:
    wanted = [names] if isinstance(names, str) else names
    if not any(_is_a(data, name) for name in wanted):
        raise _wrong(path, data, " or ".join(wanted))


def _is_a(data: object, name: str) -> bool:
    if not isinstance(data, _TYPES[name]):
        return False
    if isinstance(data, bool):
        return name == "boolean"
    return name != "integer" or not isinstance(data, float) or data.is_integer()


def _check_range(data: float, schema: Schema, path: str) -> None:
    if not -_HUGE < data < _HUGE:
        raise _wrong(path, data, "a finite number")
    if data < schema.get("minimum", data):
        raise _wrong(path, data, f"at least {schema['minimum']}")
    if data > schema.get("maximum", data):
        raise _wrong(path, data, f"at most {schema['maximum']}")


def _check_object(data: dict[str, Any], schema: Schema, path: str) -> None:
    for name in schema.get("required", ()):
        if name not in data:
            raise _wrong(path, f"no {name!r}", f"the key {name!r}")
    known = schema.get("properties", {})
    rest = schema.get("additionalProperties")
    for name, item in data.items():
        inner = known.get(name, rest)
        if isinstance(inner, Mapping):
            _check(item, inner, f"{path}.{name}")


def _wrong(path: str, seen: object, expected: str) -> InputError:
    shown = seen if isinstance(seen, str) and seen.startswith("no '") else _short(seen)
    return InputError(f"{path}: {shown}", expected=expected)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) > _HUGE:
        return "a number of more than 300 digits"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _prune(data: Any, schema: Schema) -> Any:
    schema = _resolve(schema)
    if isinstance(data, list):
        return [_prune(item, schema.get("items", {})) for item in data]
    if schema.get("type") == "integer":
        return int(data)  # JSON Schema takes 3.0 for an integer too
    known = schema.get("properties")
    if not isinstance(data, dict) or known is None:
        return data
    return {name: _prune(item, known[name]) for name, item in data.items() if name in known}
