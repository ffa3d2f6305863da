"""What NCCL's RAS client (`ncclras`, since 2.24) reports of a running job."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]

_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
_NEXT = (
    "ncclras -v again after 10 s (nc HOST 28028): do the counts still grow? py-spy dump --pid PID"
)


def _counts(evidence: Evidence) -> Iterator[Hit]:
    """The operations that most ranks and the others have launched, and who the others are."""
    seen = [
        hit for id in ("RAS-002", "RAS-003") if id in evidence.seen for hit in _hits(id, evidence)
    ]
    told: dict[int, int] = {}
    for hit in seen:
        number = int(hit.groups["operation"])
        told[number] = told.get(number, 0) + int(hit.groups.get("ranks", "1"))
    if len(told) < 2:
        return
    first = evidence.seen["RAS-001"].start
    named = sorted(
        {hit.groups["ras_rank"] for id in ("RAS-003", "RAS-004") for hit in _hits(id, evidence)},
        key=int,
    )
    counts = ", ".join(f"{count} at operation {number}" for number, count in sorted(told.items()))
    groups = {
        **first.groups,
        "counts": counts,
        "named": ", ".join(named[:16]) + (" and more" if len(named) > 16 else "") or "?",
    }
    yield Hit(_MISMATCH, first.line, groups)
    for hit in seen:
        yield Hit(_MISMATCH, hit.line, {**groups, **hit.groups})


def _hits(id: str, evidence: Evidence) -> list[Hit]:
    return evidence.seen[id].hits if id in evidence.seen else []


_MISMATCH = Rule(
    id="RAS-005",
    category="collective-mismatch",
    role="cause",
    stage="program",
    needs=("RAS-001",),
    derive=_counts,
    sentence="the ranks of a communicator have not launched the same number of {op} operations "
    "(mismatch): {counts}; NCCL's RAS names rank(s) {named} as different from most",
    because="a collective ends only when every rank calls it: ranks that are behind are stuck "
    "before the call, or the others called one too many; while a job makes progress the counts "
    "differ for a moment, so it is a fault only when they stand still",
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
