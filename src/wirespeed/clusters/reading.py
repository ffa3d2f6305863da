"""Cluster files by name or path: finding one, and reading it with all its problems at once.

Problems of a cluster file: line, what was seen, what was expected, the key that was meant.
"""

import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from wirespeed import yaml_tree
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.presets import preset_names
from wirespeed.errors import UsageError
from wirespeed.yaml_tree import Key, Problem, Tree

_LONGEST_KEY = 60
"""Of a word that is compared with others."""
_HERE, _ELSEWHERE = 0.6, 0.75
"""How alike a key has to be: beside the wrong one, and at another place."""
_PLACES = 3


@cache
def all_keys() -> tuple[str, ...]:
    """Dotted, in the order of the file; those of a list's items without an index."""
    return tuple(_below(ClusterFile, ""))


def _below(model: type[BaseModel], before: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield before + name
        if part := part_of(info.annotation):
            yield from _below(part, f"{before}{name}.")


def part_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a value of this type is, or that the items of a list are."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is tuple:
        return part_of(get_args(annotation)[0])
    return None


def children(section: Key) -> tuple[str, ...]:
    """The keys that this section may have."""
    before = "".join(f"{one}." for one in section if isinstance(one, str))
    found = (key.removeprefix(before) for key in all_keys() if key.startswith(before))
    return tuple(key for key in found if "." not in key)


def nearest(section: Key, name: str) -> str:
    """Keys like `name`: beside it by their name, at other places by their whole path; "" if none.

    A key of exactly that name elsewhere was put at the wrong place; else it was misspelt.
    """
    word = _plain(name)
    here = {_plain(key): [key] for key in children(section)}
    places: dict[str, list[str]] = {}
    for path in all_keys():
        places.setdefault(_plain(path.rpartition(".")[2]), []).append(path)
    found = here.get(word) or places.get(word) or _alike(word, here, _HERE)
    return " or ".join((found or _alike(word, places, _ELSEWHERE))[:_PLACES])


def _alike(word: str, known: Mapping[str, list[str]], cutoff: float) -> list[str]:
    close = get_close_matches(word[:_LONGEST_KEY], known, n=1, cutoff=cutoff)
    return known[close[0]] if close else []


def _plain(name: str) -> str:
    """gpuNodes, gpu-nodes and GPU_NODES are gpu_nodes, misspelt."""
    return name[:_LONGEST_KEY].replace("-", "").replace("_", "").lower()


_SHOWN = 50
"""Problems that a message tells; the rest is counted. `ClusterFileError.problems` has them all."""
_HINTED = 200
"""Unknown keys that a nearest one is looked for; a file with more is of another kind."""
_LONGEST = 60
"""Characters of a value in a message."""


class ClusterFileError(UsageError):
    """A cluster file is wrong; all of its problems, in the order of their lines."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = yaml_tree.shown_path(source)
        self.problems = tuple(sorted(problems))
        count = len(self.problems)
        lines = [f"{self.source}:{one.line}: {one}" for one in self.problems[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"… and {count - _SHOWN} more problems")
        head = f"{self.source} has {count} problem{'s' if count > 1 else ''}"
        again = f"wirespeed cluster validate {shlex.quote(self.source)}"
        super().__init__("\n".join([head, *lines]), next=again)


def from_validation(error: ValidationError, tree: Tree) -> list[Problem]:
    """What is wrong with keys and values."""
    found: list[Problem] = []
    for number, one in enumerate(error.errors(include_url=False)):
        found += _problems(one, tree, hinted=number < _HINTED)
    return found


def _problems(error: Any, tree: Tree, *, hinted: bool) -> Iterator[Problem]:
    key, kind = tuple(error["loc"]), error["type"]
    if kind == "rules":
        for rule in error["ctx"]["broken"]:
            yield _problem(tree, (*key, *rule.path), rule.saw, rule.expected)
        return
    value = error["input"]
    if kind == "missing":
        yield _problem(tree, key, "nothing", _of_missing(key))
    elif kind == "extra_forbidden":
        *section, name = key
        meant = nearest(tuple(section), str(name)) if hinted else ""
        expected = f"one of {', '.join(children(tuple(section)))}"
        yield _problem(tree, key, "an unknown key", expected, meant)
    elif key[-1:] == ("[key]",):
        yield _problem(
            tree, key[:-1], f"the key {yaml_tree.shown(value)}", _expected(error, key[:-1])
        )
    elif kind == "literal_error":
        words = {one.lower(): one for one in re.findall(r"'(\w+)'", error["ctx"]["expected"])}
        close = get_close_matches(str(value)[:_LONGEST].lower(), words, n=1)
        meant = words[close[0]] if close else ""
        yield _problem(tree, key, yaml_tree.shown(value), _expected(error, key), meant)
    else:
        yield _problem(tree, key, yaml_tree.shown(value), _expected(error, key))


def _of_missing(key: Key) -> str:
    if key == ("cluster", "name"):
        return "the name of this environment"
    below = children(key)
    return f"keys with values: {', '.join(below)}" if below else "a value"


_KINDS = {
    "string_type": "text",
    "string_unicode": "text",
    "tuple_type": "a list",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
}


def _expected(error: Any, key: Key) -> str:
    kind = error["type"]
    if kind in ("model_type", "model_attributes_type"):
        return f"keys with values: {', '.join(children(key))}"
    if kind == "dict_type":
        return "keys with values"
    if kind == "literal_error":
        return str(error["ctx"]["expected"]).replace("''", "nothing")
    return _KINDS.get(kind, yaml_tree.printable(str(error["msg"])))


def _problem(tree: Tree, key: Key, saw: str, expected: str, meant: str = "") -> Problem:
    mark, name = tree.mark(key), yaml_tree.dotted(key)
    at = {"line": mark.line, "column": mark.column}
    return Problem(**at, key=name, saw=saw, expected=expected, meant=meant)


FOLDER = "clusters"
"""In the working directory."""
_ENDINGS = (".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9_-])?")


def is_path(name_or_path: str) -> bool:
    """Whether it is a path rather than a name."""
    return "/" in name_or_path or name_or_path.endswith(_ENDINGS)


def stem(path: Path) -> str:
    """What means this file on the command line: its name, where it has one, or its path."""
    named = path.parent == Path(FOLDER) and _NAME.fullmatch(path.stem) and ".." not in path.stem
    return path.stem if named else str(path)


def known_files() -> list[Path]:
    """The cluster files of this folder, sorted by name."""
    folder = Path(FOLDER)
    if not folder.is_dir():
        return []
    found = (path for ending in _ENDINGS for path in folder.glob(f"*{ending}"))
    return sorted(path for path in found if path.is_file() and not path.name.startswith("."))


def find_file(name_or_path: str) -> Path:
    """The file that the words mean. UsageError where there is none, or two."""
    if is_path(name_or_path):
        return _existing(name_or_path)
    if not _NAME.fullmatch(name_or_path) or ".." in name_or_path:
        raise UsageError(
            f"{name_or_path[:80]!r} cannot be a cluster file's name",
            expected="letters, digits, - _ and ., or a path with / or .yaml in it",
            next="wirespeed cluster list",
        )
    paths = [Path(FOLDER) / f"{name_or_path}{ending}" for ending in _ENDINGS]
    there = [path for path in paths if path.is_file()]
    if len(there) > 1:
        raise UsageError(
            f"{name_or_path} may be {there[0]} or {there[1]}", expected="one of the two paths"
        )
    return there[0] if there else _missing(name_or_path)


def _existing(text: str) -> Path:
    path = Path(text)
    try:
        there = path.exists()
    except (OSError, ValueError):  # a name too long for the system, a NUL
        there = False
    if not there:
        raise UsageError(
            f"there is no file {text if text.isprintable() else repr(text)}",
            expected=_known() or "the path of a cluster file",
            next="wirespeed cluster list",
        )
    return path


def _missing(name: str) -> Path:
    names = [path.stem for path in known_files()]
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"there is no {FOLDER}/{name}.yaml in this folder{hint}",
        expected=_known() or "a cluster file",
        next=f"wirespeed cluster {'validate ' + near[0] if near else 'new ' + name}",
    )


def _known() -> str:
    names = [path.stem for path in known_files() if path.stem.isprintable()]
    return f"one of {', '.join(names)}" if names else ""


def read_file(path: Path) -> str:
    """The text of a cluster file. UsageError where it cannot be read or is none by its size."""
    source = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe could wait for ever
            raise UsageError(
                f"{yaml_tree.shown_path(source)} is no file", expected="a cluster file"
            )
        with path.open("rb") as stream:
            data = stream.read(yaml_tree.MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{yaml_tree.shown_path(source)} cannot be read: {error.strerror}"
        ) from None
    if len(data) > yaml_tree.MOST_BYTES:
        large = Problem(line=1, saw="a file larger than 1 MB", expected="a cluster file")
        raise ClusterFileError(source, [large])
    return decode(data, source)


def read_named(name_or_path: str) -> ClusterFile:
    """The cluster file of that name or path; UsageError, with all problems of a bad one."""
    path = find_file(name_or_path)
    return read_cluster(read_file(path), str(path))


def decode(data: bytes, source: str) -> str:
    """UTF-8, with or without a byte order mark; ClusterFileError for anything else."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        saw = f"the byte 0x{data[error.start]:02x}, which is not UTF-8"
        raise ClusterFileError(source, [Problem(line=line, saw=saw, expected="UTF-8")]) from None


def read_cluster(text: str, source: str) -> ClusterFile:
    """The cluster file that `text` is. ClusterFileError with all of its problems.

    source: what messages call it, such as its path.
    """
    tree = yaml_tree.parse(text.removeprefix("\ufeff"))
    problems = yaml_tree.from_tree(tree)
    if not tree.whole:
        raise ClusterFileError(source, problems)
    problems += _preset_problems(tree)
    try:
        file = ClusterFile.model_validate({} if tree.data is None else tree.data)
    except ValidationError as error:
        problems += from_validation(error, tree)
        problems += _rules_of_the_rest(tree, error)
        raise ClusterFileError(source, dict.fromkeys(problems)) from None
    if problems:
        raise ClusterFileError(source, problems)
    return file


def _preset_problems(tree: Tree) -> list[Problem]:
    """The one value that is right only if we ship a file of that name."""
    network = tree.data.get("network") if isinstance(tree.data, dict) else None
    name = network.get("preset") if isinstance(network, dict) else None
    if not isinstance(name, str) or not name:
        return []
    if name in preset_names():
        return []
    near = get_close_matches(name[:80], preset_names(), n=1, cutoff=0.5)
    expected = f"one of {', '.join(preset_names())}"
    return [_problem(tree, ("network", "preset"), yaml_tree.shown(name), expected, "".join(near))]


def _rules_of_the_rest(tree: Tree, error: ValidationError) -> list[Problem]:
    """Rules between keys are looked at only where all values are right: so without the wrong ones."""
    if not isinstance(tree.data, dict):
        return []
    rest = deepcopy(tree.data)
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        if one["type"] != "rules":
            _remove(rest, tuple(one["loc"]))
    cluster = rest.get("cluster")
    if not isinstance(cluster, dict) or cluster.get("name") is None:
        rest["cluster"] = {"name": "x"}
    try:
        ClusterFile.model_validate(rest)
    except ValidationError as second:
        if all(one["type"] == "rules" for one in second.errors(include_url=False)):
            return from_validation(second, tree)
    return []


def _remove(data: Any, key: Key) -> None:
    """Take out what stands at `key`; a list with a wrong item goes as a whole, so indexes stay."""
    if key[-1:] == ("[key]",):
        key = key[:-1]
    for part in key[:-1]:
        if not isinstance(data, dict) or part not in data:
            return
        if isinstance(data[part], list):
            data[part] = []
            return
        data = data[part]
    if key and isinstance(data, dict):
        data.pop(key[-1], None)
