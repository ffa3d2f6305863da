"""The schema and docs/run-schema.md say what the types do; WIRESPEED_RENEW_GOLDEN=1 writes both anew."""

import json
import os
from pathlib import Path
from typing import Any

from wirespeed.runs import schema as published
from wirespeed.runs.schema import load_schema, run_schema

PAGE = Path(__file__).parents[2] / "docs" / "run-schema.md"
SCHEMA = Path(published.__file__).with_name("schema") / "run-1.schema.json"
MARK = "<!-- fields: written from the schema by tests/runs/test_schema_docs.py -->\n"


def kind(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if schema["type"] == "array":
        return f"list of {kind(schema['items'])}"
    if "type" not in schema:
        return "any"
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if schema.get("additionalProperties") == {"type": "string"}:
        return "object of texts"
    return " or ".join(names)


def table(title: str, schema: dict[str, Any]) -> str:
    lines = [
        f"## {title}",
        "",
        schema.get("description", ""),
        "",
        "| key | type | what |",
        "|---|---|---|",
    ]
    for name, part in schema["properties"].items():
        need = ", required" if name in schema.get("required", ()) else ""
        lines.append(f"| `{name}` | {kind(part)}{need} | {part.get('description', '')} |")
    return "\n".join(lines)


def test_the_schema_is_made_of_the_types() -> None:
    new = json.dumps(run_schema(), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        SCHEMA.write_text(new)
    assert SCHEMA.read_text() == new, (
        "renew it: WIRESPEED_RENEW_GOLDEN=1 pytest tests/runs/test_schema_docs.py"
    )
    load_schema.cache_clear()


def test_the_page_lists_the_schema() -> None:
    schema = load_schema()
    tables = [table("run", schema)]
    tables += [table(name, part) for name, part in schema["$defs"].items()]
    head, mark, old = PAGE.read_text().partition(MARK)
    new = "\n" + "\n\n".join(tables) + "\n"
    assert mark
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        PAGE.write_text(head + MARK + new)
    else:
        assert old == new, (
            "renew it: WIRESPEED_RENEW_GOLDEN=1 pytest tests/runs/test_schema_docs.py"
        )
