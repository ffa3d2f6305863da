"""What a rank's worker answers, and what it is told: one JSON line each. Standard library only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one order. A worker that hangs answers nothing; then the rank says so in its place."""

    seconds: float = 0.0
    """In the calls themselves."""
    size_bytes: int = 0
    calls: int = 0
    median: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0
    cached: float = 0.0
    """Share of what was read that was in the page cache before."""
    wrong: int = 0
    """Bytes in blocks that hold other data than were written."""
    said: str = ""
    kind: str = ""
    """Empty: done; `hung`, or `error`."""
    text: str = ""
    error: str = ""
    """Name of the error number."""
    waited: float = 0.0
    where: str = ""


def timed(times: Sequence[float], size_bytes: int = 0, extra_s: float = 0.0) -> Answer:
    """Of calls that took so long each, and `extra_s` beside them, such as fdatasync's."""
    ordered = sorted(times) or [0.0]

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Answer(
        seconds=sum(times) + extra_s,
        size_bytes=size_bytes,
        calls=len(times),
        median=at(0.5),
        p95=at(0.95),
        p99=at(0.99),
        max=ordered[-1],
    )
