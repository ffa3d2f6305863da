"""Whether a watched job stands still, and because of whom, by what ranks and nodes tell. Pure.

A job hangs where ranks wait in a collective, nothing has moved for a while, and whoever does not wait
does nothing either: it is stopped, silent, asleep or has left the loop. A rank that computes, or
writes a checkpoint, while the others wait is working.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from wirespeed.checks.registry import tell
from wirespeed.diagnose.flight import compare
from wirespeed.diagnose.flight_read import Dump, dump_of
from wirespeed.errors import InputError
from wirespeed.model.records import Finding, Subject
from wirespeed.watch.messages import MOST_RANKS

STILL_S = 8.0
"""So long nothing moves before anybody is accused."""
_SILENT_S = 5.0
"""A rank that tells something every second has not for so long."""
_WAITS_S = 3.0
_BUSY_CORES, _BUSY_BYTES_S = 0.3, 1e6
"""A process that uses so much of a core, or reads and writes so much, works."""
_LOOKED_S = 6.0
_MOST_BYTES = 60_000
_LINES = 12

Doing = Literal["waits", "works", "idle", "stopped", "silent", "ended"]


class _Told(Struct, frozen=True):
    """Of the messages of a rank (k: `t`, `st`, `hurt`, `bye`) or its node (`o`), what is read."""

    r: Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
    k: str
    s: int = 0
    m: int = 0
    p: Annotated[str, Meta(max_length=20)] = ""
    c: float = 0.0
    io: int = 0
    st: Annotated[str, Meta(max_length=2)] = ""
    why: Annotated[str, Meta(max_length=300)] = ""
    stack: Annotated[list[Annotated[str, Meta(max_length=500)]], Meta(max_length=32)] = []
    d: dict[str, Any] = {}


@dataclass(slots=True)
class RankState:
    """What is known of one rank; times are of whoever asks (`time.monotonic`)."""

    rank: int
    heard_at: float
    moved_at: float
    moves: int = -1
    steps: int = 0
    phase: str = ""
    used: deque[tuple[float, float, int]] = field(default_factory=lambda: deque(maxlen=16))
    """(when, CPU seconds, bytes read and written), since it moved."""
    stack: tuple[str, ...] = ()
    dump: Dump | None = None
    outside: str = ""
    """The process's state as its node sees it, once it is silent; `gone`: there is none."""
    ended: str = ""
    hurt: str = ""

    def doing(self, now: float) -> Doing:
        if self.ended or self.outside == "gone":
            return "ended"
        if now - self.heard_at > _SILENT_S:
            return "stopped" if self.outside in ("T", "t") else "silent"
        if self.phase in ("wait", "sync") or self._has_open_calls():
            return "waits" if now - self.moved_at >= _WAITS_S else "works"
        return "works" if self._is_busy(now) else "idle"

    def _has_open_calls(self) -> bool:
        """On GPUs the host does not wait: what NCCL has not finished tells."""
        groups = self.dump.groups if self.dump else {}
        return any(
            group.backend == "nccl" and any(not call.done for call in calls.values())
            for group, calls in groups.items()
        )

    def _is_busy(self, now: float) -> bool:
        if self.phase == "checkpoint" or now - self.moved_at < _WAITS_S:
            return True
        recent = [one for one in self.used if now - one[0] <= _LOOKED_S]
        if len(recent) < 2:
            return True  # not enough is known to accuse it
        (begin, cpu, moved), (end, cpu_now, moved_now) = recent[0], recent[-1]
        seconds = max(end - begin, 1e-3)
        cores, rate = (cpu_now - cpu) / seconds, (moved_now - moved) / seconds
        return cores >= _BUSY_CORES or rate >= _BUSY_BYTES_S


_decode = msgspec.json.Decoder(_Told).decode


class Liveness:
    """The ranks of one launch of a job."""

    def __init__(self) -> None:
        self.ranks: dict[int, RankState] = {}

    def take(self, text: str, now: float) -> None:
        """One message; what is malformed is passed over."""
        if len(text) > _MOST_BYTES:
            return
        try:
            told = _decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        one = self.ranks.setdefault(told.r, RankState(told.r, now, now))
        if told.k == "o":
            one.outside, one.stack = told.st or "gone", tuple(told.stack)
            return
        one.heard_at, one.outside, one.ended = now, "", ""
        if told.k == "t":
            self._moved(one, told, now)
        elif told.k == "st":
            one.stack, one.dump = tuple(told.stack), _dump(told.d, told.r)
        elif told.k == "hurt":
            one.hurt = told.why
        elif told.k == "bye":
            one.ended = "its Python ended"

    def _moved(self, one: RankState, told: _Told, now: float) -> None:
        if told.m != one.moves:
            one.moves, one.moved_at, one.dump, one.stack = told.m, now, None, ()
            one.used.clear()
        else:
            one.used.append((now, told.c, told.io))
        one.steps, one.phase = told.s, told.p

    def over(self, rank: int, how: str) -> None:
        """The process of that rank ended."""
        if rank in self.ranks:
            self.ranks[rank].ended = how

    def still_s(self, now: float) -> float:
        """For how long nothing has moved; 0 where nobody waits, or nothing is known."""
        doing = self.doing(now)
        if "waits" not in doing.values():
            return 0.0
        alive = [one for rank, one in self.ranks.items() if doing[rank] != "ended"]
        return now - max((one.moved_at for one in alive), default=now)

    def doing(self, now: float) -> dict[int, Doing]:
        return {rank: one.doing(now) for rank, one in sorted(self.ranks.items())}

    def working(self, now: float) -> str:
        """Who works while others wait for it, as words; empty: nobody, or nobody waits."""
        doing = self.doing(now)
        busy = [rank for rank, what in doing.items() if what == "works"]
        if "waits" not in doing.values() or len(busy) != 1:
            return ""
        one = self.ranks[busy[0]]
        where = f" ({one.stack[0]})" if one.stack else ""
        return f"the others wait for rank {one.rank}, which works{where}"

    def hang(self, now: float, hosts: Mapping[int, str]) -> list[Finding]:
        """Who is to blame that the job stands still; empty: it does not, or somebody works."""
        still = self.still_s(now)
        if still < STILL_S:
            return []
        doing = self.doing(now)
        waiting = [rank for rank, what in doing.items() if what == "waits"]
        sure = [rank for rank, what in doing.items() if what in ("stopped", "silent", "ended")]
        idle = [rank for rank, what in doing.items() if what == "idle"]
        if not sure and "works" in doing.values():
            return []
        blamed = sure or idle
        if not blamed or len(blamed) > max(1, len(doing) // 2):
            return self._all_wait(waiting, still)
        return [self._culprit(rank, doing[rank], waiting, still, hosts) for rank in blamed]

    def _culprit(
        self, rank: int, what: Doing, waiting: list[int], still: float, hosts: Mapping[int, str]
    ) -> Finding:
        one = self.ranks[rank]
        where = f"rank {rank}" + (f" on {hosts[rank]}" if hosts.get(rank) else "")
        found = self._recorded()
        lacks = next((f.saw for f in found if f.subject.name == f"rank {rank}" and f.saw), "")
        stack = [f"stack of rank {rank}, innermost first:", *one.stack[:_LINES]]
        return tell(
            "WATCH-008",
            what if what != "idle" or one.phase != "data" else "loader",
            subject=Subject("rank", f"rank {rank}"),
            evidence=[*(stack if one.stack else []), *([lacks] if lacks else [])],
            where=where,
            rank=rank,
            still=f"{still:.0f}",
            how=one.ended or one.outside,
            step=one.steps,
            top=one.stack[0] if one.stack else "its own code",
            waiting=_ranks(waiting),
            wait="waits" if len(waiting) == 1 else "wait",
        )

    def _all_wait(self, waiting: list[int], still: float) -> list[Finding]:
        """By the flight recorders of all, where they single somebody out."""
        found = [one for one in self._recorded() if one.status != "pass"]
        values = {"waiting": _ranks(waiting), "still": f"{still:.0f}"}
        if named := self._named(found, "mismatch", **values):
            return named
        told = [f"{one.title}: {one.saw}" for one in found[:2]]
        return [tell("WATCH-008", "all wait", evidence=told, **values)]

    def ended_apart(self) -> list[Finding]:
        """Who was in another collective than the rest when the ranks of a job that failed ended."""
        found = [one for one in self._recorded() if one.category == "collective-mismatch"]
        return self._named(found, "ended")

    def _named(self, found: Iterable[Finding], case: str, **values: str) -> list[Finding]:
        """Ranks that flight recorders single out, each with its stack and another's."""
        named = [one for one in found if one.subject.kind == "rank" and one.status == "fail"]
        return [
            tell(
                "WATCH-009",
                case,
                subject=one.subject,
                evidence=[one.saw, *one.evidence, *self._stacks(one.subject.name)],
                said=one.title,
                **values,
            )
            for one in named[:4]
        ]

    def _stacks(self, name: str) -> list[str]:
        """Of that rank and of one beside it, in which they are apart."""
        known = [one for one in self.ranks.values() if one.stack]
        own = [one for one in known if f"rank {one.rank}" == name]
        other = [one for one in known if one not in own and own and one.stack != own[0].stack]
        return [
            line
            for one in (*own, *other[:1])
            for line in (f"stack of rank {one.rank}, innermost first:", *one.stack[:_LINES])
        ]

    def _recorded(self) -> list[Finding]:
        """What the flight recorders of those that stand still say; nothing without any."""
        dumps = [one.dump for one in self.ranks.values() if one.dump is not None]
        return compare(dumps) if dumps else []


def _dump(data: Mapping[str, Any], rank: int) -> Dump | None:
    try:
        return dump_of(data, f"rank {rank}", rank) if data.get("entries") else None
    except InputError:
        return None


def _ranks(ranks: Iterable[int]) -> str:
    every = list(ranks)
    listed = ", ".join(map(str, every[:8])) + (" …" if len(every) > 8 else "")
    return f"rank{'' if len(every) == 1 else 's'} {listed}"
