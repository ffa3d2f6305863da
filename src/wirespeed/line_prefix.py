"""Prefixes that launchers and loggers put before a line: rank, host, GPU and time, and the rest.

Readers of logs (`diagnose`) and of other tools' output (`runs import`) share it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
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
    cut: bool = False
    """Whether the container runtime cut the line here: the writer's next line goes on."""


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST = 8
"""Prefixes that are taken off one line."""
_LONGEST = 2000
"""Characters of a line in which a prefix of a table or a document is looked for."""

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
_INDENT = r" [ \t]{0,64}(?=\S)"
"""Tables are indented: `node-1:             #bytes …`."""


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


_LAUNCHERS = _compiled(
    # Open MPI `[1,3]<stderr>:`, PRTE `[prterun-host-12@1,3]<stdout>: `, Horovod `[3]<stdout>:`
    r"\[(?:(?:[\w.@-]+@)?\d+,\s?)?(?P<rank>\d+)\]\s?(?:\[[^\]]*\])?<(?:std(?:out|err)|diag)>:\s?",
    # Open MPI's `--timestamp-output`: `Tue Nov 28 10:11:12 2026<stdout>:`, with or without a tag
    rf"\w{{3}} (?:{'|'.join(_MONTHS)}) [ \d]\d \d\d:\d\d:\d\d \d{{4}}(?:<std(?:out|err)>:\s?|(?=\[))",
    r"\[rank(?P<rank>\d+)\]:\s?",
    # torchrun's `[default3]:` tells the local rank, which is the rank on the first node only
    r"\[default(?P<gpu>\d+)\]:\s?",
    # kubectl logs --prefix: `[pod/train-worker-3/pytorch] `
    r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\]\s",
    # Ray: `(RayTrainWorker pid=123, ip=10.0.0.1) `, SkyPilot: `(worker1, rank=1, pid=12, ip=10.0.0.1) `
    r"\((?:[\w.:-]+,? )?(?:rank=(?P<rank>\d+), )?pid=\d+(?:, ip=(?P<host>[\w.:]+))?\)\s"
    r"(?:\[repeated[^\]]*\]\s)?",
    r"\[?(?P<date>\d{4}[-/]\d\d[-/]\d\d)[T ]" + _CLOCK + r"(?:[.,](?P<part>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?\]?[\s:|-]?\s?",
    # the container runtime (CRI) behind its time: `stdout F `, of a line that it cut `stdout P `
    r"std(?:out|err) (?P<cut>[PF]) ",
    rf"(?P<name>{'|'.join(_MONTHS)})\s+(?P<day>\d{{1,2}}) {_CLOCK} (?P<host>[\w.-]+) "
    r"(?:kernel:|[\w./-]+(?:\[\d+\])?:)\s?",
    # srun -l `3: `, hydra `[3] `
    r"(?P<rank>\d{1,6}):" + _INDENT,
    r"\[(?P<rank>\d{1,6})\]" + _INDENT,
    # pdsh, DeepSpeed, docker compose, stern: `worker-1: `, `worker-1  | `
    # no program, and no exception such as `sqlite3.OperationalError: `
    r"(?P<host>(?!srun|mpirun|ssh|slurmstepd|enroot|fusermount|error|warning|bash|python|percentile_"
    r"|[\w.]*(?:Error|Exception|Warning|Timeout)\b)[a-z][\w.-]*\d[\w.-]*)"
    r"(?::|\s+\|)" + _INDENT,
    # the lab, and launchers that mark a node: `[node-1] `
    r"\[(?P<host>[a-z][\w.-]*-\d+)\]" + _INDENT,
)
"""Before lines of any program."""
_MESSAGES = _compiled(
    # what our watch told a rank that it ended: it speaks of another rank
    r"wirespeed: this rank is ended: rank (?P<rank>\d+) on (?P<host>\S+) ",
    rf"\[{_GLOG} [^\]]*\]\s?",
    rf"{_GLOG}\s+(?:\d+ )?[\w./-]+:\d+\]\s?",
    r"<\d>\s?",
    r"\[\s*(?P<uptime>\d+\.\d{3,9})\]\s(?:\[T\d+\]\s)?",
    # NCCL and RCCL: `host:pid:tid [gpu] NCCL INFO …`, also before a file name
    r"(?P<host>[\w.-]+):\d+:\d+ \[(?P<gpu>\d+|-?1)\]\s(?:[\d.]+ )?",
    _ALONE,
    # pyxis prints the output of enroot indented below its own header: the line is enroot's
    r"(?:slurmstepd|srun|slurmd): (?:error|info): pyxis: {3,}(?=\S)",
    # a logger's level, with or without module: `[INFO] [launch.py:315:main] `
    r"\[(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\]\s(?:\[[\w./:-]+\]\s)?",
)
"""Parts of a message that say whose it is; what prints a table writes none."""
_KINDS = (*_LAUNCHERS, *_MESSAGES)
_AFTER_TIME = _compiled(
    r"(?:INFO|WARNING|WARN|ERROR|DEBUG)\s*[:|-]?\s",
    # a collector that names the node without a colon
    r"(?P<host>[a-z][\w.]*-[\w.-]*\d)\s(?=\s*[#\d{}\[\]\"-])",
)
_BY_PEOPLE = _compiled(
    r">\s",
    # any host before a JSON document
    r"(?P<host>[A-Za-z0-9][\w.-]{0,62}): (?=\{\")",
    # `ts` of moreutils, and a clock alone
    rf"(?P<name>{'|'.join(_MONTHS)}) (?P<day>[ \d]\d) {_CLOCK}(?:\.(?P<part>\d{{1,9}}))?\s",
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?\s",
)


def strip(line: str) -> Prefix:
    """Take every known prefix off a line, whatever order they come in; the first word counts."""
    return _strip(line, _KINDS)


def strip_launcher(line: str) -> Prefix:
    """Take off what launchers, collectors and people put before a program's line, and no more.

    For tables and JSON: what is left is what the program printed, without its indentation.
    """
    # A document may be one line of megabytes, which no pattern is to walk through.
    head, rest = line[:_LONGEST], line[_LONGEST:]
    kinds = (*_LAUNCHERS, *_BY_PEOPLE)
    found = _strip(head, kinds)
    if found.clock == "date" and _take_one(found, _AFTER_TIME):
        found = _strip(found.text, kinds, found)
    if rest:
        end = head[len(head.rstrip("\r\n")) :]
        found.text += end + (_ANSI.sub("", rest) if "\x1b" in rest else rest).rstrip("\r\n")
    return found


def _strip(line: str, kinds: Iterable[re.Pattern[str]], found: Prefix | None = None) -> Prefix:
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    found = found or Prefix()
    found.text = line.rstrip("\r\n").lstrip()
    for _ in range(_MOST):
        if not _take_one(found, kinds):
            break
    return found


def _take_one(found: Prefix, kinds: Iterable[re.Pattern[str]]) -> bool:
    for pattern in kinds:
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
    prefix.cut = told.get("cut", "F") == "P"
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
