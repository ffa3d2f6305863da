"""One collective of somebody's job, as one rank issued it: of flight recorders and traces."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Times are seconds since 1970 on the rank's own clock, or of the trace's zero."""

    rank: int
    """Global rank that issued it."""
    op: str
    """The catalogue's name (`all_reduce`), else the library's own."""
    group: tuple[int, ...]
    """Global ranks of its process group, in order; empty: not known, which is the whole world."""
    group_name: str
    """With `group` the identity of the process group: several may have the same members."""
    seq: int
    """Number of the collective within its group, from 0 or 1; -1: not told."""
    size_bytes: int
    """What this rank handed in; of an all-gather its own part."""
    dtype: str
    """As records name it: `float32`, `bfloat16`, …; empty: not told."""
    begin_s: float
    """When it was issued."""
    end_s: float | None = None
    """When it was over; None: not told, or still open."""
    peer: int = -1
    """Of a send or receive: the other's global rank."""
