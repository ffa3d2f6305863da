"""The JSON Schema of cluster files (2020-12): completion, help and checks in editors."""

import json
import re
from typing import Any

__all__ = ["DIALECT", "HINT", "schema", "schema_text"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
HINT = "# yaml-language-server: $schema="
"""First line of a file whose editor is to know the schema: followed by its path or address."""


def schema() -> dict[str, Any]:
    """As plain data. What it accepts is read, unless a rule between keys is broken."""
    from wirespeed.clusters.file.model import ClusterFile

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
