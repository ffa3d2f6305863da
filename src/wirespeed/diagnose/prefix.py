"""What launchers and loggers put before a line: rank, host, GPU and time, and the text without it."""

import re
from collections.abc import Iterator
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

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)"
_GLOG = rf"[IWEF](?P<month>\d\d)(?P<day>\d\d) {_CLOCK}(?:\.(?P<part>\d+))?"
"""`W1121 11:45:56.168229062`: month and day, no year."""
_ALONE = (
    r"(?![\w.-]+\.(?:cc|cu|cpp|cxx|c|h|hpp):)(?P<host>[\w.-]+):\d+(?::\d+)?"
    r"(?: \[(?P<own>\d+)\])? (?=(?:[\w/.]+:\d+ )?[NR]CCL )"
)
"""Without a thread: NCCL's plugins, and logs that were cut; and not a source file's name, nor a
function's, after it. It counts only where nothing else names a host."""
_KINDS = tuple(
    re.compile(pattern)
    for pattern in (
        # Open MPI `[1,3]<stderr>:`, PRTE `[prterun-host-12@1,3]<stdout>: `
        r"\[(?:[\w.@-]+@)?\d+,\s?(?P<rank>\d+)\]\s?(?:\[[^\]]*\])?<(?:std(?:out|err)|diag)>:\s?",
        r"\[rank(?P<rank>\d+)\]:\s?",
        # torchrun's `[default3]:` tells the local rank, which is the rank on the first node only
        r"\[default(?P<gpu>\d+)\]:\s?",
        # what our watch told a rank that it ended: it speaks of another rank
        r"wirespeed: this rank is ended: rank (?P<rank>\d+) on (?P<host>\S+) ",
        # kubectl logs --prefix: `[pod/train-worker-3/pytorch] `
        r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\]\s",
        # Ray: `(RayTrainWorker pid=123, ip=10.0.0.1) `
        r"\((?:[\w.:]+ )?pid=\d+(?:, ip=(?P<host>[\w.:]+))?\)\s(?:\[repeated[^\]]*\]\s)?",
        r"\[?(?P<date>\d{4}[-/]\d\d[-/]\d\d)[T ]" + _CLOCK + r"(?:[.,](?P<part>\d{1,9}))?"
        r"(?P<zone>Z|[+-]\d\d:?\d\d)?\]?[\s:|-]?\s?",
        rf"\[{_GLOG} [^\]]*\]\s?",
        rf"{_GLOG}\s+(?:\d+ )?[\w./-]+:\d+\]\s?",
        rf"(?P<name>{'|'.join(_MONTHS)})\s+(?P<day>\d{{1,2}}) {_CLOCK} (?P<host>[\w.-]+) "
        r"(?:kernel:|[\w./-]+(?:\[\d+\])?:)\s?",
        r"<\d>\s?",
        r"\[\s*(?P<uptime>\d+\.\d{3,9})\]\s(?:\[T\d+\]\s)?",
        # NCCL and RCCL: `host:pid:tid [gpu] NCCL INFO …`, also before a file name
        r"(?P<host>[\w.-]+):\d+:\d+ \[(?P<gpu>\d+|-?1)\]\s(?:[\d.]+ )?",
        _ALONE,
        # pyxis prints the output of enroot indented below its own header: the line is enroot's
        r"(?:slurmstepd|srun|slurmd): (?:error|info): pyxis: {3,}(?=\S)",
        # a logger's level, with or without module: `[INFO] [launch.py:315:main] `
        r"\[(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\]\s(?:\[[\w./:-]+\]\s)?",
        # srun -l `3: `, hydra `[3] `
        r"(?P<rank>\d{1,6}): {1,8}(?=\S)",
        r"\[(?P<rank>\d{1,6})\] {1,8}(?=\S)",
        # pdsh, DeepSpeed, docker compose, stern: `worker-1: `, `worker-1  | `
        # no program, and no exception such as `sqlite3.OperationalError: `
        r"(?P<host>(?!srun|mpirun|ssh|slurmstepd|enroot|fusermount|error|warning|bash|python"
        r"|[\w.]*(?:Error|Exception|Warning|Timeout)\b)[a-z][\w.-]*\d[\w.-]*)"
        r"(?:: {1,8}|\s+\| {1,8})(?=\S)",
        # the lab, and launchers that mark a node: `[node-1] `
        r"\[(?P<host>[a-z][\w.-]*-\d+)\] {1,8}(?=\S)",
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
    for pattern in _KINDS:
        if found.host is not None and pattern.pattern is _ALONE:
            continue
        match = pattern.match(found.text)
        if match is not None and match.end():
            if match.lastindex:
                told = match.groupdict().items()
                _take(found, {name: value for name, value in told if value is not None})
            found.text = found.text[match.end() :].lstrip()
            return True
    return False


def _take(prefix: Prefix, told: dict[str, str]) -> None:
    if "rank" in told:
        prefix.rank = int(told["rank"])
    if "gpu" in told:
        prefix.gpu = int(told["gpu"])
    elif "own" in told and prefix.gpu is None:
        prefix.gpu = int(told["own"])
    prefix.host = told.get("host", prefix.host)
    if "uptime" in told or "clock" in told:
        _take_time(prefix, told)


def _take_time(prefix: Prefix, told: dict[str, str]) -> None:
    """A line with a date and another time is told by its date.

    A time without a year is compared with others of its kind only.
    """
    clock = "date" if "date" in told else "uptime" if "uptime" in told else "yearless"
    if prefix.time is not None and (clock != "date" or prefix.clock == "date"):
        return
    if clock == "uptime":
        prefix.time, prefix.clock = float(told["uptime"]), clock
        return
    month = told.get("month") or f"{_MONTHS.index(told['name']) + 1:02d}" if clock != "date" else ""
    day = told.get("date", "").replace("/", "-") or f"2000-{month}-{int(told['day']):02d}"
    zone = told.get("zone", "Z").replace("Z", "+00:00")
    try:
        stamp = datetime.fromisoformat(f"{day}T{told['clock']}{zone}").timestamp()
    except ValueError:
        return
    prefix.time, prefix.clock = stamp + float(f"0.{told.get('part', 0)}"), clock


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
