"""Each view of fixed runs, letter for letter (tests/golden/README.md tells how to renew)."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wirespeed.errors import UsageError
from wirespeed.model.records import Run
from wirespeed.runs.schema import load_schema
from wirespeed.views import FORMATS, Style, render
from wirespeed.views.data import document, render_json

STYLES = {
    "plain": Style(),
    "verbose": Style(verbose=True),
    "color": Style(color=True),
    "ascii": Style(ascii=True, width=80),
}
CASES = [
    *[(command, format, "plain") for command in ("check", "bench") for format in FORMATS],
    *[("check", "table", style) for style in ("verbose", "color", "ascii")],
    *[("flip", "table", style) for style in ("plain", "verbose", "ascii")],
    *[("train", format, "plain") for format in ("table", "wide", "md", "csv", "json", "jsonl")],
    ("train", "table", "color"),
    ("train", "table", "ascii"),
    *[("watched", format, "plain") for format in ("table", "wide", "md", "csv", "jsonl")],
    ("watched", "table", "color"),
    ("watched", "wide", "ascii"),
    ("check", "md", "ascii"),
    ("check", "md", "verbose"),
]


@pytest.mark.parametrize(("command", "format", "style"), CASES)
def test_view(
    command: str, format: str, style: str, golden: Path, request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue(command)
    file = golden / f"{command}.{format}.{style}.txt"
    text = render(run, format, STYLES[style])
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if this is wanted, see tests/golden/README.md"


def test_there_is_no_golden_file_without_a_test(golden: Path) -> None:
    expected = {f"{command}.{format}.{style}.txt" for command, format, style in CASES}
    assert {path.name for path in golden.glob("*.txt")} == expected


@pytest.mark.parametrize("command", ["check", "bench", "train"])
def test_json_is_of_the_schema_and_complete(command: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(command)
    data = json.loads(render(run, "json", Style()))
    Draft202012Validator(load_schema()).validate(data)
    assert len(data["measurements"]) == len(run.measurements)
    assert len(data.get("training", [])) == len(run.training)


@pytest.mark.parametrize("command", ["check", "bench", "train"])
def test_each_line_of_jsonl_is_of_the_schema(command: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(command)
    lines = [json.loads(line) for line in render(run, "jsonl", Style()).splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds.count("measurement") == len(run.measurements)
    assert kinds.count("training") == len(run.training)
    assert kinds.count("load") == len(run.under_load)
    assert kinds.count("finding") == len(run.findings)
    assert kinds.count("verification") == len(run.verifications)
    assert kinds[-1] == "run"
    schema = load_schema()
    for line in lines[:-1]:
        part = {"$ref": f"#/$defs/{line['kind']}", "$defs": schema["$defs"]}
        Draft202012Validator(part).validate(line)
        assert line["run"] == run.id
    Draft202012Validator(schema).validate(lines[-1])


def test_an_unknown_format_lists_the_known(check: Run) -> None:
    with pytest.raises(UsageError) as caught:
        render(check, "yaml", Style())
    assert caught.value.expected == ", ".join(FORMATS)


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("which", ["check", "bench", "train", "flip"])
def test_it_is_the_text_of_the_standard_library(
    which: str, ascii: bool, request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue(which)
    odd: dict[str, Any] = {"a": [], "b": {}, 'ü\n"': [True, None, 1, -2.5e-300, "\u2028", "\ud800"]}
    made = replace(run, config={**odd, "c": (math.inf, {1: math.nan}), "d": 10**30})
    expected = json.dumps(document(made), indent=2, ensure_ascii=ascii) + "\n"
    assert render_json(made, Style(ascii=ascii)) == expected
