"""What NCCL's RAS client (`ncclras`, since 2.24) reports of a running job."""

from collections.abc import Iterable, Iterator
from functools import partial

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]

_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
_SILENT = ("RAS-006", "RAS-007", "RAS-008", "WD-001")
"""Ranks that do not answer, or a collective that timed out: this job makes no progress."""
_NEXT = (
    "ncclras -v again after 10 s (nc HOST 28028): do the counts still grow? py-spy dump --pid PID"
)


def _snapshots(evidence: Evidence) -> list[list[Hit]]:
    """Lines with operations, those of one communicator's list together.

    A list's lines follow each other; equal lines of a later report are not kept.
    """
    ids = ("RAS-002", "RAS-003", "RAS-004")
    lines = sorted(
        (hit for id in ids for hit in _hits(id, evidence)),
        key=lambda hit: (hit.line.source, hit.line.number),
    )
    found: list[list[Hit]] = []
    for hit in lines:
        last = found[-1][-1].line if found else None
        follows = last is not None and (last.source, last.number + 1) == (
            hit.line.source,
            hit.line.number,
        )
        if follows:
            found[-1].append(hit)
        else:
            found.append([hit])
    return found


def _operations(lines: Iterable[Hit]) -> dict[int, int]:
    """How many ranks have launched up to which operation."""
    told: dict[int, int] = {}
    for hit in lines:
        if "operation" in hit.groups:
            number = int(hit.groups["operation"])
            told[number] = told.get(number, 0) + int(hit.groups.get("ranks", "1"))
    return told


def _is_stuck(evidence: Evidence, told: Iterable[int]) -> bool:
    """Ranks that launch one after the other differ by one for a moment, in a healthy job too."""
    numbers = list(told)
    return max(numbers) - min(numbers) > 1 or any(id in evidence.seen for id in _SILENT)


def _counts(evidence: Evidence, stuck: bool) -> Iterator[Hit]:
    """The operations that most ranks and the others have launched, and who the others are.

    stuck: whether to tell the lists that no running job gives, or those that one may give.
    """
    rule = _MISMATCH if stuck else _MOMENT
    first = evidence.seen["RAS-001"].start
    for lines in _snapshots(evidence):
        told = _operations(lines)
        if len(told) < 2 or _is_stuck(evidence, told) != stuck:
            continue
        named = sorted(
            {hit.groups["ras_rank"] for hit in lines if "ras_rank" in hit.groups}, key=int
        )
        counts = (f"{ranks} at operation {number}" for number, ranks in sorted(told.items()))
        groups = {
            **first.groups,
            "counts": ", ".join(counts),
            "named": ", ".join(named[:16]) + (" and more" if len(named) > 16 else "") or "?",
        }
        yield Hit(rule, first.line, groups)
        for hit in lines:
            yield Hit(rule, hit.line, {**groups, **hit.groups})


def _hits(id: str, evidence: Evidence) -> list[Hit]:
    return evidence.seen[id].hits if id in evidence.seen else []


_MISMATCH = Rule(
    id="RAS-005",
    category="collective-mismatch",
    role="cause",
    stage="program",
    needs=("RAS-001",),
    derive=partial(_counts, stuck=True),
    sentence="the ranks of a communicator have not launched the same number of {op} operations "
    "(mismatch): {counts}; NCCL's RAS names rank(s) {named} as different from most",
    because="a collective ends only when every rank calls it: ranks that are behind are stuck "
    "before the call, or the others called too many; a job that makes progress differs by one for a "
    "moment, but here it is more, or ranks do not answer or waited until a timeout",
    costs="all ranks of the communicator wait",
    fix="where the counts stand still: stack traces (py-spy dump) of one rank that is behind and "
    "of "
    "one that is ahead, and make the calls the same on all ranks (conditions on the rank, "
    "different "
    "numbers of batches, an exception that was caught)",
    next=_NEXT,
    explains=("watchdog-timeout", "nccl-unresponsive", "launcher-exit"),
    links=_LINKS,
)

_MOMENT = Rule(
    id="RAS-011",
    category="collective-mismatch",
    role="symptom",
    stage="program",
    needs=("RAS-001",),
    derive=partial(_counts, stuck=False),
    sentence="at that moment the ranks of a communicator had launched a different number of {op} "
    "operations, by one (mismatch): {counts}; NCCL's RAS names rank(s) {named}",
    because="ranks do not launch at the same moment, so that a job that makes progress shows this "
    "too; only counts that stand still are a fault",
    checks=(
        "ask again after 10 s (ncclras -v, or nc HOST 28028): where the counts have grown, nothing "
        "is wrong",
        "where they stand still, ranks that are behind are stuck before the call, or the others "
        "called one too many: stack traces (py-spy dump --pid PID) of one that is behind and one "
        "that is ahead, and make the calls the same on all ranks",
    ),
    next=_NEXT,
    links=_LINKS,
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="RAS-001",
        category="ras",
        role="fact",
        anchors=("Communicator ranks have different",),
        pattern=r"communicator ranks have different (?P<op>(?!status)\w+)(?: operations?)? counts",
        sentence="NCCL's RAS: different {op} counts",
        links=_LINKS,
        positive=(
            "  Communicator ranks have different AllGather operation counts",
            "  Communicator ranks have different collective operation counts",
        ),
        negative=("  Communicator ranks have different status",),
    ),
    Rule(
        id="RAS-002",
        category="ras",
        role="fact",
        anchors=("have launched up to operation", "have not launched any operations"),
        pattern=r"(?P<ranks>\d+) ranks? (?:have|has) launched up to operation (?P<operation>\d+)",
        sentence="{ranks} ranks at operation {operation}",
        links=_LINKS,
        positive=("  30 ranks have launched up to operation 640",),
        negative=("  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1",),
    ),
    Rule(
        id="RAS-003",
        category="ras",
        role="fact",
        anchors=("has launched up to operation",),
        pattern=r"\brank (?P<ras_rank>\d+) has launched up to operation (?P<operation>\d+)",
        sentence="rank {ras_rank} at operation {operation}",
        links=_LINKS,
        positive=(
            "  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1 on node n1",
        ),
        negative=("  30 ranks have launched up to operation 640",),
    ),
    Rule(
        id="RAS-004",
        category="ras",
        role="fact",
        anchors=("managed by process",),
        pattern=r"\brank (?P<ras_rank>\d+) -- GPU (?P<ras_gpu>\S+) managed by process (?P<pid>\d+) "
        r"on node (?P<node>\S+)",
        sentence="rank {ras_rank} is process {pid} on {node}",
        links=_LINKS,
        positive=("  Rank 12 -- GPU 4 managed by process 3032 on node 10.37.190.124",),
        negative=("  Process 3487984 on node 172.16.64.213 managing GPU 5",),
    ),
    _MISMATCH,
    _MOMENT,
    Rule(
        id="RAS-006",
        category="peer-died",
        role="cause",
        stage="machine",
        anchors=("via the RAS network",),
        pattern=r"(?P<count>\d+) job process(?:es)? (?:is|are) considered dead",
        sentence="{count} process(es) of the job died or are cut off: NCCL's RAS cannot reach them",
        because="RAS tries for a minute to reach a process before it calls it dead",
        costs="the other ranks wait for them",
        fix="look at the processes and nodes named below it: exception, OOM kill (dmesg), Xid, or "
        "a "
        "broken network; start the job again without a bad node",
        next="on that node: dmesg -T | tail; ps -p PID",
        explains=("RAS-007", "RAS-008", "watchdog-timeout", "collective-mismatch"),
        links=_LINKS,
        positive=(
            "  1 job process is considered dead (unreachable via the RAS network)",
            "  8 job processes are considered dead (unreachable via the RAS network)",
        ),
        negative=("  Missing communicator data from 1 job process",),
    ),
    Rule(
        id="RAS-007",
        category="missing-rank",
        role="symptom",
        stage="wait",
        anchors=("Missing communicator data", "The missing rank"),
        pattern=r"missing communicator data from (?P<count>\d+) (?:job process|rank)|the missing "
        r"ranks?: (?P<missing>[\d, -]+)",
        sentence="a rank or process does not answer NCCL's RAS",
        checks=(
            "whether its process still runs and is not stopped: on the node named below it, ps -p "
            "PID -o stat (T is stopped, D waits for a disk or driver)",
            "whether it died: its log, dmesg -T (OOM kill, Xid)",
            "whether the network to its node is cut: ping, ibstat",
        ),
        explains=("RAS-008", "launcher-exit"),
        links=_LINKS,
        positive=(
            "  Missing communicator data from 1 job process",
            "  The missing rank: 21",
        ),
        negative=("  No communicator data collected!",),
    ),
    Rule(
        id="RAS-008",
        category="missing-rank",
        role="symptom",
        stage="wait",
        anchors=("communication timeouts while gathering",),
        pattern=r"encountered (?P<count>\d+) communication timeouts? while gathering",
        sentence="NCCL's RAS waited in vain for data of some process",
        checks=("whether a process is stopped or its node is gone: the Errors part of the report",),
        links=_LINKS,
        positive=("  Encountered 2 communication timeouts while gathering communicator data",),
        negative=("Communicators... (0.00s)",),
    ),
    Rule(
        id="RAS-009",
        category="nccl-unresponsive",
        role="symptom",
        stage="program",
        anchors=("Communicator ranks have different status",),
        pattern=r"communicator ranks have different status",
        sentence="some ranks have ended or aborted the communicator while others still use it",
        checks=(
            "which ranks are not RUNNING: the lines below it; their logs tell why they aborted "
            "(an exception, a watchdog)",
        ),
        links=_LINKS,
        positive=("  Communicator ranks have different status",),
        negative=("  Communicator ranks have different AllGather operation counts",),
    ),
    Rule(
        id="RAS-010",
        category="nccl-unresponsive",
        role="symptom",
        stage="aftermath",
        anchors=(") ABORT", ") ERROR"),
        pattern=r"#\d+-\d+ \([0-9a-f]+\) (?P<error>ERROR|ABORT)\b",
        sentence="NCCL's RAS reports a communicator with errors ({error})",
        checks=(
            "the lines below it: initialisation errors, asynchronous errors or aborts of which "
            "ranks; NCCL_DEBUG=WARN in their logs tells the cause",
        ),
        links=_LINKS,
        positive=("#0-0 (cf264af53edbe986) ABORT",),
        negative=("#0-0 (cf264af53edbe986) INCOMPLETE",),
    ),
)
