"""Ends of jobs out of Slurm's accounting: what `sacct` and `sacctmgr list event` print.

Both with `--parsable2`: a line of names, then a line for each, with `|` between the fields. Fields and
states by the manual pages sacct(1) and sacctmgr(1) of Slurm 22.05 to 25.05.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product

from wirespeed.errors import CannotMeasure, InputError
from wirespeed.fleet.job_ends import LAST_S, How, JobEnd
from wirespeed.launchers.slurm import ask

JOB_FIELDS = "JobIDRaw,User,Partition,State,Start,End,NodeList,JobName"
"""The name last, since it may hold a `|`, too."""
EVENT_FIELDS = "NodeName,TimeStart,TimeEnd,State"
MOST_HOSTS = 65_536
"""That one list may name."""
_SACCT = ("sacct", "--allusers", "--allocations", "--duplicates", "--parsable2")
"""A job that lost a node starts again under its number: without duplicates sacct tells only the last
start of each, and not the NODE_FAIL before."""
_SACCT_S = 600.0
"""Large databases take minutes."""
_NAMED_S = 600.0
"""So long before or after a job's end the node that ended it goes down."""
_ENDS: Mapping[str, How] = {
    "COMPLETED": "good",
    "FAILED": "failed",
    "NODE_FAIL": "node",
    "BOOT_FAIL": "node",
    **dict.fromkeys(
        ("CANCELLED", "TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "REQUEUED", "REVOKED"),
        "good",
    ),
}
"""Other states are of jobs that have not ended."""
_LIST_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Down:
    """A node that went down."""

    node: str
    at_s: float
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """What one text told."""

    jobs: tuple[JobEnd, ...] = ()
    downs: tuple[Down, ...] = ()
    unended: int = 0
    """Jobs that still wait or run, or never ran on a node."""
    unread: int = 0
    """Lines that are no such record."""


def read_accounting(text: str, source: str) -> Accounted:
    """Jobs or nodes' events, whichever it is. source: its name for errors. InputError for neither."""
    first, _, rest = text.partition("\n")
    names = [name.strip() for name in first.split("|")]
    if {"NodeName", "TimeStart"} <= {*names}:
        return _events(names, rest.split("\n"))
    missing = {"State", "Start", "End", "NodeList"} - {*names}
    if missing or not {"JobID", "JobIDRaw"} & {*names}:
        raise InputError(
            f"{source} is no output of sacct: its first line is {first[:120]!r}",
            expected=f"the fields {JOB_FIELDS}, or those of sacctmgr {EVENT_FIELDS}",
            next=f"{' '.join(_SACCT)} -S now-91days -o {JOB_FIELDS}",
        )
    return _jobs(names, rest.split("\n"))


def ask_accounting(since: str) -> list[tuple[str, str]]:
    """What sacct and sacctmgr print, each after its name; since: as both take a time.

    CannotMeasure where sacct does not tell; without sacctmgr it is not known which node ended a job.
    """
    asked = (*_SACCT, f"--starttime={since}", f"--format={JOB_FIELDS}")
    jobs = ask(*asked, seconds=_SACCT_S)
    if jobs.returncode:
        raise CannotMeasure(
            f"sacct tells no jobs: {jobs.stderr.strip()[-300:] or f'exit {jobs.returncode}'}",
            expected="Slurm's accounting on this machine, or a FILE with what sacct printed elsewhere",
            next="wirespeed nodes import-jobs --help",
        )
    told = ("--parsable2", "list", "event", f"start={since}", f"format={EVENT_FIELDS}")
    events = ask("sacctmgr", *told, seconds=_SACCT_S)
    found = [("sacct", jobs.stdout)]
    return found if events.returncode else [*found, ("sacctmgr", events.stdout)]


def with_culprits(jobs: Iterable[JobEnd], downs: Sequence[Down]) -> list[JobEnd]:
    """Jobs that a node ended, with that node where only one of theirs went down at that time."""
    when: dict[str, list[float]] = {}
    for one in sorted(downs, key=lambda one: one.at_s):
        when.setdefault(one.node, []).append(one.at_s)

    def went_down(node: str, at_s: float) -> bool:
        times = when.get(node, [])
        place = bisect_left(times, at_s - _NAMED_S)
        return place < len(times) and times[place] <= at_s + _NAMED_S

    found = []
    for job in jobs:
        if job.how == "node" and not job.culprit:
            down = [node for node in job.nodes if went_down(node, job.end_s)]
            job = replace(job, culprit=down[0]) if len(down) == 1 else job
        found.append(job)
    return found


def hosts_of(text: str) -> tuple[str, ...]:
    """Host names of Slurm's `gpu[001-004,7],login`; ValueError where it is no list, or too long."""
    found: list[str] = []
    parts = _LIST_PART.findall(text)
    if ",".join(parts) != text:
        raise ValueError(f"{text[:80]!r} is no list of hosts")
    for part in parts:
        pieces = re.split(r"(\[[^\]]*\])", part)
        for names in product(*(_alternatives(piece) for piece in pieces)):
            found.append("".join(names))
            if len(found) > MOST_HOSTS:
                raise ValueError(f"{text[:80]!r} names more than {MOST_HOSTS} hosts")
    return tuple(dict.fromkeys(found))


def _alternatives(piece: str) -> list[str]:
    """`[001-003,7]` as 001, 002, 003, 7; other text as it is."""
    if not piece.startswith("["):
        return [piece]
    found: list[str] = []
    for word in piece[1:-1].split(","):
        match = _RANGE.fullmatch(word)
        if match is None:
            raise ValueError(f"{piece[:80]!r} is no range of hosts")
        low, high = match[1], match[2] or match[1]
        if not 0 <= int(high) - int(low) <= MOST_HOSTS:
            raise ValueError(f"{piece[:80]!r} is no range of hosts")
        found += [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]
    return found


def _jobs(names: Sequence[str], lines: Iterable[str]) -> Accounted:
    jobs: list[JobEnd] = []
    unended = unread = 0
    for fields in _records(names, lines):
        number = fields.get("JobIDRaw") or fields.get("JobID", "")
        if "." in number:
            continue  # a step of a job
        how = _ENDS.get(fields.get("State", "").partition(" ")[0].rstrip("+"))
        try:
            nodes = hosts_of(_known(fields.get("NodeList", "")))
            start, end = (_moment(fields.get(name, "")) for name in ("Start", "End"))
        except ValueError:
            unread += 1
            continue
        if how is None or not nodes or start is None or end is None:
            unended += how is None or not nodes
            unread += how is not None and bool(nodes)
            continue
        culprit = _known(fields.get("FailedNode", ""))
        jobs.append(
            JobEnd(
                job=number,
                workload=f"{fields.get('User', '')}/{fields.get('JobName', '')}"[:200],
                group=fields.get("Partition", "")[:200],
                start_s=start,
                end_s=max(start, end),
                nodes=nodes,
                how=how,
                culprit=culprit if culprit in nodes else "",
            )
        )
    return Accounted(jobs=tuple(jobs), unended=unended, unread=unread)


def _events(names: Sequence[str], lines: Iterable[str]) -> Accounted:
    downs: list[Down] = []
    unread = 0
    for fields in _records(names, lines):
        try:
            at = _moment(fields.get("TimeStart", ""))
        except ValueError:
            at = None
        if at is None:
            unread += 1
        elif fields.get("NodeName") and fields.get("State", "").startswith(("DOWN", "FAIL")):
            downs.append(Down(fields["NodeName"], at))
    return Accounted(downs=tuple(downs), unread=unread)


def _records(names: Sequence[str], lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The last field takes what is left, as a job's name may hold the separator."""
    for line in lines:
        if line.strip():
            fields = line.removesuffix("\r").split("|", len(names) - 1)
            yield dict(zip(names, fields, strict=False))


def _known(word: str) -> str:
    return "" if word in ("None", "None assigned", "Unknown", "(null)") else word.strip()


def _moment(text: str) -> float | None:
    """Unix time of `2026-11-25T10:00:00` (of this machine's zone) or of seconds; None: not known.

    ValueError for what is no moment of any accounting.
    """
    word = _known(text)
    if not word or word == "0":
        return None
    found = float(word) if word.isdecimal() else datetime.fromisoformat(word).timestamp()
    if not 0 < found < LAST_S:
        raise ValueError(f"{word[:80]!r} is no time of a job")
    return found
