"""What launchers and loggers put before a line: rank, host, GPU and time, and the text without it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime


@dataclass(slots=True)
class Prefix:
    """What a line's beginning tells; None where it does not."""

    text: str = ""
    rank: int | None = None
    host: str | None = None
    gpu: int | None = None
    time: float | None = None
    """Seconds on that clock; UTC where no zone is written."""
    clock: str = ""
    """`date`, `yearless` or `uptime`: only times of one clock can be compared."""


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST = 8
"""Prefixes that are taken off one line."""

_ISO = r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
_Take = Callable[[Prefix, re.Match[str]], None]


def _iso(prefix: Prefix, found: re.Match[str]) -> None:
    zone = found[3] or "+00:00"
    zone = "+00:00" if zone == "Z" else zone
    zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    text = found[1].replace("/", "-").replace(" ", "T")
    try:
        stamp = datetime.fromisoformat(text + zone).timestamp()
    except ValueError:
        return
    _set_time(prefix, "date", stamp + float(f"0.{found[2] or 0}"))


def _set_time(prefix: Prefix, clock: str, time: float) -> None:
    """A line with a date and another time is told by its date."""
    if prefix.time is None or (clock == "date" and prefix.clock != "date"):
        prefix.time, prefix.clock = time, clock


def _epoch_day(month: int, day: int, clock: str) -> float | None:
    """A time without a year: this kind of lines is compared among themselves only."""
    try:
        return datetime.fromisoformat(f"2000-{month:02d}-{day:02d}T{clock}+00:00").timestamp()
    except ValueError:
        return None


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _glog(prefix: Prefix, found: re.Match[str]) -> None:
    """`[W1121 11:45:56.168229062 TCPStore.cpp:138]`: month and day, no year."""
    when = _epoch_day(int(found[1]), int(found[2]), found[3])
    if when is not None:
        _set_time(prefix, "yearless", when + float(f"0.{found[4] or 0}"))


def _syslog(prefix: Prefix, found: re.Match[str]) -> None:
    when = _epoch_day(_MONTHS.index(found[1]) + 1, int(found[2]), found[3])
    if when is not None:
        _set_time(prefix, "yearless", when)
    prefix.host = found[4]


def _kernel(prefix: Prefix, found: re.Match[str]) -> None:
    _set_time(prefix, "uptime", float(found[1]))


def _rank(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.rank = int(found[1])


def _local(prefix: Prefix, found: re.Match[str]) -> None:
    """torchrun's `[default3]:` tells the local rank, which is the rank on the first node only."""
    prefix.gpu = int(found[1])


def _told(prefix: Prefix, found: re.Match[str]) -> None:
    """What our watch told a rank that it ended: it speaks of another rank."""
    prefix.rank, prefix.host = int(found[1]), found[2]


def _host(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.host = found[1]


def _nccl(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.host = found[1]
    if found[2] is not None:
        prefix.gpu = int(found[2])


def _nccl_alone(prefix: Prefix, found: re.Match[str]) -> None:
    """Without a thread: NCCL's plugins, and logs that were cut."""
    prefix.host = prefix.host or found[1]
    if found[2] is not None and prefix.gpu is None:
        prefix.gpu = int(found[2])


def _ray(prefix: Prefix, found: re.Match[str]) -> None:
    if found[1]:
        prefix.host = found[1]


def _nothing(prefix: Prefix, found: re.Match[str]) -> None:
    """Only taken off."""


_KINDS: tuple[tuple[re.Pattern[str], _Take], ...] = tuple(
    (re.compile(pattern), take)
    for pattern, take in (
        # Open MPI `[1,3]<stderr>:`, PRTE `[prterun-host-12@1,3]<stdout>: `
        (r"\[(?:[\w.@-]+@)?\d+,\s?(\d+)\]\s?(?:\[[^\]]*\])?<(?:std(?:out|err)|diag)>:\s?", _rank),
        (r"\[rank(\d+)\]:\s?", _rank),
        (r"\[default(\d+)\]:\s?", _local),
        (r"wirespeed: this rank is ended: rank (\d+) on (\S+) ", _told),
        # kubectl logs --prefix: `[pod/train-worker-3/pytorch] `
        (r"\[pod/([\w.-]+)/[\w.-]+\]\s", _host),
        # Ray: `(RayTrainWorker pid=123, ip=10.0.0.1) `
        (r"\((?:[\w.:]+ )?pid=\d+(?:, ip=([\w.:]+))?\)\s(?:\[repeated[^\]]*\]\s)?", _ray),
        (r"\[?" + _ISO + r"\]?[\s:|-]?\s?", _iso),
        (r"\[[IWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))? [^\]]*\]\s?", _glog),
        (r"[IWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))?\s+(?:\d+ )?[\w./-]+:\d+\]\s?", _glog),
        (
            r"(" + "|".join(_MONTHS) + r")\s+(\d{1,2}) (\d\d:\d\d:\d\d) ([\w.-]+) "
            r"(?:kernel:|[\w./-]+(?:\[\d+\])?:)\s?",
            _syslog,
        ),
        (r"<\d>\s?", _nothing),
        (r"\[\s*(\d+\.\d{3,9})\]\s(?:\[T\d+\]\s)?", _kernel),
        # NCCL and RCCL: `host:pid:tid [gpu] NCCL INFO …`, also before a file name
        (r"([\w.-]+):\d+:\d+ \[(\d+|-?1)\]\s(?:[\d.]+ )?", _nccl),
        # and not a source file's name, nor a function's, after it
        (
            r"(?![\w.-]+\.(?:cc|cu|cpp|cxx|c|h|hpp):)([\w.-]+):\d+(?::\d+)?(?: \[(\d+)\])? "
            r"(?=(?:[\w/.]+:\d+ )?[NR]CCL )",
            _nccl_alone,
        ),
        # a logger's level, with or without module: `[INFO] [launch.py:315:main] `
        (r"\[(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\]\s(?:\[[\w./:-]+\]\s)?", _nothing),
        # srun -l `3: `, hydra `[3] `
        (r"(\d{1,6}): {1,8}(?=\S)", _rank),
        (r"\[(\d{1,6})\] {1,8}(?=\S)", _rank),
        # pdsh, DeepSpeed, docker compose, stern: `worker-1: `, `worker-1  | `
        (
            r"((?!srun|mpirun|ssh|slurmstepd|error|warning|bash|python)[a-z][\w.-]*\d[\w.-]*)"
            r"(?:: {1,8}|\s+\| {1,8})(?=\S)",
            _host,
        ),
        # the lab, and launchers that mark a node: `[node-1] `
        (r"\[([a-z][\w.-]*-\d+)\] {1,8}(?=\S)", _host),
    )
)


def strip(line: str) -> Prefix:
    """Take every known prefix off a line, whatever order they come in; the first word counts."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    found = Prefix(text=line.rstrip("\r\n").lstrip())
    for _ in range(_MOST):
        if not _take_one(found):
            break
    return found


def _take_one(found: Prefix) -> bool:
    for pattern, take in _KINDS:
        if take is _nccl_alone and found.host is not None:
            continue
        match = pattern.match(found.text)
        if match is not None and match.end():
            take(found, match)
            found.text = found.text[match.end() :].lstrip()
            return True
    return False


_IN_NAME = re.compile(
    r"(?:^|[/_.-])(?:global[_-]?rank|rank|r)[_-]?(\d+)(?=[/._-]|$)|/attempt_\d+/(\d+)/std(?:out|err)"
    r"|slurm-\d+[_-](\d+)\.(?:out|err)",
    re.IGNORECASE,
)


def rank_in_name(name: str) -> int | None:
    """The rank that a log's path names: `rank-3.log`, `…/attempt_0/3/stderr.log`."""
    found = [group for match in _IN_NAME.finditer(name) for group in match.groups() if group]
    return int(found[-1]) if found else None


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
