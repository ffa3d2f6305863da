"""A cluster file's commented template, and its JSON Schema (2020-12) for editors."""

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirespeed.errors import StorageError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


_HEAD = """\
# One training environment for `wirespeed cluster`. All keys are here, each explained by the line
# above it. A key behind a # without a space is not set: it shows its default, or an example.
# Check the file: wirespeed cluster validate FILE
# Completion in editors: wirespeed cluster schema --write schema.json, and as the first line
# here: # yaml-language-server: $schema=schema.json (its path from this file)
"""
_WIDTH = 96
_PLAIN = re.compile(r"[A-Za-z/^][A-Za-z0-9_./^+-]*(?::[A-Za-z0-9_./+-]+)*|[0-9]+[MGTP]i?")
"""Text that YAML reads as itself, also inside brackets."""
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


def new_text(values: Mapping[str, object]) -> str:
    """The template with these values. UsageError, in the words of the command line, for a wrong one."""
    from wirespeed.clusters.reading import ClusterFileError, read_cluster

    text = template(values)
    try:
        read_cluster(text, "the new file")
    except ClusterFileError as error:
        raise UsageError("\n".join(str(one) for one in error.problems)) from None
    return text


def check_value(key: str, value: object) -> None:
    """UsageError where this key cannot have that value."""
    new_text({"cluster.name": "x", key: value})


def template(values: Mapping[str, object], remarks: Mapping[str, str] | None = None) -> str:
    """A cluster file. Keys are dotted: `network.rdma.devices`.

    values: what is set (text, numbers, bool, lists and maps of those). remarks: more about a key,
    such as where its value was found; stands above it.
    """
    from wirespeed.clusters.file import ClusterFile

    lines = _section(ClusterFile, "", values, remarks or {}, depth=0)
    return _HEAD + "\n".join(lines) + "\n"


def _section(
    model: "type[BaseModel]",
    before: str,
    values: Mapping[str, object],
    remarks: Mapping[str, str],
    depth: int,
) -> Iterator[str]:
    indent = "  " * depth
    for name, info in model.model_fields.items():
        key = before + name
        from wirespeed.clusters.reading import part_of

        part = part_of(info.annotation)
        if depth == 0:
            yield ""
        about = info.description or (part.__doc__ if part else "") or ""
        yield from _comment(about, indent)
        yield from _comment(remarks.get(key, ""), indent)
        if part and not isinstance(info.default, tuple):
            yield f"{indent}{name}:"
            yield from _section(part, f"{key}.", values, remarks, depth + 1)
        elif key in values:
            yield from _lines(name, values[key], indent)
        else:
            shown = _items(name, part) if part else _lines(name, _example(info), "")
            yield from (_unset(line, indent) for line in shown)


def _unset(line: str, indent: str) -> str:
    """Commented out, so that a # without a space behind it is one to remove."""
    text = line.lstrip(" ")
    behind = " " * (len(line) - len(text))
    return f"{indent}{behind}{'' if text.startswith('#') else '#'}{text}"


def _example(info: "FieldInfo") -> object:
    """The default, or an example where that is nothing."""
    if info.examples and (info.is_required() or info.default in ("", (), {}, None)):
        return info.examples[0]
    return None if info.is_required() else info.default


def _items(name: str, part: "type[BaseModel]") -> Iterator[str]:
    """A list with one item that has every key."""
    yield f"{name}:"
    yield from _comment(part.__doc__ or "", "  ")
    yield "  -"
    for key, info in part.model_fields.items():
        yield from _comment(info.description or "", "    ")
        yield from _lines(key, _example(info), "    ")


def _comment(text: str, indent: str) -> Iterator[str]:
    clean = "".join(one if one.isprintable() else " " for one in text)
    for line in textwrap.wrap(clean, _WIDTH - len(indent), break_long_words=False):
        yield f"{indent}# {line}"


def _lines(name: str, value: object, indent: str) -> Iterator[str]:
    """A key with its value."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        yield f"{indent}{name}:"
        for item in value:
            yield f"{indent}  -"
            for key, one in item.items():
                yield from _lines(str(key), one, f"{indent}    ")
    elif isinstance(value, str) and _is_block(value):
        yield f"{indent}{name}: |"
        yield from (f"{indent}  {line}".rstrip() for line in value.split("\n")[:-1])
    else:
        yield f"{indent}{name}: {_flow(value)}".rstrip()


def _is_block(text: str) -> bool:
    """Lines that a block of YAML keeps as they are."""
    lines = text.split("\n")
    tidy = all(line == line.strip() and line.isprintable() for line in lines)
    return len(lines) > 1 and bool(lines[0]) and lines[-1] == "" and bool(lines[-2]) and tidy


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{scalar(str(k))}: {_flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(one) for one in value)}]"
    return scalar(value)


def scalar(value: Any) -> str:
    """Text, a number, a bool or None as YAML has it, quoted where anything else could be meant."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def write_file(path: Path, text: str, *, force: bool) -> None:
    """Whole or not at all. UsageError where one is there and force is not; StorageError otherwise.

    Folders down to `path` are made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, text.encode(), force=force)
    except FileExistsError:
        raise UsageError(
            f"{path} is there already", expected="another name, or --force to overwrite it"
        ) from None
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def _write(path: Path, data: bytes, *, force: bool) -> None:
    new = path.with_name(f".{path.name[:200]}.{os.getpid()}.new")
    try:
        with new.open("xb") as stream:
            stream.write(data)
        if force:
            new.replace(path)
        else:
            os.link(new, path)  # fails where the name is taken, whoever took it in between
    finally:
        with suppress(OSError):
            new.unlink()


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """As plain data. What it accepts is read, unless a rule between keys is broken."""
    from wirespeed.clusters.file import ClusterFile

    made = ClusterFile.model_json_schema()
    parts = made["$defs"]
    for part in [made, *parts.values()]:
        del part["title"]
        needed = part.get("required", ())
        part["properties"] = {
            key: _said(one, parts, needed=key in needed) for key, one in part["properties"].items()
        }
    return {"$schema": DIALECT, "title": "Cluster file of wirespeed", **made}


def schema_text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _said(part: dict[str, Any], parts: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    """A key as people write it: it may be empty if it is not needed, and text look like a number."""
    told = {key: value for key, value in part.items() if key != "title"}
    if section := told.get("$ref"):
        about = told.get("description", parts[section.rpartition("/")[2]]["description"])
        kinds = [{"$ref": section}, *([] if needed else [{"type": "null"}])]
        return {"description": about, "anyOf": kinds}
    if "anyOf" in told:  # a number, or none
        return told
    if "enum" in told:
        return {**told, "type": ["string", "null"], "enum": [*told["enum"], None]}
    return _plain(told) if needed else _or_null(_plain(told))


def _or_null(part: dict[str, Any]) -> dict[str, Any]:
    kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
    return {**part, "type": [*kinds, "null"]}


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """Text of a form that numbers or `true` have, too, needs no quotes."""
    told = dict(part)
    if told["type"] == "array" and "$ref" not in told["items"]:
        told["items"] = _plain(told["items"])
    if told["type"] == "object":
        [(pattern, value)] = told.pop("patternProperties").items()
        told["propertyNames"] = {**told.get("propertyNames", {}), "pattern": pattern}
        told["additionalProperties"] = _or_null(_plain(value))
    if told["type"] == "string":
        also = [kind for kind, text in _LOOKS.items() if re.search(told["pattern"], text)]
        told["type"] = ["string", *also] if also else "string"
    return told


_LOOKS = {"integer": "12", "number": "1.5", "boolean": "true"}
"""What is text to us and another type to an editor."""
