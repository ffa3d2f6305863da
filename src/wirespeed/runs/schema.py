"""The published shape of a run, `wirespeed.run/1`: a JSON Schema that is made of the records' types.

`schema/run-1.schema.json` is what is shipped; a test holds it equal to what the types say.
"""

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(maxsize=1)
def load_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `run.json` and of `-o json`; do not change what comes back."""
    text = files("wirespeed.runs").joinpath("schema/run-1.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def run_schema() -> dict[str, Any]:
    """The same, made of the types."""
    from wirespeed.model.records import SCHEMA, Run
    from wirespeed.model.validation import json_schema

    parts = dict(json_schema(Run)["$defs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:wirespeed:run:1",
        "title": SCHEMA,
        **parts.pop("run"),
        "$defs": parts,
    }
