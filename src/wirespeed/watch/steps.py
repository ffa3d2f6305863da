"""The steps of all ranks as a table: what every source gives, and what `judge` reads."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

COLUMNS = (
    "step",  # from the end of the rank's step before to the end of this one
    "blocked",  # of it: waiting in communication, with nothing else to do
    "data",  # of it: in the data loader's `next`
    "forward",  # from the begin, or the end of `data`, to the begin of backward, without what waits
    "backward",  # without what waits
    "optimizer",  # in `optimizer.step`, without what waits
    "checkpoint",  # in torch.save and torch.distributed.checkpoint.save
    "gc",  # in Python's garbage collector
    "cpu",  # CPU time of the thread that trains
    "waited",  # that thread was ready to run and had no core
    "load",  # elements of the batch that the loader gave: no time, a count
)
"""Seconds of one step of one rank, but `load`. NaN: not known. What a rank did by itself, its own
work, is `step` without `blocked`: no clocks are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """One TCP connection of a rank over some time, by the kernel's own account (TCP_INFO)."""

    rank: int
    peer: str
    """The other end's address, without port."""
    step: int
    """Last step that had ended."""
    seconds: float
    """Length of the time."""
    busy_s: float
    """Of it there were data under way (tcpi_busy_time)."""
    sent_bytes: int
    """Acknowledged meanwhile."""
    rtt_s: float
    """Smoothed round trip at its end."""
    retransmits: int


@dataclass(frozen=True, slots=True)
class RankUse:
    """Of a rank's process over some time."""

    rank: int
    step: int
    """Last step that had ended."""
    rss_bytes: int
    """Resident memory at the end."""
    seconds: float = 0.0
    """Length of the time; 0: not told."""
    lacked_s: float = 0.0
    """Added up over its threads: ready to run, without a core."""


@dataclass(frozen=True, slots=True)
class RankPlaces:
    """Where in its program a rank was, of so many looks; a line within torch is the caller's."""

    looks: int
    at: dict[str, int]
    """Looks by place, `step (train.py:31)`; those that were most often."""


@dataclass(slots=True, kw_only=True)
class StepTable:
    """One launch of a job."""

    hosts: list[str]
    """By rank."""
    first: NDArray[np.int64]
    """By row: number of its first step."""
    each: NDArray[np.int64]
    """By row: over how many steps it is the mean."""
    columns: dict[str, NDArray[np.float32]]
    """By name: [ranks, rows]."""
    begin_s: NDArray[np.float64]
    """[rows]: seconds since 1970 at which the first rank began it."""
    links: list[LinkUse] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    """Host by address, as the ranks told it."""
    use: list[RankUse] = field(default_factory=list)
    """In order of steps for each rank."""
    bad_loss: dict[int, int] = field(default_factory=dict)
    """By rank: first step whose loss was no number."""
    places: dict[int, RankPlaces] = field(default_factory=dict)
    """By rank."""
    texts: dict[str, str] = field(default_factory=dict)
    """The line of the program by place."""
    boundary: str = ""
    """What ends a step, as `Watched.boundary`."""
    device: str = ""
    """`cuda` where a rank uses one."""
    waits_known: bool = True
    """False where nothing tells how long ranks wait, as with NCCL without marks of their GPUs."""
