"""When the session has seen enough to decide. Pure functions of the table and the moment."""

from collections.abc import Callable
from typing import Literal

from wirespeed.watchdog.rank_table import RankEntry, RankTable

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
