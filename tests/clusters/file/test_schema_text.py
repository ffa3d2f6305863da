"""The JSON Schema: valid itself, every key described, and no red line under what is read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from wirespeed.clusters.reading import all_keys
from wirespeed.clusters.template import DIALECT, schema, schema_text, template

SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def parts() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, part in [("", SCHEMA), *SCHEMA["$defs"].items()]:
        for key, one in part["properties"].items():
            yield f"{name}.{key}", one


def test_it_is_a_schema_of_the_dialect_it_names() -> None:
    assert SCHEMA["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(schema_text()) == SCHEMA


def test_every_key_is_described() -> None:
    assert [key for key, part in parts() if not part.get("description")] == []


def test_every_key_is_there() -> None:
    names = {path.rpartition(".")[2] for path in all_keys()}
    assert {key.rpartition(".")[2] for key, _ in parts()} == names


def test_unknown_keys_are_refused_everywhere() -> None:
    sections = [SCHEMA, *SCHEMA["$defs"].values()]
    assert all(section["additionalProperties"] is False for section in sections)


def test_the_older_tools_file_is_valid() -> None:
    text = Path(__file__).with_name("older.yaml").read_text("utf-8")
    VALIDATOR.validate(yaml.safe_load(text))


def test_the_template_is_valid() -> None:
    VALIDATOR.validate(yaml.safe_load(template({"cluster.name": "a"})))


@pytest.mark.parametrize(
    "data",
    [
        {"cluster": {"name": "A"}},
        {"cluster": {"name": None}},
        {"cluster": {}},
        {"cluster": {"name": "a"}, "gpus": {"per_node": 65}},
        {"cluster": {"name": "a"}, "workload": {"env": {"a b": "c"}}},
        {"cluster": {"name": "a"}, "workload": {"env": {"A": "c\nd"}}},
        {"cluster": {"name": "a"}, "nccl": {"debug": "LOUD"}},
    ],
)
def test_it_refuses(data: Any) -> None:
    assert not VALIDATOR.is_valid(data)
