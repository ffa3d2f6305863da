"""The types of the JSON that records are stored as, for msgspec, and the JSON Schema of them.

A record's type is a TypedDict, so that what msgspec has checked is still plain data. The check is
stricter than the schema in two points: a number must be below 1e30 (an integer below 2^63), because a
figure beyond that is damage, and what may be anything (settings, facts) is nested 16 deep at most.
"""

import json
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypedDict,
    Union,
    get_args,
    get_origin,
)

import msgspec

from wirespeed.errors import InputError
from wirespeed.model.field_types import ALWAYS, CHECKED, SPARSE, SPLIT, Keys, Unit, field_docs
from wirespeed.model.node_facts import ALL_FACTS, FACT_NAMES
from wirespeed.model.training_records import Ends

_HUGE = 1e30
_HUGE_INTEGER = 1 << 63
_WHOLE = 1 << 53
"""Beyond it a float tells no integer."""
_DEEPEST = 16
_NAMES = {"LoadFigures": "load", "NodeFacts": "node", "PairFigures": "pair", "TimeStats": "time"}
"""Published names of parts that are called otherwise here."""
FREE = dict[str, Any]
"""A mapping of anything."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a field stands in JSON."""

    name: str
    key: str
    annotation: Any
    unit: Unit | None
    required: bool
    computed: bool
    """Whether the record makes it itself."""
    marks: tuple[Any, ...]

    @property
    def ends_key(self) -> str:
        """Of a ratio that is split: where its ends stand."""
        return f"{self.name}_interval{self.unit.ending if self.unit else ''}"


def places(kind: Any, unit: Unit | None) -> list[Place]:
    """Fields of a record or TypedDict by their keys: first those without a unit of their own."""
    own_fields = {one.name: one for one in fields(kind)} if is_dataclass(kind) else {}
    found = []
    for name, annotation in typing.get_type_hints(kind, include_extras=True).items():
        marks = getattr(annotation, "__metadata__", ())
        own = next((mark for mark in marks if isinstance(mark, Unit)), None)
        field = own_fields.get(name)
        found.append(
            Place(
                name=name,
                key=name + (own.ending if own else ""),
                annotation=annotation,
                unit=own or unit,
                required=ALWAYS in marks
                or (field is not None and field.default is field.default_factory is MISSING),
                computed=field is not None and not field.init,
                marks=marks,
            )
        )
    return sorted(found, key=lambda one: one.key != one.name)


def optional(annotation: Any) -> Any:
    """X of `X | None`; None for other types."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return None
    rest = [one for one in get_args(annotation) if one is not type(None)]
    return rest[0] if len(rest) == 1 else None


class Free:
    """A mapping of anything, that has been looked at."""

    keys: Any = None
    """The types of keys that are known, of facts."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data


def checked(kind: Any, data: object, source: str) -> Any:
    """`data` without keys that are not known, of the types of `kind`.

    InputError gives the path in the document, what was seen and what was expected.
    """
    try:
        return msgspec.convert(data, json_type(kind), dec_hook=_free)
    except msgspec.ValidationError as error:
        raise _refusal(data, kind, str(error), source) from None


def fitting(facts: dict[str, Any]) -> set[str]:
    """Names of facts that we know and that are of the type we know."""
    names = {name for name in facts.keys() & FACT_NAMES if facts[name] is not None}
    try:
        msgspec.convert(facts, json_type(ALL_FACTS), dec_hook=_free)
    except msgspec.ValidationError:
        return {name for name in names if len(facts) > 1 and fitting({name: facts[name]})}
    return names


@cache
def json_schema(kind: Any) -> dict[str, Any]:
    """Of a record, with what its docstrings say; do not change what comes back."""
    schema: dict[str, Any] = _plain(msgspec.json.schema(json_type(kind, schema=True)))
    return schema


def _plain(part: Any) -> Any:
    """Without titles; texts in the order of the type; `["number", "null"]` for a number or null."""
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {
        name: _plain(one) for name, one in part.items() if name != "title" or isinstance(one, dict)
    }
    if found.get("required") == []:
        del found["required"]
    if order := found.pop("order", None):
        found["enum"] = order
    if found.get("enum") and not found["enum"][1:]:
        found["const"] = found.pop("enum")[0]
    match found.get("anyOf"):
        case [{"type": str(kind)} as one, {"type": "null"}]:
            del found["anyOf"]
            return {**one, **found, "type": [kind, "null"]}
    return found


def _free(kind: type[Free], data: Any) -> Free:
    """msgspec calls it for each mapping of anything; what it raises is told with the place."""
    if type(data) is not dict:
        raise ValueError("Expected `object`")
    if odd := _oddity(data):
        raise ValueError(f"Expected {odd[1]} - at `${odd[0]}`")
    if kind.keys is not None:
        try:
            msgspec.convert(data, kind.keys, dec_hook=_free)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None  # so that the place within is added to
    return kind(data)


def _oddity(data: Any, depth: int = _DEEPEST) -> tuple[str, str] | None:
    """Where in it, and what was expected there; None where there is nothing to say.

    What may be anything is shown all the same: no depth and no number that a view chokes on.
    """
    kind = type(data)
    if kind is dict or kind is list:
        if not depth:
            return "", f"at most {_DEEPEST} levels"
        for key, item in data.items() if kind is dict else enumerate(data):
            if type(item) not in (str, bool, type(None)) and (odd := _oddity(item, depth - 1)):
                return f".{key}{odd[0]}" if kind is dict else f"[{key}]{odd[0]}", odd[1]
    elif kind is int and not -2 * _HUGE_INTEGER < data < 2 * _HUGE_INTEGER:
        return "", "a finite number: an integer below 2^64"
    elif kind is float and not -_HUGE < data < _HUGE:
        return "", "a finite number, below 1e30"
    return None


@cache
def json_type(annotation: Any, unit: Unit | None = None, *, schema: bool = False) -> Any:
    """The type of the JSON, for msgspec; a record's is a TypedDict.

    schema: as it is published: with descriptions, and without what is only about damage.
    """

    def of(inner: Any) -> Any:
        return json_type(inner, unit, schema=schema)

    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotated(args[0], args[1:], unit, schema)
    if is_dataclass(annotation) or typing.is_typeddict(annotation):
        return _object(annotation, unit, schema)
    if origin in (tuple, list):
        return list[of(args[0])]  # type: ignore[misc]
    if annotation == FREE:
        return annotation if schema else Free
    if origin is dict:
        return dict[str, of(args[1])]  # type: ignore[misc]
    if literals := _literals(annotation):
        kept = msgspec.Meta(extra_json_schema={"order": literals})  # msgspec sorts them
        return Annotated[Literal[tuple(literals)], kept]
    if origin in (Union, types.UnionType):
        return Union[tuple(of(one) for one in args)]  # noqa: UP007
    return _number(annotation, (), schema) if annotation in (int, float) else annotation


def _literals(annotation: Any) -> list[str]:
    """The texts of a Literal, or of several; none of other types."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    found = [_literals(one) for one in get_args(annotation)]
    return [text for texts in found for text in texts] if all(found) else []


def _without_null(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return Annotated[(_without_null(inner), *marks)]
    return optional(annotation) or annotation


def _annotated(kind: Any, marks: tuple[Any, ...], unit: Unit | None, schema: bool) -> Any:
    unit = next((one for one in marks if isinstance(one, Unit)), unit)
    metas = tuple(one for one in marks if isinstance(one, msgspec.Meta))
    for mark in marks:
        if isinstance(mark, Keys):
            known = json_type(mark.known, None, schema=schema)
            return known if schema else type("_Known", (Free,), {"keys": known})
    if kind in (int, float):
        return _number(kind, metas, schema)
    made = json_type(kind, unit, schema=schema)
    return Annotated[(made, *metas)] if metas else made


def _number(kind: type, metas: tuple[msgspec.Meta, ...], schema: bool) -> Any:
    """An integer where a float may stand stays one, and 3.0 is an integer, too."""
    if schema:
        return Annotated[(kind, *metas)] if metas else kind
    low, high = (metas[0].ge, metas[0].le) if metas else (None, None)
    most, whole = (_HUGE, None) if kind is float else (float(_WHOLE), 1)
    integer = msgspec.Meta(
        ge=-_HUGE_INTEGER if low is None else int(low),
        le=_HUGE_INTEGER - 1 if high is None else int(high),
    )
    other = msgspec.Meta(
        ge=-most if low is None else low, le=most if high is None else high, multiple_of=whole
    )
    return Annotated[int, integer] | Annotated[float, other]


def _object(kind: Any, unit: Unit | None, schema: bool) -> Any:
    """Of a record, or of a TypedDict, none of whose keys must be there."""
    name = _NAMES.get(kind.__name__) or snake(kind.__name__)
    name += unit.ending if unit else ""
    keys: dict[str, Any] = {}
    for place in places(kind, unit):
        stored = place.annotation
        if {SPARSE, CHECKED} & set(place.marks):  # the key is absent rather than null
            stored = _without_null(stored)
        keys[place.key] = json_type(stored, unit, schema=schema), place
        if SPLIT in place.marks:
            keys[place.key] = json_type(float | None, schema=schema), place
            keys[place.ends_key] = json_type(Ends | None, place.unit, schema=schema), place
    if schema:
        return _described_object(name, kind, keys, unit)
    wrapped = {
        key: Required[made] if place.required else NotRequired[made]
        for key, (made, place) in keys.items()
    }
    return TypedDict(name, wrapped)  # type: ignore[operator]


def _described_object(name: str, kind: Any, keys: dict[str, Any], unit: Unit | None) -> Any:
    """The same as a class whose schema has the keys in their order, with what docstrings say."""
    about = field_docs(kind)
    parts = []
    for number, (key, (made, place)) in enumerate(keys.items()):
        said = about.get(place.name, "")
        is_float = made is float or (get_origin(made) is Annotated and get_args(made)[0] is float)
        if place.unit and (place.unit is not unit or is_float):
            said = f"{said.rstrip('.')}, {place.unit.said}."
        described = Annotated[made, msgspec.Meta(description=said)] if said else made
        given = {} if place.required else {"default_factory": lambda: None}
        parts.append((f"key_{number}", described, msgspec.field(name=key, **given)))
    doc = " ".join((kind.__doc__ or "").split())
    return msgspec.defstruct(name, parts, kw_only=True, namespace={"__doc__": doc})


def snake(name: str) -> str:
    """`soak_window` of `SoakWindow`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip("_")).lower()


# What is wrong.

_AT = re.compile(r" - at `\$(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*?)`")


def _refusal(data: object, kind: Any, message: str, source: str) -> InputError:
    """What msgspec refused: its place is in the message, what stands there is looked up."""
    said = message.partition(" - at `")[0].removeprefix("Expected ")
    path = "".join(reversed(_AT.findall(message)))
    if missing := _MISSING.match(said):
        return InputError(
            f"{source}: ${path}: no {missing[1]!r}", expected=f"the key {missing[1]!r}"
        )
    schema = json_schema(kind)
    found = list(_at(path, "", data, schema, schema))
    where, seen, part = next((one for one in found if not _fits(*one[1:])), found[0])
    expected = said if "`" not in said and not said.startswith("Invalid") else _described(part)
    if isinstance(seen, (int, float)) and abs(seen) >= _HUGE_INTEGER and _fits(seen, part):
        expected += ", below 1e30 (an integer: 2^63)"
    return InputError(f"{source}: ${where}: {_short(seen)}", expected=expected)


def _at(path: str, where: str, data: Any, part: Any, schema: Any) -> Iterator[tuple[str, Any, Any]]:
    """What stands at that path, and what the schema says of it; `[...]` is any value of a mapping."""
    part = _resolved(part, schema)
    if not path:
        yield where, data, part
    elif path.startswith("["):
        inside, _, rest = path[1:].partition("]")
        part = part.get("items") or part.get("additionalProperties")
        if inside.isdigit():
            yield from _at(rest, f"{where}[{inside}]", data[int(inside)], part, schema)
        else:
            for key, value in data.items():
                yield from _at(rest, f"{where}.{key}", value, part, schema)
    elif isinstance(data, dict):
        name = max((one for one in data if path.startswith(f".{one}")), key=len, default=None)
        if name is not None:
            part = part.get("properties", {}).get(name)
            yield from _at(path[len(name) + 1 :], f"{where}.{name}", data[name], part, schema)


_PYTHON: dict[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
    "boolean": bool,
}


def _fits(value: Any, part: Any) -> bool:
    """Whether its type and bounds are right, so that another one was refused."""
    kinds = part.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool) and "boolean" not in kinds:
        return False
    number = isinstance(value, (int, float))
    return any(isinstance(value, _PYTHON[kind]) for kind in kinds if kind != "null") and not (
        number and not part.get("minimum", value) <= value <= part.get("maximum", value)
    )


def _resolved(part: Any, schema: Any) -> Any:
    """Of what may be null, what it is otherwise."""
    if isinstance(part, dict) and "anyOf" in part:
        part = next(one for one in part["anyOf"] if one != {"type": "null"})
    if isinstance(part, dict) and "$ref" in part:
        return schema["$defs"][part["$ref"].rpartition("/")[2]]
    return part if isinstance(part, dict) else {}


def _described(part: Any) -> str:
    if "enum" in part:
        return "one of " + ", ".join(part["enum"])
    if "const" in part:
        return repr(part["const"])
    words = {"number": "a finite number", "string": "a string", "array": "a list"}
    kind = part.get("type", "")
    kind = kind[0] if isinstance(kind, list) else kind
    found = words.get(kind, f"an {kind}" if kind else "")
    found += " that is not empty" if "minLength" in part else ""
    found += f", at least {part['minimum']:g}" if "minimum" in part else ""
    return found + (f", at most {part['maximum']:g}" if "maximum" in part else "")


def _short(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) > _HUGE:
        return "a number of more than 30 digits"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
