"""The session's table of ranks: what each has said, and what that means. No sockets, no clock.

Bounds. A rank that is still starting counts against the start-up bound of the whole world, any
other against the bound of one operation; a phase that announces its own bound counts against that.
While a rank is rightly slow (it starts, or announced a long phase) the others wait for it rightly:
their clocks run only from the moment when it is through.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from wirespeed.watchdog.facts import PHASES, STARTUP_PHASES, Death, Phase, Raised, RankStatus
from wirespeed.watchdog.protocol import Beat, Hello, ProtocolError, StackText

_TOLD = 4
"""Strangers that are told of; the others are counted."""
_OF_THE_STATUS = [one.name for one in fields(RankStatus) if one.name not in ("since", "silent")]


@dataclass(slots=True)
class RankEntry:
    """The mutable row of one rank; moments are seconds of the session's monotonic clock."""

    rank: int
    heard_at: float
    progressed_at: float
    host: str = ""
    pid: int = 0
    address: str = ""
    """From where it calls, as host:port."""
    phase: Phase = "starting"
    detail: str = ""
    op: str = ""
    sequence: int = 0
    ticks: int = 0
    bound: float = 0.0
    connected: bool = False
    open: bool = False
    joined: bool = False
    """Has left the start-up phases once."""
    lost_at: float | None = None
    lost_because: str = ""
    ended_at: float | None = None
    returncode: int | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    failure: Raised | None = None
    stack: str | None = None
    recent: tuple[tuple[int, str], ...] = ()

    @property
    def dead_at(self) -> float | None:
        """When the rank was seen to end without goodbye; None while it lives."""
        moments = [at for at in (self.lost_at, self.ended_at) if at is not None]
        spoke = self.finished_at is not None or self.failure is not None
        return None if spoke or not moments else min(moments)

    @property
    def over(self) -> bool:
        """Whether nothing more is expected of the rank."""
        spoke = self.finished_at is not None or self.failure is not None
        return spoke or self.dead_at is not None

    @property
    def starting(self) -> bool:
        return not self.connected or self.phase in STARTUP_PHASES

    def status(self, now: float) -> RankStatus:
        same = {name: getattr(self, name) for name in _OF_THE_STATUS}
        return RankStatus(**same, since=now - self.progressed_at, silent=now - self.heard_at)


class RankTable:
    """All ranks of one run; every method takes the present moment."""

    def __init__(
        self, world_size: int, now: float, *, op_timeout: float, startup_timeout: float
    ) -> None:
        self.op_timeout, self.startup_timeout = op_timeout, startup_timeout
        self.entries = [RankEntry(rank, now, now) for rank in range(world_size)]
        self.refusals: list[str] = []
        self.claims: tuple[int, str, str] | None = None
        """A rank, the process that has it and the first other one that knows the key and claims it."""
        self.turned_away: list[str] = []
        """The first of those who spoke without the run's key, as address and what was wrong."""
        self.turned_away_count = 0
        self._started, self._startup_at = now, now
        """Last moment at which some rank was rightly starting."""
        self._long_at = now
        """Last moment at which some rank was rightly in a phase with a long bound of its own."""

    # What is heard.

    def hello(self, hello: Hello, address: str, now: float) -> str:
        """Enter a rank that calls from `address`; returns why it is refused, or ``."""
        reason = self._objection(hello)
        if not reason and (first := self.entries[hello.rank]).connected:
            reason = f"rank {hello.rank} is already pid {first.pid} on {first.host}"
            if self.claims is None:
                one = _process(first.pid, first.host, first.address)
                other = _process(hello.pid, hello.host, address)
                self.claims = (hello.rank, one, other)
        if reason:
            self.refusals.append(f"a process on {hello.host}, pid {hello.pid}: {reason}")
            return reason
        entry = self.entries[hello.rank]
        entry.host, entry.pid, entry.address = hello.host, hello.pid, address
        entry.connected = entry.open = True
        entry.heard_at = entry.progressed_at = now
        return ""

    def _objection(self, hello: Hello) -> str:
        size = len(self.entries)
        if hello.world_size != size:
            return f"it believes in a world of {hello.world_size} ranks, this one has {size}"
        if not 0 <= hello.rank < size:
            return f"it calls itself rank {hello.rank} in a world of {size} ranks"
        return ""

    def stranger(self, address: str, why: str) -> None:
        """Somebody spoke without the run's key; only the first few are kept."""
        self.turned_away_count += 1
        if len(self.turned_away) < _TOLD:
            self.turned_away.append(f"{address}: {why}")

    def beat(self, rank: int, beat: Beat, now: float) -> None:
        """Take a heartbeat. ProtocolError for a phase that there is not."""
        if beat.phase not in PHASES:
            raise ProtocolError(f"unknown phase {beat.phase!r:.40}")
        entry = self.entries[rank]
        entry.heard_at = now
        place = (beat.phase, beat.detail, beat.sequence)
        if place != (entry.phase, entry.detail, entry.sequence):
            entry.progressed_at = max(entry.progressed_at, now - max(0.0, beat.age))
        if beat.ticks != entry.ticks:
            entry.progressed_at = now
        if not entry.over:
            entry.phase = beat.phase
        entry.detail, entry.op, entry.sequence = beat.detail, beat.op, beat.sequence
        entry.ticks, entry.bound = beat.ticks, beat.bound
        entry.joined = entry.joined or not entry.starting

    def record(self, rank: int, now: float) -> None:
        """A result is progress."""
        self.entries[rank].heard_at = self.entries[rank].progressed_at = now

    def failed(self, rank: int, error: str, trace: str, now: float) -> None:
        entry = self.entries[rank]
        entry.heard_at = now
        entry.phase = "failed"
        if entry.failure is None:
            entry.failure = Raised(rank=rank, at=now, error=error, trace=trace)

    def gave_up(self, rank: int, host: str, error: str, now: float) -> None:
        """A rank that never connected ended with an error."""
        self.entries[rank].host = self.entries[rank].host or host
        self.failed(rank, error, "", now)

    def stack(self, rank: int, answer: StackText, now: float) -> None:
        entry = self.entries[rank]
        entry.heard_at = now
        entry.stack = answer.text
        entry.recent = tuple((int(number), str(label)) for number, label in answer.recent)

    def bye(self, rank: int, exit_code: int, now: float) -> None:
        entry = self.entries[rank]
        entry.heard_at = entry.progressed_at = entry.finished_at = now
        entry.exit_code = exit_code
        if entry.failure is None:
            entry.phase = "finished"

    def lost(self, rank: int, now: float, why: str = "") -> None:
        """The rank's connection ended, and why, if it was our doing."""
        entry = self.entries[rank]
        entry.open = False
        entry.lost_because = why
        if entry.lost_at is None:
            entry.lost_at = now

    def ended(self, rank: int, returncode: int, now: float) -> None:
        """The rank's process ended, as its parent knows."""
        entry = self.entries[rank]
        if entry.ended_at is None:
            entry.ended_at, entry.returncode = now, returncode

    def restart(self, now: float) -> None:
        """The run starts now, not when the table was made."""
        self.shift(now - self._started)

    def shift(self, seconds: float) -> None:
        """The session itself did not run for so long: that is nobody's silence."""
        self._started += seconds
        self._startup_at += seconds
        self._long_at += seconds
        for entry in self.entries:
            entry.heard_at += seconds
            entry.progressed_at += seconds

    # What it means.

    def overdue(self, now: float) -> frozenset[int]:
        """Ranks that made no progress within their bound."""
        live = [entry for entry in self.entries if not entry.over]
        for entry in live:
            rightly = not self._own_clock_is_over(entry, now)
            if entry.starting and rightly:
                self._startup_at = now
            if entry.bound > self.op_timeout and rightly:
                self._long_at = now
        return frozenset(entry.rank for entry in live if self._is_overdue(entry, now))

    def _bound(self, entry: RankEntry) -> float:
        default = self.startup_timeout if entry.starting else self.op_timeout
        return entry.bound or default

    def _own_clock_is_over(self, entry: RankEntry, now: float) -> bool:
        """Without regard to other ranks, so that two slow ranks never excuse each other."""
        if entry.starting and not entry.bound and not entry.joined:
            return now - max(self._started, self._long_at) > self.startup_timeout
        return now - entry.progressed_at > self._bound(entry)

    def _is_overdue(self, entry: RankEntry, now: float) -> bool:
        if not self._own_clock_is_over(entry, now):
            return False
        if entry.starting or entry.bound > self.op_timeout:
            return True
        excused = max(self._startup_at, self._long_at)
        return now - max(entry.progressed_at, excused) > self._bound(entry)

    def deaths(self) -> tuple[Death, ...]:
        """Ranks that ended without goodbye and without having reported an exception."""
        return tuple(
            Death(
                rank=entry.rank,
                at=entry.dead_at,
                returncode=entry.returncode,
                why=entry.lost_because,
            )
            for entry in self.entries
            if entry.dead_at is not None
        )

    def raised(self) -> tuple[Raised, ...]:
        return tuple(entry.failure for entry in self.entries if entry.failure is not None)

    def statuses(self, now: float) -> tuple[RankStatus, ...]:
        return tuple(entry.status(now) for entry in self.entries)


def _process(pid: int, host: str, address: str) -> str:
    return f"pid {pid} on {host} ({address})"


# When the session has seen enough to decide: of the table and the moment alone.

DEATH_GRACE_S = 0.5
"""Wait after a death for its return code, and for a rank that died at the same moment."""
RAISE_GRACE_S = 1.0
"""Wait after an exception for the death that may have caused it."""
EXIT_GRACE_S = 10.0
"""Wait for the processes of local ranks to end after all have said goodbye."""

Trigger = Literal["claimed", "finished", "ended", "overdue"]


def trigger(table: RankTable, now: float, is_local: Callable[[int], bool]) -> Trigger | None:
    """What to decide on now: a rank is claimed twice, all is done, one ended badly or is overdue.

    `is_local`: whether the owner will report the end of that rank's process.
    """
    if table.claims is not None:
        return "claimed"
    if _ended_badly(table, now):
        return "ended"
    if all(entry.finished_at is not None for entry in table.entries):
        waits = any(_awaited(entry, now, is_local) for entry in table.entries)
        return None if waits or table.raised() else "finished"
    # Nothing is overdue while an end is being looked into: that comes first.
    if table.deaths() or table.raised():
        return None
    return "overdue" if table.overdue(now) else None


def lingering(table: RankTable, is_local: Callable[[int], bool]) -> frozenset[int]:
    """Local ranks that said goodbye but whose process has not ended."""
    return frozenset(
        entry.rank
        for entry in table.entries
        if entry.finished_at is not None and entry.ended_at is None and is_local(entry.rank)
    )


def _awaited(entry: RankEntry, now: float, is_local: Callable[[int], bool]) -> bool:
    if entry.ended_at is not None or not is_local(entry.rank):
        return False
    return entry.finished_at is not None and now - entry.finished_at < EXIT_GRACE_S


def _ended_badly(table: RankTable, now: float) -> bool:
    dead = [entry for entry in table.entries if entry.dead_at is not None]
    if dead:
        return now >= min(entry.dead_at or now for entry in dead) + DEATH_GRACE_S and not any(
            _still_speaks(entry, now) for entry in dead
        )
    raised = table.raised()
    if not raised:
        return False
    over = all(entry.over for entry in table.entries)
    return over or now >= min(r.at for r in raised) + RAISE_GRACE_S


def _still_speaks(entry: RankEntry, now: float) -> bool:
    """The process ended, but what it sent (perhaps its goodbye) is still being read."""
    return entry.open and now - max(entry.heard_at, entry.ended_at or 0.0) < DEATH_GRACE_S
