"""Reports of a running job that are JSON: `ncclras -f json`, and the lines of NCCL's Inspector."""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

from wirespeed.diagnose.sources import Source, blocks
from wirespeed.errors import InputError
from wirespeed.model.records import Finding, Subject

_SAMPLES = 512
"""Collectives kept of a rank, the newest, of one operation and size."""
_FEWEST = 5
_RANKS = 3
"""Ranks of a communicator without which nobody is odd."""
_KINDS = 20_000
"""Communicators, operations and sizes."""
_LATE, _SLOW = 0.7, 1.4
"""Of the others' median time, beyond which a rank is unlike them."""
_MOST = 16
Kind = tuple[str, str, int]
"""Communicator, operation and bytes."""


class Inspector:
    """What all files of one job say."""

    def __init__(self) -> None:
        self._times: dict[Kind, dict[int, deque[float]]] = {}
        self._hosts: dict[tuple[str, int], str] = {}
        self._speeds: dict[Kind, deque[float]] = {}
        self._lines = self._broken = 0
        self._source = ""

    def read(self, source: Source) -> None:
        """Raises InputError where not one line can be read."""
        before = self._lines
        stream = source.open()
        try:
            for block in blocks(stream):
                for line in block.splitlines():
                    if line.strip():
                        self._add(line)
        finally:
            stream.close()
        self._source = self._source or source.name
        if self._lines == before:
            raise InputError(
                f"{source.name} holds no line of NCCL's Inspector that can be read",
                expected='lines with "header" and "coll_perf"',
            )

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            head, told = row["header"], row.get("coll_perf")
            if told is not None:
                self._keep(head, row.get("metadata", {}), told)
            self._lines += 1
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._broken += 1

    def _keep(
        self, head: Mapping[str, Any], about: Mapping[str, Any], told: Mapping[str, Any]
    ) -> None:
        comm, rank = str(head["id"]), int(head["rank"])
        kind = (comm, str(told["coll"]), int(told["coll_msg_size_bytes"]))
        seconds, speed = float(told["coll_exec_time_us"]) / 1e6, float(told["coll_busbw_gbs"])
        if kind not in self._times and len(self._times) >= _KINDS:
            return
        times = self._times.setdefault(kind, {})
        times.setdefault(rank, deque(maxlen=_SAMPLES)).append(seconds)
        self._speeds.setdefault(kind, deque(maxlen=_SAMPLES)).append(speed)
        self._hosts[comm, rank] = str(about.get("hostname", "?"))

    def findings(self) -> list[Finding]:
        """Who is odd, the most unlike first; where nobody is, what the ranks reached."""
        if not self._lines:
            return []
        odd = sorted(self._odd(), key=lambda item: min(item[2], 1 / item[2]))
        told: dict[tuple[str, int], Finding] = {}
        for kind, rank, ratio in odd:
            told.setdefault((kind[0], rank), self._unlike(kind, rank, ratio))
        found = list(told.values())[:_MOST] or [self._alike()]
        return [*found, self._cut()] if self._broken else found

    def _odd(self) -> Iterator[tuple[Kind, int, float]]:
        for kind, times in self._times.items():
            middle = {rank: median(of) for rank, of in times.items() if len(of) >= _FEWEST}
            if len(middle) < _RANKS:
                continue
            usual = median(middle.values())
            for rank, own in middle.items():
                if usual > 0 and own > 0 and not _LATE < own / usual < _SLOW:
                    yield kind, rank, own / usual

    def _unlike(self, kind: Kind, rank: int, ratio: float) -> Finding:
        comm, op, size = kind
        late = ratio < 1
        host = self._hosts[comm, rank]
        return Finding(
            id="INSP-001",
            status="warn",
            title=f"rank {rank} ({host}) spends {ratio:.2f} of the others' time in {op} of {size} "
            "bytes, "
            + ("so it comes late and they wait for it" if late else "longer than all others"),
            subject=Subject("rank", f"rank {rank}"),
            saw=f"median {median(self._times[kind][rank]) * 1e6:.0f} µs over "
            f"{len(self._times[kind][rank])} calls, communicator {comm} of "
            f"{len(self._times[kind])} ranks that wrote",
            expected="alike on all ranks, within 0.7 and 1.4 of their median",
            because="a collective ends for all at once: who is in it for a shorter time began later "
            "(slow computation, data, clocks)"
            if late
            else "its kernel ends later, or starts earlier, than the others': a slow link or GPU there, "
            "or a rank that runs ahead",
            fix=f"compare {host} with the others: wirespeed locate; clocks and throttling of its GPU",
            next="wirespeed locate",
            evidence=(f"{self._source}: {op}, {size} bytes, communicator {comm}",),
            category="rank-unlike",
            confidence="cannot tell",
        )

    def _alike(self) -> Finding:
        best = max(self._speeds.items(), key=lambda item: item[0][2], default=None)
        speed = (
            f"; {best[0][1]} of {best[0][2]} bytes at a median of {median(best[1]):.1f} GB/s (bus)"
            if best
            else ""
        )
        return Finding(
            id="INSP-000",
            status="not_checked",
            title=f"NCCL's Inspector: {self._lines} collectives, no rank unlike the others{speed}",
            because="whether that is fast the lines do not tell: wirespeed reference ask",
        )

    def _cut(self) -> Finding:
        return Finding(
            id="INSP-002",
            status="not_checked",
            title=f"{self._broken} lines of NCCL's Inspector cannot be read",
            because="a job that is killed leaves half a line",
        )


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


_HEAD = 4096


class Reports:
    """What reports among the logs say."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._inspector = Inspector()

    def take(self, source: Source) -> bool:
        """Read it where its first bytes are a report's. Raises InputError for one that is damaged."""
        reader = self._reader(_start(source))
        if reader is not None:
            reader(source)
        return reader is not None

    def findings(self) -> list[Finding]:
        """Of all that was read."""
        return [*self._findings, *self._inspector.findings()]

    def _reader(self, head: bytes) -> Callable[[Source], None] | None:
        if head.lstrip()[:1] != b"{":
            return None
        if b'"communicators_count"' in head and b'"nccl_version"' in head:
            return self._read_ras
        if b'"header"' in head and (b'"coll_perf"' in head or b'"p2p_perf"' in head):
            return self._inspector.read
        return None

    def _read_ras(self, source: Source) -> None:
        self._findings += ras_findings(source)


def _start(source: Source) -> bytes:
    stream = source.open()
    try:
        return stream.read1(_HEAD)
    finally:
        stream.close()
