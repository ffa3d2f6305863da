"""Inputs for the reader of cluster files: what the schema allows, that with damage, raw text."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import jsonschema
import yaml
from hypothesis import strategies as st
from pydantic import ValidationError

from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.presets import preset_names
from wirespeed.clusters.reading import ClusterFileError, read_cluster
from wirespeed.clusters.template import schema
from wirespeed.yaml_tree import parse

SCHEMA = schema()
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = (
    "", " ", "\t", "\0", "\x1b[31m", "../../etc/passwd", "$(reboot)", "`reboot`", "${HOME}", "a\nb",
    "'", '"', "'; rm -rf /; '", "!!python/object/apply:os.system [id]", "&a", "*a", "<<", "no", "on",
    "012", "0x1f", "1e3", "1_000", ".inf", "-1", "99999999999999999999", "null", "~", "---", "...",
    "{}", "[", "]", "{", "# x", ": ", "- ", "? ", "| ", "> ", "%YAML 1.1", "@x", "A" * 5000, "…",
    "\u202e", "\u2028", "\x85", "\ufeff", "😀", "\\ud800", "{{ x }}", "%s", "--all", "-o", "x=y,z=w",
)  # fmt: skip
"""Text that has hurt some program: shells, templates, terminals, YAML readers."""
JUNK = (None, True, False, 0, -1, 2**70, 1.5, 1e400, [], {}, [[]], {"": {}}, [None], {"a": None})
SNIPPETS = (
    "\t", "\n", "\n\t", "\0", "&a ", "*a", "!!python/name:os.system ", "!x ", "\n---\n", "\n...\n",
    '"', "'", "[", "]", "{", "}", ",", ": ", "\n- ", "\n? ", "#", "|\n", ">\n", "\r", "\x85", "\ufeff",
    "<<: *a\n", "cluster:\n", "\ncluster: {name: x}\n", "%TAG ! tag:x\n", "\\", "[" * 60, "{a: " * 60,
)  # fmt: skip
"""What is put into the middle of a text that was right."""

_VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
Strategy = st.SearchStrategy[Any]


def _leaves(part: Mapping[str, Any], before: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Schema of each key that is no section, by its path."""
    found = {}
    for name, one in part["properties"].items():
        section = next((x["$ref"] for x in one.get("anyOf", ()) if "$ref" in x), None)
        if section:
            found |= _leaves(_resolved({"$ref": section}), (*before, name))
        else:
            found[*before, name] = one
    return found


def _resolved(part: Mapping[str, Any]) -> Mapping[str, Any]:
    if ref := part.get("$ref"):
        found: Mapping[str, Any] = SCHEMA["$defs"][ref.rpartition("/")[2]]
        return found
    return part


def valid(part: Mapping[str, Any]) -> Strategy:
    """Values that the schema allows at this place."""
    part = _resolved(part)
    if "anyOf" in part:
        return st.one_of([valid(one) for one in part["anyOf"]])
    if "enum" in part:
        return st.sampled_from(part["enum"])
    kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
    return st.one_of([_KINDS[kind](part) for kind in kinds if _is_made(kind, part)])


def _is_made(kind: str, part: Mapping[str, Any]) -> bool:
    """Numbers and bools in place of text may have a form that the text must not have: left out."""
    return kind in ("string", "null", "array", "object") or "pattern" not in part


def _text(part: Mapping[str, Any]) -> Strategy:
    """Known good ones mostly, since texts of a regular expression are slow to make."""
    known = [one for one in (part.get("default"), *part.get("examples", ())) if one is not None]
    found = st.from_regex(part["pattern"], fullmatch=True)
    short = found.filter(lambda text: len(text) <= part["maxLength"])
    if not known:
        return short
    return st.integers(0, 3).flatmap(lambda kind: st.sampled_from(known) if kind else short)


def _map(part: Mapping[str, Any]) -> Strategy:
    if "properties" not in part:
        names = _text(part["propertyNames"])
        return st.dictionaries(names, valid(part["additionalProperties"]), max_size=2)
    made = {key: valid(one) for key, one in part["properties"].items()}
    needed = {key: made.pop(key) for key in part.get("required", ())}
    return st.fixed_dictionaries(needed, optional=made)


_KINDS: dict[str, Callable[[Mapping[str, Any]], Strategy]] = {
    "string": _text,
    "integer": lambda part: st.integers(part["minimum"], part["maximum"]),
    "boolean": lambda part: st.booleans(),
    "null": lambda part: st.none(),
    "array": lambda part: st.lists(valid(part["items"]), max_size=2),
    "object": _map,
}
_LEAVES = {path: valid(part) for path, part in _leaves(SCHEMA).items()}
_PATHS = st.lists(st.sampled_from(sorted(_LEAVES)), max_size=4, unique=True)
_JUNK = st.one_of(
    st.sampled_from(JUNK), st.sampled_from(HOSTILE), st.text(max_size=20), st.integers()
)
_NAMES = st.one_of(
    st.sampled_from(HOSTILE), st.sampled_from([path[-1] for path in _LEAVES]), st.text(max_size=8)
)


@st.composite
def files(draw: Any) -> dict[str, Any]:
    """A few keys with values that the schema allows; rules between keys may be broken."""
    data: dict[str, Any] = {"cluster": {"name": "x"}}
    for path in draw(_PATHS):
        _put(data, path, draw(_LEAVES[path]))
    data["cluster"]["name"] = data["cluster"].get("name") or "x"
    return data


@st.composite
def damaged(draw: Any) -> Any:
    """The same with wrong values, unknown keys, wrong shapes and deep nesting."""
    data: Any = draw(files())
    for path in draw(_PATHS):
        cut = draw(st.integers(1, len(path)))
        name = draw(st.one_of(st.just(path[cut - 1]), _NAMES))
        # Of its own: the next may go into it, and a map within itself is no file.
        _put(data, (*path[: cut - 1], name), deepcopy(draw(_JUNK)))
    depth = draw(st.sampled_from((0, 0, 0, 1, 19, 25, 200)))
    for _ in range(depth):
        data = [data] if depth % 2 else {"cluster": data}
    return data


@st.composite
def texts(draw: Any) -> str:
    """A file's text with snippets put in anywhere, and parts cut out."""
    text = written(draw(files()), draw(st.booleans()))
    for snippet in draw(st.lists(st.sampled_from((*SNIPPETS, *HOSTILE)), max_size=3)):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + snippet + text[at + draw(st.integers(0, 4)) :]
    return text


def raw() -> Strategy:
    """Any text, and pieces of YAML in any order."""
    pieces = st.lists(
        st.sampled_from((*SNIPPETS, *HOSTILE, BOMB, "cluster", "name: x")), max_size=9
    )
    return st.one_of(st.text(max_size=200), pieces.map("".join))


def written(data: Any, block: bool) -> str:
    """As YAML with blocks, or as JSON, which is YAML too."""
    if not block:
        return json.dumps(data, ensure_ascii=False)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def _put(data: Any, path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        if not isinstance(data.get(part), dict):
            data[part] = {}
        data = data[part]
    data[path[-1]] = value


def check_schema(data: Any) -> None:
    """What the strategies make is what the schema allows."""
    _VALIDATOR.validate(data)


def check_valid(data: Any) -> ClusterFile | None:
    """What the schema allows is read; only a rule between keys, or a preset's name, may be wrong."""
    text = written(data, block=False)
    if file := check_text(text):
        return file
    try:
        ClusterFile.model_validate(parse(text).data)
    except ValidationError as refused:
        assert {one["type"] for one in refused.errors()} == {"rules"}, refused
    else:
        assert data["network"]["preset"] not in (*preset_names(), None, "")
    return None


def check_text(text: str) -> ClusterFile | None:
    """Whatever the text: a cluster file, or problems that can be printed, each with its line."""
    try:
        return read_cluster(text, "f.yaml")
    except ClusterFileError as error:
        last = text.count("\n") + text.count("\r") + text.count("\x85") + text.count("\u2028") + 2
        for problem in error.problems:
            assert 1 <= problem.line <= last + text.count("\u2029")
            assert problem.saw, problem
            assert problem.expected, problem
            assert str(problem).isprintable(), problem
        assert len(str(error)) < 200_000
        return None
