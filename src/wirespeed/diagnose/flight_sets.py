"""Which dumps belong together: those of one job, one a rank."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wirespeed.diagnose.flight_read import Dump

__all__ = ["Jobs", "jobs_of"]

_APART_NS = 6 * 3600 * 10**9
"""Ranks of one job that hangs stop within a time-out of each other; torch's are 10 and 30 min."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Dumps by job, each by rank."""

    sets: tuple[Mapping[int, Dump], ...]
    mixed: str = ""
    """What shows that they are of several jobs or moments; empty: nothing does."""


def jobs_of(dumps: Iterable[Dump]) -> Jobs:
    """As one job where nothing speaks against it, else by folder and by time."""
    every = list(dumps)
    if not (mixed := _mixed(every)):
        return Jobs((_by_rank(every),))
    folders: dict[Path, list[Dump]] = {}
    for dump in every:
        folders.setdefault(Path(dump.source).parent, []).append(dump)
    parts = [part for some in folders.values() for part in _by_time(some)]
    # Where a rank still has two dumps nothing tells which go together.
    return Jobs(tuple(_by_rank(part) for part in parts if not _twice(part)), mixed)


def _by_rank(dumps: Sequence[Dump]) -> dict[int, Dump]:
    return {dump.rank: dump for dump in sorted(dumps, key=lambda one: one.rank)}


def _mixed(dumps: Sequence[Dump]) -> str:
    if twice := _twice(dumps):
        return f"rank {twice[0].rank} has {twice[0].source} and {twice[1].source}"
    parts = _by_time(dumps)
    if len(parts) > 1:
        return f"{parts[0][0].source} is from hours before {parts[-1][0].source}"
    worlds = {size: dump for dump in dumps if (size := _world(dump))}
    if len(worlds) > 1:
        told = [f"{dump.source} of {size} ranks" for size, dump in sorted(worlds.items())]
        return ", ".join(told[:4])
    return ""


def _world(dump: Dump) -> int:
    """Ranks of the default group; 0: not told."""
    return next((len(one.members) for one in dump.told if one.desc == "default_pg"), 0)


def _twice(dumps: Sequence[Dump]) -> tuple[Dump, ...]:
    seen: dict[int, Dump] = {}
    for dump in dumps:
        if (other := seen.setdefault(dump.rank, dump)) is not dump:
            return (other, dump)
    return ()


def _by_time(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """Parts between which there are hours; a dump that has no times belongs to the last."""
    parts: list[list[Dump]] = []
    last = 0
    for dump in sorted(dumps, key=lambda one: one.newest):
        if not parts or (dump.newest and last and dump.newest - last > _APART_NS):
            parts.append([])
        parts[-1].append(dump)
        last = dump.newest or last
    if parts and len(parts) > 1 and (timeless := [one for one in parts[0] if not one.newest]):
        parts[0] = [one for one in parts[0] if one.newest]
        parts[-1] += timeless
    return [part for part in parts if part]
