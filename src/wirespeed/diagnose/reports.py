"""Reports of a running job that are JSON: `ncclras -f json`, and the lines of NCCL's Inspector."""

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from statistics import median
from typing import Any

from wirespeed.diagnose.findings import make_finding, one_rank
from wirespeed.diagnose.sources import Source, blocks
from wirespeed.errors import InputError
from wirespeed.model.records import Finding
from wirespeed.model.units import listed

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
        with closing(source.open()) as stream:
            for block in blocks(stream):
                for line in block.splitlines():
                    if line.strip():
                        self._add(line)
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
        broken = [make_finding("lines_broken", lines=self._broken)] if self._broken else []
        return found + broken

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
        times = self._times[kind]
        return make_finding(
            "comes_late" if ratio < 1 else "takes_long",
            subject=one_rank([rank]),
            evidence=(f"{self._source}: {op}, {size} bytes, communicator {comm}",),
            rank=rank,
            host=self._hosts[comm, rank],
            ratio=ratio,
            op=op,
            size=size,
            comm=comm,
            ranks=len(times),
            own=median(times[rank]) * 1e6,
            calls=len(times[rank]),
        )

    def _alike(self) -> Finding:
        speed = ""
        if self._speeds:
            (_, op, size), rates = max(self._speeds.items(), key=lambda item: item[0][2])
            speed = f"; {op} of {size} bytes at a median of {median(rates):.1f} GB/s (bus)"
        return make_finding("ranks_alike", lines=self._lines, speed=speed)


_LARGEST = 256 << 20
_SHOWN = 6
_IN_PROGRESS = 7
"""ncclInProgress: no error."""
Row = Mapping[str, Any]


def ras_findings(source: Source) -> list[Finding]:
    """The report's. Raises InputError for one that breaks off or is no such report."""
    text = b"".join(source.parts(_LARGEST + 1))
    if len(text) > _LARGEST:
        size = f"{source.name} is larger than {_LARGEST >> 20} MiB"
        raise InputError(size, expected="one report")
    return ras_report(text, source.name)


def ras_report(text: bytes, name: str) -> list[Finding]:
    """The same of its text; `name` says where that is from."""
    try:
        data = json.loads(text)
        found = [one for comm in data["communicators"] for one in _of_communicator(comm, name)]
        late = int(data.get("ras", {}).get("timeouts_count", 0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{name} is no whole report of NCCL's RAS: {str(error)[:200]}",
            expected="the JSON of ncclras -f json, from its first to its last brace",
            next="ncclras -f json > ras.json",
        ) from error
    if late and not any(one.status == "fail" for one in found):
        where = f"{name}: timeouts_count"
        found.append(make_finding("data_late", evidence=(where,), times=late))
    count = len(data["communicators"])
    return found or [make_finding("nothing_reported", evidence=(name,), communicators=count)]


def _of_communicator(comm: Row, name: str) -> Iterator[Finding]:
    title = f"communicator {comm['hash']} of {comm['size']} ranks"
    missing = comm.get("missing_ranks", [])
    dead = [row for row in missing if row["status"]["considered_dead"]]
    silent = [row for row in missing if not row["status"]["considered_dead"]]
    if dead:
        yield make_finding(
            "ranks_died",
            subject=one_rank(_ranks(dead)),
            evidence=(f"{name}: considered_dead in {title}",),
            saw=_where(dead),
            who=_who(dead),
            comm=title,
            are=_verb(dead, "is"),
            them="it" if len(dead) == 1 else "them",
        )
    if silent:
        yield make_finding(
            "ranks_silent",
            evidence=(f"{name}: missing_ranks of {title}",),
            who=_who(silent),
            comm=title,
            do=_verb(silent, "does"),
            told=comm["ranks_count"],
            size=comm["size"],
            where=_where(silent),
        )
    yield from _statuses(comm["ranks"], title, name)
    yield from _counts(comm["ranks"], title, name, bool(missing))


def _statuses(ranks: list[Row], title: str, name: str) -> Iterator[Finding]:
    aborted = [row for row in ranks if row["status"]["abort_flag"]]
    failed = [row for row in ranks if _is_failed(row["status"])]
    some = aborted if 0 < len(aborted) < len(ranks) else failed
    if some:
        ended = "aborted it while others still use it"
        yield make_finding(
            "statuses_differ",
            evidence=(f"{name}: status in {title}",),
            who=_who(some),
            comm=title,
            what=ended if some is aborted else "reports an error",
            saw=_where(some),
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
    most = 2 * many > len(ranks)
    yield make_finding(
        "counts_stuck" if stuck else "counts_differ",
        status="fail" if stuck and most else "warn",
        confidence="likely" if stuck and most else "cannot tell",
        subject=one_rank(_ranks(odd) if stuck and most else ()),
        evidence=(f"{name}: collective_counts of {title}: {told}",),
        comm=title,
        op=op,
        odd=f": {_who(odd)} {_verb(odd, 'differs')} from most" if most else "",
        told=told,
        where=_where(odd),
    )


def _ranks(rows: list[Row]) -> list[int]:
    return sorted(int(row["rank"]) for row in rows)


def _who(rows: list[Row]) -> str:
    return ("rank " if len(rows) == 1 else "ranks ") + listed(_ranks(rows), _SHOWN)


def _where(rows: list[Row]) -> str:
    told = [
        f"rank {row['rank']} is process {row['pid']} on {row['host']}, GPU {row['cuda_dev']}"
        for row in rows[:_SHOWN]
    ]
    return "; ".join(told)


def _verb(rows: list[Row], singular: str) -> str:
    plural = {"is": "are", "does": "do", "differs": "differ"}
    return singular if len(rows) == 1 else plural[singular]
