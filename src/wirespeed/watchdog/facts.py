"""What the session knows when it has to say who is to blame: where ranks are, and what ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from wirespeed.model.units import format_duration

Phase = Literal[
    "starting", "importing", "joining", "ready", "running", "waiting", "finished", "failed"
]

PHASES: tuple[Phase, ...] = get_args(Phase)
"""In the order in which a rank passes through them."""

STARTUP_PHASES: tuple[Phase, ...] = ("starting", "importing", "joining")
"""Phases that count against the start-up bound; a rank that left them has joined the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """What is known of one rank at one moment."""

    rank: int
    host: str = ""
    """Empty while the rank has not connected."""
    pid: int = 0
    """Process id on `host`; 0 while the rank has not connected."""
    phase: Phase = "starting"
    detail: str = ""
    """What the phase is busy with, such as `torch`."""
    op: str = ""
    """The operation begun last, such as `all_reduce float32 1 MiB`."""
    sequence: int = 0
    """Operations begun; the same on every rank of a healthy world, but for the one in flight."""
    ticks: int = 0
    """Progress within long operations."""
    since: float = 0.0
    """Seconds without progress in this phase or operation."""
    silent: float = 0.0
    """Seconds since anything was heard of the rank."""
    connected: bool = False
    """Whether it has ever connected."""
    returncode: int | None = None
    """How its process ended, if known: the exit code, or minus the signal's number."""
    exit_code: int | None = None
    """The exit code that it announced when it said goodbye."""
    recent: tuple[tuple[int, str], ...] = ()
    """The last operations as (sequence, label); only known after a stack was asked for."""

    @property
    def name(self) -> str:
        """`rank 3 on node-a`."""
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank}"

    def doing(self) -> str:
        """What it does, to follow its name: `in all_reduce (operation 5) for 31 s`."""
        if not self.connected:
            return "never connected"
        if self.phase == "finished":
            return f"finished after {self.sequence} operations"
        where = "before its first operation" if not self.sequence else self.place()
        text = f"failed {where}" if self.phase == "failed" else self.place()
        return f"{text} for {format_duration(max(self.since, 0.0))}"

    def place(self) -> str:
        """Phase and operation without the time, the same text for ranks at the same place."""
        detail = f" ({self.detail})" if self.detail else ""
        if self.phase in STARTUP_PHASES or self.phase == "ready":
            return f"{self.phase}{detail}"
        if not self.sequence:
            return f"{self.phase}{detail} before its first operation"
        return f"in {self.op} (operation {self.sequence})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A rank's process or connection that ended without goodbye."""

    rank: int
    at: float
    """When it was noticed, in seconds of the session's monotonic clock."""
    returncode: int | None = None
    """The exit code, or minus the signal's number; None where nobody could tell."""
    why: str = ""
    """What the session knows of the connection's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception that a rank reported before it ended."""

    rank: int
    at: float
    error: str
    """The last line, such as `ValueError: no`."""
    trace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that `blame` may use; times in seconds."""

    statuses: tuple[RankStatus, ...]
    """One for each rank, in order."""
    op_timeout: float = 30.0
    startup_timeout: float = 120.0
    deaths: tuple[Death, ...] = ()
    raised: tuple[Raised, ...] = ()
    overdue: frozenset[int] = frozenset()
    """Ranks that made no progress within their bound."""
    silent: frozenset[int] = frozenset()
    """Ranks that send no heartbeat and did not answer when asked."""
    lingering: frozenset[int] = frozenset()
    """Ranks whose process still runs long after they said goodbye."""
    states: Mapping[int, str] = field(default_factory=dict)
    """Process state letters of local ranks."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    interrupted: str | None = None
    """Who or what interrupted the run."""
    refusals: tuple[str, ...] = ()
    """Processes that knew the run's key but were turned away, and why."""
    claims: tuple[int, str, str] | None = None
    """A rank, and the two processes with the run's key that claim it, with their addresses."""
    strangers: int = 0
    """How many spoke to the session without the run's key."""
    strangers_seen: tuple[str, ...] = ()
    """The first of them: address, and what was wrong."""


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2, 5`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    single = len(runs) == 1 and runs[0][0] == runs[0][1]
    return ("rank " if single else "ranks ") + ", ".join(parts)
