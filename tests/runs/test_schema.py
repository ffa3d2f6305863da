"""The published schema against the records, and our own reader against jsonschema."""

import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wirespeed.errors import InputError
from wirespeed.model import records
from wirespeed.model.codec import from_json, to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.schema import load_schema


def check(data: Any, source: str = "run") -> Run:
    return validated(Run, data, source=source)


def strict(schema: Any) -> Any:
    """The schema as it is for writers: no key beyond the known ones."""
    if isinstance(schema, dict):
        out = {name: strict(value) for name, value in schema.items()}
        if "properties" in out and isinstance(out["properties"], dict) and "required" in out:
            out["additionalProperties"] = False
        return out
    return [strict(item) for item in schema] if isinstance(schema, list) else schema


def test_it_is_a_schema_of_2020_12() -> None:
    Draft202012Validator.check_schema(load_schema())


@pytest.mark.parametrize("name", ["check", "bench"])
def test_what_we_write_has_exactly_that_shape(golden: Path, name: str) -> None:
    run = from_json(Run, json.loads((golden / f"{name}.run.json").read_text()))
    data = to_json(run)
    Draft202012Validator(strict(load_schema())).validate(data)
    check(data)


PARTS = {
    "subject": records.Subject,
    "finding": records.Finding,
    "time_us": records.TimeStats,
    "measurement": records.Measurement,
    "wrong_data": records.WrongData,
    "verification": records.Verification,
    "node": records.NodeFacts,
    "world": records.World,
    "choice": records.Choice,
    "": records.Run,
}
RENAMED = {
    "time": "time_us",
    "algbw": "algbw_GBps",
    "busbw": "busbw_GBps",
    "skew": "skew_us",
    "rank_medians": "rank_medians_us",
}


@pytest.mark.parametrize("part", PARTS)
def test_every_field_of_the_records_is_described(part: str) -> None:
    schema = load_schema()["$defs"][part] if part else load_schema()
    fields = {RENAMED.get(f.name, f.name): f for f in dataclasses.fields(PARTS[part])}
    assert set(schema["properties"]) == set(fields)
    needed = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    assert set(schema["required"]) - {"schema", "subject"} == needed - {"subject"}
    for name, described in schema["properties"].items():
        assert described.get("description"), f"{part}.{name}"


def test_units_stand_in_the_descriptions() -> None:
    found = {"_us": 0, "_GBps": 0}
    for schema in [load_schema(), *load_schema()["$defs"].values()]:
        for name, described in schema["properties"].items():
            for ending, words in (("_us", ("µs", "Time of")), ("_GBps", ("10^9 bytes",))):
                if name.endswith(ending):
                    found[ending] += 1
                    assert any(word in described["description"] for word in words), name
    assert all(found.values())


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(data, (dict, list)):
        for key, item in data.items() if isinstance(data, dict) else enumerate(data):
            yield from paths(item, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


def accepts(data: Any) -> bool:
    try:
        check(data)
    except InputError:
        return False
    return True


@pytest.mark.slow
def test_our_reader_judges_as_jsonschema_does(small_run: Run) -> None:
    data = to_json(small_run)
    official = Draft202012Validator(load_schema())
    answers = {True: 0, False: 0}
    for path in paths(data):
        for value in (..., None, "x", "", -7, 3, 3.0, 1.5, True, [], {}, {"a": 1}, [1]):
            other = changed(data, path, value)
            expected = official.is_valid(other)
            answers[expected] += 1
            assert accepts(other) == expected, (path, value)
    assert all(count > 100 for count in answers.values())


def test_whatever_our_reader_accepts_becomes_a_run(small_run: Run) -> None:
    data = to_json(small_run)
    for path in paths(data):
        for value in (..., None, "", 0, 3.0, [], {}):
            other = changed(data, path, value)
            if accepts(other):
                assert isinstance(check(other), Run)


def test_unknown_keys_are_dropped_on_reading(small_run: Run) -> None:
    data = to_json(small_run)
    data["later"] = 1
    data["measurements"][0]["later"] = {"x": 1}
    data["measurements"][0]["time_us"]["p99.9"] = 3.0
    data["world"]["nodes"][0]["facts"]["free"] = [1, {"kept": True}]
    run = check(data)
    assert run.world.nodes[0].facts.other["free"] == [1, {"kept": True}]
    assert dataclasses.replace(run, world=small_run.world) == small_run


@pytest.mark.parametrize(
    ("path", "value", "said", "expected"),
    [
        (("verdict",), "MAYBE", '$.verdict: "MAYBE"', "one of READY, NOT READY, UNKNOWN"),
        (("schema",), "other/1", '$.schema: "other/1"', "'wirespeed.run/1'"),
        (("measurements", 0, "time_us", "p95"), None, "$.measurements[0].time_us.p95", "number"),
        (("measurements", 0, "iterations"), 1.5, "$.measurements[0].iterations: 1.5", "integer"),
        (("measurements", 0, "count"), -1, "$.measurements[0].count: -1", "at least 0"),
        (("measurements", 0, "last_share"), 2, "$.measurements[0].last_share: 2", "at most 1"),
        (("seconds",), 10**400, "$.seconds: a number of more than", "finite"),
        (("world",), ..., "$: no 'world'", "the key 'world'"),
        (("id",), "", '$.id: ""', "not empty"),
    ],
)
def test_an_error_names_path_sight_and_expectation(
    small_run: Run, path: tuple[Any, ...], value: Any, said: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        check(changed(to_json(small_run), path, value), source="a/run.json")
    assert said in caught.value.saw
    assert caught.value.saw.startswith("a/run.json: ")
    assert expected in caught.value.expected


@pytest.mark.parametrize("data", [None, 1, "x", [], {}, {"schema": "wirespeed.run/1"}])
def test_what_is_no_run_is_refused(data: Any) -> None:
    with pytest.raises(InputError):
        check(data)
