"""What the session knows when it has to say who is to blame, and phrases that its findings share."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirespeed.model.records import Finding, Subject
from wirespeed.watchdog.rank_status import RankStatus, ranks_text


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


MOST_FINDINGS = 8
"""Ranks named by a finding each; the others are listed in the last one's evidence."""
ENDED = "the run ended here; what was measured before is kept"
_EVIDENCE_LINES = 40


def subject_of(status: RankStatus) -> Subject:
    return Subject("rank", f"rank {status.rank}")


def last_seen(status: RankStatus) -> str:
    if not status.connected:
        return "it never connected"
    return f"last seen {status.doing()}"


def others_place(facts: Facts, without: set[int]) -> str:
    return groups_text([s for s in facts.statuses if s.rank not in without])


def groups_text(statuses: Sequence[RankStatus]) -> str:
    """`3 in all_reduce (operation 5), 1 finished`: the three most common places."""
    places = Counter(
        s.place() if s.connected and s.phase != "finished" else s.doing() for s in statuses
    )
    parts = [f"{count} {place}" for place, count in places.most_common(3)]
    more = len(places) - len(parts)
    return ", ".join(parts) + (f", {more} elsewhere" if more > 0 else "")


def waiting_text(facts: Facts, without: set[int]) -> str:
    """What the others waited for, to end a sentence."""
    live = [s for s in facts.statuses if s.rank not in without and s.phase != "finished"]
    return f"; the others: {groups_text(live)}" if live else ""


def state_text(facts: Facts, status: RankStatus) -> str:
    state = facts.states.get(status.rank, "")
    words = {"T": "stopped", "t": "stopped by a debugger", "D": "waits for a device", "Z": "ended"}
    if not state:
        return "process state unknown (the process is not ours to look at)"
    return f"process state {state}" + (f" ({words[state]})" if state in words else "")


def stack_lines(facts: Facts, status: RankStatus) -> tuple[str, ...]:
    stack = facts.stacks.get(status.rank)
    if stack:
        return (f"Python stack of rank {status.rank}:", *cut_lines(stack))
    why = "it did not answer" if status.connected else "it never connected"
    if status.phase in ("finished", "failed"):
        why = f"it had {status.phase}"
    return (f"no Python stack of rank {status.rank}: {why}",)


def cut_lines(text: str) -> tuple[str, ...]:
    lines = text.rstrip().splitlines()
    if len(lines) <= _EVIDENCE_LINES:
        return tuple(lines)
    half = _EVIDENCE_LINES // 2
    return (*lines[:half], f"… {len(lines) - 2 * half} lines left out …", *lines[-half:])


def first_line(error: str) -> str:
    """The first line of the message: PyTorch appends C++ stacks below it."""
    return (error.strip().splitlines() or ["an exception"])[0][:300]


def with_rest(findings: list[Finding], ranks: Iterable[int]) -> tuple[Finding, ...]:
    """Say in the last finding which further ranks it holds for."""
    rest = sorted(ranks)[MOST_FINDINGS:]
    if rest:
        note = f"the same holds for {len(rest)} more: {ranks_text(rest)}"
        findings[-1] = replace(findings[-1], evidence=(note, *findings[-1].evidence))
    return tuple(findings)
