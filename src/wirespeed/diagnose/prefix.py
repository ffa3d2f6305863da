"""Blocks of torchrun's summary of failures, joined to one line each, with the prefix of who failed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from wirespeed.line_prefix import Prefix, rank_in_name, strip

__all__ = ["ANCHORS", "Blocks", "Joined", "Prefix", "rank_in_name", "strip"]

ANCHORS = (
    "Root Cause",
    "Failures:",
    "time      :",
    "host      :",
    "rank      :",
    "exitcode  :",
    "error_file:",
    "traceback :",
    "(local_rank: ",
    "  exitcode: ",
    "  msg: ",
)
_FIELD = re.compile(r"(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)")
_ROOT = re.compile(r"Root Cause\b.{0,60}:$", re.IGNORECASE)
_OTHERS = re.compile(r"(?:Other )?Failures:$", re.IGNORECASE)
_RANK = re.compile(r"(\d+) \(local_rank: (\d+)\)")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)_(\d\d:\d\d:\d\d)")
_LAST = ("traceback", "msg")
_ITEM_LINES = 12
"""A block's lines lie so close together."""
_STACK_LINES = 80
"""Lines after `traceback : Traceback …` that may hold the exception."""
_WRITERS = 4_096
_OTHERS_KEPT = 256
_ROOT_WORDS = "Root cause: "
_OTHER_WORDS = "Other failure: "

_Writer = tuple[str, str | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Joined:
    """One worker's block as one line."""

    number: int
    """Where it begins."""
    root: bool
    text: str
    prefix: Prefix


@dataclass(slots=True)
class _State:
    """What one writer's summary is at."""

    root: bool = False
    begun: int = 0
    """Line at which the section or the item began; 0: none."""
    last: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    stack: Prefix | None = None
    """Who the Python stack that follows is of."""


class Blocks:
    """Reads the lines that hold an anchor, in the order of a log."""

    def __init__(self) -> None:
        self._states: dict[_Writer, _State] = {}
        self._others: list[Joined] = []
        self._rooted = False

    def take(self, log: str, number: int, prefix: Prefix) -> Joined | bool:
        """The root cause's block where the line ends it; True where the line is part of a summary.

        False: the line says something else. Other failures are given at the log's end.
        """
        text = prefix.text
        state = self._state(log, prefix)
        if state is None:
            return False
        if _ROOT.match(text) or _OTHERS.match(text):
            state.root, state.begun, state.last = bool(_ROOT.match(text)), number, number
            state.fields, state.stack = {}, None
            # The heading itself stays for the rules: it tells that a worker failed.
            return False
        found = _FIELD.match(text)
        if found is None or not state.begun or number > state.last + _ITEM_LINES:
            return False
        if found[1] in state.fields:  # the next item of the section, and this one had no last line
            state.fields = {}
        state.fields[found[1]] = found[2].strip()
        state.last = number
        return self._joined(state, prefix, number) if found[1] in _LAST else True

    def rest(self) -> Iterator[Joined]:
        """At a log's end: its other failures; each counts as the root where the log holds none."""
        for one in self._others:
            yield one if self._rooted else replace(one, root=True, text=_ROOT_WORDS + one.text)
        self._states, self._others, self._rooted = {}, [], False

    def whose(self, log: str, number: int, prefix: Prefix) -> Prefix | None:
        """Of a Python stack within a summary: whose it is."""
        if not self._states:
            return None
        state = self._states.get(_writer(log, prefix))
        if state is None or state.stack is None or number > state.last + _STACK_LINES:
            return None
        return state.stack

    def _state(self, log: str, prefix: Prefix) -> _State | None:
        writer = _writer(log, prefix)
        found = self._states.get(writer)
        if found is None and len(self._states) < _WRITERS:
            found = self._states[writer] = _State()
        return found

    def _joined(self, state: _State, prefix: Prefix, number: int) -> Joined | bool:
        told, state.fields = state.fields, {}
        if "exitcode" not in told:
            return False
        whose = _whose(told, prefix)
        if told.get("traceback", "").startswith("Traceback"):
            state.stack = whose if state.root else None
        text = (_ROOT_WORDS if state.root else _OTHER_WORDS) + ", ".join(_shown(told))
        found = Joined(number - len(told) + 1, state.root, text, whose)
        if state.root:
            self._rooted = True
            return found
        if len(self._others) < _OTHERS_KEPT:
            self._others.append(found)
        return True


def _writer(log: str, prefix: Prefix) -> _Writer:
    return log, prefix.host, prefix.rank, prefix.gpu


def _shown(told: dict[str, str]) -> Iterator[str]:
    """`rank : 1 (local_rank: 1)`, `host : node-1`, `exitcode : -9 (pid: 7362)`, …"""
    for name in ("rank", "host", "exitcode", "error_file", "traceback", "msg"):
        value = told.get(name, "")
        if value and value != "<N/A>" and "To enable traceback see" not in value:
            yield f"{name} : {value}"


def _whose(told: dict[str, str], prefix: Prefix) -> Prefix:
    """Rank, host and time from the block; the prefix, which is the agent's, only where it has none."""
    found = Prefix(host=prefix.host, time=prefix.time, clock=prefix.clock)
    if (rank := _RANK.match(told.get("rank", ""))) is not None:
        found.rank = int(rank[1])
        found.gpu = int(rank[2])
    host = told.get("host", "")
    if re.fullmatch(r"[\w.-]+", host):
        found.host = host
    if (time := _TIME.match(told.get("time", ""))) is not None:
        stamp = strip(f"{time[1]} {time[2]} x")
        found.time, found.clock = stamp.time, stamp.clock
    return found
