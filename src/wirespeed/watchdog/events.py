"""What the session knows when it has to say who is to blame."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirespeed.watchdog.rank_status import RankStatus

__all__ = ["Death", "Facts", "Raised"]


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
