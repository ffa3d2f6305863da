"""The contract of a launcher: start these ranks, watch them, stop everything.

A launcher knows nothing of what it starts: a command, its environment and where its output goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Launcher", "RankSpec"]


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank to start."""

    rank: int
    command: Sequence[str]
    environment: Mapping[str, str]
    """The whole environment of the process."""
    log: Path
    """Where its stdout and stderr go, from the first byte on."""


class Launcher(Protocol):
    name: str

    def start(self, specs: Sequence[RankSpec]) -> None:
        """Start every rank; WorldError names the one that could not be started."""
        ...

    def pids(self) -> dict[int, int]:
        """Process ids by rank, of those on this machine."""
        ...

    def ended(self) -> dict[int, int]:
        """Return codes of the ranks that ended since the last call (negative: a signal)."""
        ...

    def stop(self, grace_s: float) -> None:
        """End every rank that still runs: SIGTERM, then SIGKILL after `grace_s`. Bounded."""
        ...
