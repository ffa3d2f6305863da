"""What NCCL's RAS says in JSON (`ncclras -f json`): who is missing, behind or in error.

Source: NVIDIA's NCCL user guide, RAS; one object with `communicators`, of each its ranks with the
number of collectives that each has launched, and the ranks that did not answer.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from wirespeed.diagnose.sources import Source
from wirespeed.errors import InputError
from wirespeed.records import Finding, Subject

__all__ = ["ras_findings"]

_LARGEST = 256 << 20
_SHOWN = 6
_IN_PROGRESS = 7
"""ncclInProgress: no error."""
_NEXT = "ncclras -f json again after 10 s: do the counts still grow? py-spy dump --pid PID"
Row = Mapping[str, Any]


def ras_findings(source: Source) -> list[Finding]:
    """The report's. Raises InputError for one that breaks off or is no such report."""
    try:
        data = json.loads(_all(source))
        found = [
            one for comm in data["communicators"] for one in _of_communicator(comm, source.name)
        ]
        late = int(data.get("ras", {}).get("timeouts_count", 0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{source.name} is no whole report of NCCL's RAS: {str(error)[:200]}",
            expected="the JSON of ncclras -f json, from its first to its last brace",
            next="ncclras -f json > ras.json",
        ) from error
    if late and not any(one.status == "fail" for one in found):
        found.append(
            _unsure(f"NCCL's RAS waited in vain {late} times for data of some process", source)
        )
    return found or [_nothing(len(data["communicators"]), source.name)]


def _all(source: Source) -> bytes:
    stream, data = source.open(), bytearray()
    try:
        while part := stream.read1(1 << 20):
            data += part
            if len(data) > _LARGEST:
                raise InputError(
                    f"{source.name} is larger than {_LARGEST >> 20} MiB", expected="one report"
                )
    finally:
        stream.close()
    return bytes(data)


def _of_communicator(comm: Row, name: str) -> Iterator[Finding]:
    title = f"communicator {comm['hash']} of {comm['size']} ranks"
    missing = comm.get("missing_ranks", [])
    dead = [row for row in missing if row["status"]["considered_dead"]]
    silent = [row for row in missing if not row["status"]["considered_dead"]]
    if dead:
        yield _gone(dead, title, name)
    if silent:
        yield Finding(
            id="RAS-102",
            status="warn",
            title=f"{_who(silent)} of {title} {_verb(silent, 'does')} not answer NCCL's RAS",
            saw=f"data of {comm['ranks_count']} of {comm['size']} ranks",
            expected="data of every rank",
            because="a process that is stopped, blocked in the kernel or cut off does not answer; one "
            "that hangs in a collective does",
            fix=f"look at {_where(silent)}: ps -o stat (T is stopped, D waits for a disk or driver)",
            evidence=(f"{name}: missing_ranks of {title}",),
            category="missing-rank",
            confidence="cannot tell",
        )
    yield from _statuses(comm["ranks"], title, name)
    yield from _counts(comm["ranks"], title, name, bool(missing))


def _gone(dead: list[Row], title: str, name: str) -> Finding:
    return Finding(
        id="RAS-101",
        status="fail",
        title=f"{_who(dead)} of {title} died or {_verb(dead, 'is')} cut off: NCCL's RAS cannot reach "
        f"{'it' if len(dead) == 1 else 'them'}",
        subject=_subject(dead),
        saw=_where(dead),
        because="RAS tries for a minute to reach a process before it calls it dead",
        costs="the other ranks wait for it",
        fix="look at the process and node: exception, OOM kill (dmesg), Xid, or a broken network",
        next="on that node: dmesg -T | tail; ps -p PID",
        evidence=(f"{name}: considered_dead in {title}",),
        category="peer-died",
        confidence="certain",
    )


def _statuses(ranks: list[Row], title: str, name: str) -> Iterator[Finding]:
    aborted = [row for row in ranks if row["status"]["abort_flag"]]
    failed = [row for row in ranks if _is_failed(row["status"])]
    some = aborted if 0 < len(aborted) < len(ranks) else failed
    if some:
        yield Finding(
            id="RAS-103",
            status="warn",
            title=f"{_who(some)} of {title} "
            + ("aborted it while others still use it" if some is aborted else "reports an error"),
            saw=_where(some),
            expected="the same status on every rank, without an error",
            because="an exception or a watchdog ends a communicator on one rank first",
            fix="the logs of these ranks tell why; NCCL_DEBUG=WARN",
            evidence=(f"{name}: status in {title}",),
            category="nccl-unresponsive",
            confidence="cannot tell",
        )


def _is_failed(status: Row) -> bool:
    return any(int(status[one]) not in (0, _IN_PROGRESS) for one in ("async_error", "init_state"))


def _counts(ranks: list[Row], title: str, name: str, silent: bool) -> Iterator[Finding]:
    """The first operation whose counts differ by more than a running job's do, else by one."""
    differ = [
        (op, counts)
        for op in (ranks[0]["collective_counts"] if ranks else {})
        if len(counts := Counter(int(row["collective_counts"][op]) for row in ranks)) > 1
    ]
    if not differ:
        return
    op, counts = max(differ, key=lambda item: max(item[1]) - min(item[1]))
    (usual, many), *_ = counts.most_common()
    odd = [row for row in ranks if int(row["collective_counts"][op]) != usual]
    told = ", ".join(f"{many} ranks at {count}" for count, many in sorted(counts.items()))
    stuck = max(counts) - min(counts) > 1 or silent
    clear = stuck and 2 * many > len(ranks)
    yield Finding(
        id="RAS-104",
        status="fail" if clear else "warn",
        title=f"the ranks of {title} have not launched the same number of {op}"
        + (f": {_who(odd)} {_verb(odd, 'differs')} from most" if 2 * many > len(ranks) else ""),
        subject=_subject(odd) if clear else Subject("job", "job"),
        saw=f"{told}; {_where(odd)}",
        expected="the same number on every rank, or one more or less for a moment",
        because="ranks that are behind are stuck before the call, or the others called too many"
        if stuck
        else "a job that makes progress differs by one for a moment; only counts that stand still are "
        "a fault",
        costs="all ranks of the communicator wait",
        fix="stack traces of one rank that is behind and of one that is ahead, and the same calls on "
        "all ranks",
        next=_NEXT,
        evidence=(f"{name}: collective_counts of {title}: {told}",),
        category="collective-mismatch",
        confidence="likely" if clear else "cannot tell",
    )


def _unsure(title: str, source: Source) -> Finding:
    return Finding(
        id="RAS-102",
        status="warn",
        title=title,
        fix="see whether a process is stopped or its node is gone",
        evidence=(f"{source.name}: timeouts_count",),
        category="missing-rank",
        confidence="cannot tell",
    )


def _nothing(count: int, name: str) -> Finding:
    return Finding(
        id="RAS-100",
        status="not_checked",
        title=f"NCCL's RAS reports {count} communicators and nothing wrong in them",
        because="it also does so of jobs that hang in one collective on all ranks: ask again after 10 s "
        "and compare the counts",
        evidence=(name,),
    )


def _who(rows: list[Row]) -> str:
    ranks = sorted(int(row["rank"]) for row in rows)
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks[:_SHOWN])) + more


def _where(rows: list[Row]) -> str:
    told = [
        f"rank {row['rank']} is process {row['pid']} on {row['host']}, GPU {row['cuda_dev']}"
        for row in rows[:_SHOWN]
    ]
    return "; ".join(told)


def _verb(rows: list[Row], singular: str) -> str:
    plural = {"is": "are", "does": "do", "differs": "differ"}
    return singular if len(rows) == 1 else plural[singular]


def _subject(rows: list[Row]) -> Subject:
    return Subject("rank", f"rank {rows[0]['rank']}") if len(rows) == 1 else Subject("job", "job")
