"""What is wrong with a cluster file: each problem with its line, what was seen and what was expected."""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from wirespeed.clusters.file.keys import children, nearest
from wirespeed.clusters.file.yaml_tree import Key, Tree
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "ClusterFileError",
    "Problem",
    "dotted",
    "from_tree",
    "from_validation",
    "shown",
    "shown_path",
]

_SHOWN = 50
"""Problems that a message tells; the rest is counted. `ClusterFileError.problems` has them all."""
_HINTED = 200
"""Unknown keys that a nearest one is looked for; a file with more is of another kind."""
_LONGEST = 60
"""Characters of a value in a message."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./-]{1,80}")


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Problem:
    """One problem."""

    line: int
    """Both count from 1."""
    column: int = 1
    key: str = ""
    """`network.rdma.count`, `nodes.gpu_nodes[1]`; empty: of the whole file."""
    saw: str
    expected: str
    meant: str = ""
    """The valid key or word that was probably meant."""

    def __str__(self) -> str:
        where = f"{self.key}: " if self.key else ""
        hint = f"; did you mean {self.meant}?" if self.meant else ""
        return f"{where}saw {self.saw}, expected {self.expected}{hint}"


class ClusterFileError(UsageError):
    """A cluster file is wrong; all of its problems, in the order of their lines."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = shown_path(source)
        self.problems = tuple(sorted(problems))
        count = len(self.problems)
        lines = [f"{self.source}:{one.line}: {one}" for one in self.problems[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"… and {count - _SHOWN} more problems")
        head = f"{self.source} has {count} problem{'s' if count > 1 else ''}"
        again = f"wirespeed cluster validate {shlex.quote(self.source)}"
        super().__init__("\n".join([head, *lines]), next=again)


def shown_path(source: str) -> str:
    """A path as it is, unless it would do something to a terminal."""
    return source if source.isprintable() else repr(source)


def shown(value: object) -> str:
    """A value of a file, cut to a line and without anything that a terminal would obey."""
    if isinstance(value, dict):
        return "keys with values" if value else "an empty map"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value)
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def dotted(key: Key) -> str:
    """`network.rdma.count`, `nodes.gpu_nodes[1]`, `workload.labels.'odd key'`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _PLAIN_KEY.fullmatch(part) else shown(part))
    return text


def from_tree(tree: Tree) -> list[Problem]:
    """What is wrong with the text, whatever its keys."""
    return [
        Problem(
            line=one.mark.line,
            column=one.mark.column,
            key=dotted(one.key),
            saw=_printable(one.saw),
            expected=one.expected,
        )
        for one in tree.complaints
    ]


def from_validation(error: "ValidationError", tree: Tree) -> list[Problem]:
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
        yield _problem(tree, key[:-1], f"the key {shown(value)}", _expected(error, key[:-1]))
    elif kind == "literal_error":
        words = {one.lower(): one for one in re.findall(r"'(\w+)'", error["ctx"]["expected"])}
        close = get_close_matches(str(value)[:_LONGEST].lower(), words, n=1)
        meant = words[close[0]] if close else ""
        yield _problem(tree, key, shown(value), _expected(error, key), meant)
    else:
        yield _problem(tree, key, shown(value), _expected(error, key))


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
    return _KINDS.get(kind, _printable(str(error["msg"])))


def _problem(tree: Tree, key: Key, saw: str, expected: str, meant: str = "") -> Problem:
    mark = tree.mark(key)
    return Problem(
        line=mark.line,
        column=mark.column,
        key=dotted(key),
        saw=saw,
        expected=expected,
        meant=meant,
    )


def _printable(text: str) -> str:
    """Words of the YAML parser may quote the text, tabs and all."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)[:300]
