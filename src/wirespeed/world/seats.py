"""Which node a process is on, so that ranks of one node find each other."""

import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

__all__ = ["distinct_names", "own_seat"]


def own_seat() -> tuple[str, int]:
    """Host name and network namespace (0: not known): two containers may carry one name."""
    try:
        space = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        space = 0
    return socket.gethostname(), space


def distinct_names(seats: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Node names in the order of `seats`: `name`, and `name#2` for another namespace of that name."""
    names: dict[tuple[str, int], str] = {}
    seen: Counter[str] = Counter()
    for seat in seats:
        if seat not in names:
            seen[seat[0]] += 1
            names[seat] = seat[0] if seen[seat[0]] == 1 else f"{seat[0]}#{seen[seat[0]]}"
    return tuple(names[seat] for seat in seats)
