"""YAML as people use it in settings: text, lists and maps, each with its line; nothing else.

No anchors, aliases, tags, second documents or duplicate keys, and bounded in size and depth. A plain
scalar stays the text that it is: what `no`, `012`, `1e3` or `1.10` means is for the key to say, so
none of YAML 1.1's surprises is left. https://yaml.org/spec/1.2.2/
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml


MOST_BYTES = 1_000_000
MOST_DEPTH = 20
MOST_VALUES = 50_000

Key = tuple[str | int, ...]
"""Where a value is: names of keys, and indexes in lists."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_AGAIN = "(again)"
"""Stands behind a key that was there before, so that its value's places are none of the first's."""
_LONGEST_SHOWN = 60
"""Characters of a value in a message."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./-]{1,80}")
_FOREIGN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """Both count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong with the text."""

    mark: Mark
    key: Key
    saw: str
    expected: str


class TreeError(Exception):
    """The text could not be read to its end; `complaint` says why."""

    def __init__(self, mark: Mark, saw: str, expected: str, key: Key = ()) -> None:
        super().__init__(saw)
        self.complaint = Complaint(mark, key, saw, expected)


@dataclass(slots=True)
class Tree:
    """What a text says."""

    data: Any = None
    """Maps, lists, text, and None for an empty value."""
    marks: dict[Key, Mark] = field(default_factory=dict)
    """Of each key, and of each item of a list."""
    complaints: list[Complaint] = field(default_factory=list)
    whole: bool = True
    """The text was read to its end."""

    def mark(self, key: Key) -> Mark:
        """Of the key, or of the nearest part around it that is there."""
        while key and key not in self.marks:
            key = key[:-1]
        return self.marks.get(key, Mark())


def parse(text: str) -> Tree:
    """Read one document. What stops the reading is the last complaint; nothing is raised."""
    import yaml

    tree = Tree()
    try:
        _check_text(text)
        _Builder(tree, _events(text)).build()
        return tree
    except TreeError as error:
        tree.complaints.append(error.complaint)
    except yaml.MarkedYAMLError as error:
        tree.complaints.append(_syntax(error, text))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        tree.complaints.append(Complaint(Mark(), (), f"no YAML ({error})", "a YAML file"))
    tree.whole = False
    return tree


def data_of(text: bytes) -> Any:
    """What a file of ours says; ValueError for one that `parse` complains of."""
    tree = parse(text.decode())
    if tree.complaints:
        first = tree.complaints[0]
        raise ValueError(f"line {first.mark.line}: {first.saw}, expected {first.expected}")
    return tree.data


def _check_text(text: str) -> None:
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise TreeError(Mark(), "a file larger than 1 MB", "a cluster file, of a few kB")
    if found := _FOREIGN.search(text):
        before = text[: found.start()]
        mark = Mark(before.count("\n") + 1, found.start() - before.rfind("\n"))
        code = ord(found[0])
        raise TreeError(mark, f"the character U+{code:04X}", "text that can be printed")


def _events(text: str) -> Iterator["yaml.Event"]:
    """Lazily, so that the bounds stop the parser too. libyaml is used where PyYAML has it."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    events: Iterator[yaml.Event] = yaml.parse(text, Loader=loader)
    return events


def _syntax(error: "yaml.MarkedYAMLError", text: str) -> Complaint:
    """A YAML error, with what people do wrong most often in plain words."""
    lines = text.splitlines()
    at = error.problem_mark or error.context_mark
    if at and at.line >= len(lines) and error.context_mark:
        at = error.context_mark  # what was opened and never closed, not the end of the file
    mark = _mark_of(at) if at else Mark()
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    if re.match(r" *\t", line):
        return Complaint(mark, (), "a tab in the indentation", "spaces")
    told = f"{error.problem or 'no YAML'}"
    if error.context:
        told += f" ({error.context})"
    expected = "YAML: KEY: VALUE, with quotes around a value that holds `: ` or begins with a sign"
    return Complaint(mark, (), told, expected)


def _mark_of(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


class _Builder:
    """From events to a tree, with a stack of its own: no depth of nesting recurses."""

    def __init__(self, tree: Tree, events: Iterator["yaml.Event"]) -> None:
        self._tree = tree
        self._events = events
        self._open: list[_Open] = []
        self._values = 0
        self._documents = 0

    def build(self) -> None:
        import yaml

        steps: dict[type[yaml.Event], Callable[[Any], None]] = {
            yaml.DocumentStartEvent: self._document,
            yaml.MappingStartEvent: lambda event: self._begin(event, {}),
            yaml.SequenceStartEvent: lambda event: self._begin(event, []),
            yaml.MappingEndEvent: lambda event: self._end(),
            yaml.SequenceEndEvent: lambda event: self._end(),
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
        }
        for event in self._events:
            if step := steps.get(type(event)):
                step(event)

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            mark = _mark_of(event.start_mark)
            raise TreeError(mark, "a second document (---)", "one cluster a file")

    def _begin(self, event: Any, value: Any) -> None:
        mark = _mark_of(event.start_mark)
        if len(self._open) >= MOST_DEPTH:
            raise TreeError(mark, f"more than {MOST_DEPTH} levels", "a few", self._here())
        if self._open and self._open[-1].wants_key:
            raise TreeError(mark, "a list or a map as a key", "a key of text", self._here())
        self._refuse_extras(event)
        key = self._put(value, mark)
        self._open.append(_Open(value, key))

    def _end(self) -> None:
        self._open.pop()

    def _scalar(self, event: Any) -> None:
        mark = _mark_of(event.start_mark)
        self._refuse_extras(event)
        text: str = event.value
        if _SURROGATE.search(text):
            raise TreeError(mark, "half of a character (\\ud800 to \\udfff)", "text", self._here())
        if self._open and self._open[-1].wants_key:
            self._name(text, mark)
            return
        empty = event.implicit[0] and text in _NULLS
        self._put(None if empty else text, mark)

    def _alias(self, event: Any) -> None:
        mark = _mark_of(event.start_mark)
        self._complain(mark, f"an alias, *{event.anchor}", "the value itself: aliases are not read")
        if self._open and self._open[-1].wants_key:
            self._name(f"*{event.anchor}", mark)
        else:
            self._put(None, mark)

    def _refuse_extras(self, event: Any) -> None:
        mark = _mark_of(event.start_mark)
        if event.anchor is not None:
            expected = "the value without it: anchors are not read"
            self._complain(mark, f"an anchor, &{event.anchor}", expected)
        if event.tag is not None:
            self._complain(mark, f"a tag, {event.tag}", "the value without it: tags are not read")

    def _name(self, text: str, mark: Mark) -> None:
        """The next key of the innermost map."""
        top = self._open[-1]
        key = (*top.key, text)
        if text in top.seen:
            first = self._tree.marks[key].line
            self._complain(mark, f"this key again; the first is in line {first}", "it once", key)
        else:
            self._tree.marks[key] = mark
        top.doubled = text in top.seen
        top.seen.add(text)
        top.next = text

    def _put(self, value: Any, mark: Mark) -> Key:
        """Into the innermost map or list; where it stands."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise TreeError(mark, f"more than {MOST_VALUES} values", "a cluster file", self._here())
        if not self._open:
            self._tree.data = value
            return ()
        top = self._open[-1]
        if isinstance(top.value, list):
            return self._append(top, value, mark)
        name, top.next = top.next or "", None
        if top.doubled:
            return (*top.key, name, _AGAIN)
        top.value[name] = value
        return (*top.key, name)

    def _append(self, top: "_Open", value: Any, mark: Mark) -> Key:
        """An item without a value is none."""
        key = (*top.key, len(top.value))
        if value is not None:
            self._tree.marks[key] = mark
            top.value.append(value)
        return key

    def _here(self) -> Key:
        """Where the next value goes."""
        if not self._open:
            return ()
        top = self._open[-1]
        if isinstance(top.value, list):
            return (*top.key, len(top.value))
        return top.key if top.next is None else (*top.key, top.next)

    def _complain(self, mark: Mark, saw: str, expected: str, key: Key | None = None) -> None:
        where = self._here() if key is None else key
        self._tree.complaints.append(Complaint(mark, where, saw, expected))


@dataclass(slots=True)
class _Open:
    """A map or list whose end has not come."""

    value: Any
    key: Key
    seen: set[str] = field(default_factory=set)
    next: str | None = None
    """Key that the next value belongs to."""
    doubled: bool = False
    """That key was there before: its value is read, and goes nowhere."""

    @property
    def wants_key(self) -> bool:
        return isinstance(self.value, dict) and self.next is None


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
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


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
            saw=printable(one.saw),
            expected=one.expected,
        )
        for one in tree.complaints
    ]


def printable(text: str) -> str:
    """Words of the YAML parser may quote the text, tabs and all."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)[:300]
