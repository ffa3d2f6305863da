"""The JSON lines of NCCL's Inspector plugin (since 2.28): whose collectives are unlike the others'.

A collective lasts on each rank from its own start to the common end. So a rank whose times are much
shorter comes late, and the others wait for it; one whose times are longer alone is slow to end.
Source: the plugin's README in NVIDIA's repository (format v4.0).
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from wirespeed.diagnose.sources import Source, blocks
from wirespeed.errors import InputError
from wirespeed.records import Finding, Subject

__all__ = ["Inspector"]

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
