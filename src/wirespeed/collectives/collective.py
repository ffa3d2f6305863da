"""What is known of one operation, as the catalogue's entries say it.

An operation is described by its *layout*: for each rank of a group, which stretch of its output
must hold which stretch of whose input (`Copy`), or the reduction of which stretch over all inputs
(`Reduce`). The oracle, the report of wrong chunks and the buffer sizes all come from that one
description.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from wirespeed.collectives.algorithms import Algorithm

REDOPS = ("sum", "prod", "min", "max", "avg")


@dataclass(frozen=True, slots=True)
class Geometry:
    """One call as seen by one rank; all counts are elements, all ranks are within the group."""

    rank: int
    ranks: int
    count: int
    root: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """`length` elements of `rank`'s input from `offset` on."""

    rank: int
    offset: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """The reduction over all ranks of their inputs from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the output and where its content must come from."""

    start: int
    length: int
    source: Copy | Reduce

    @property
    def label(self) -> str:
        if isinstance(self.source, Copy):
            return f"chunk from rank {self.source.rank}"
        return f"reduced chunk at element {self.source.offset}"


Count = Callable[[Geometry], int]
Layout = Callable[[Geometry], tuple[Segment, ...]]


class BusFactor(NamedTuple):
    """busbw / algbw over n ranks."""

    times: float
    shared: bool = False
    """Whether it is `times` × (n-1)/n: of n parts each rank keeps its own."""

    def __call__(self, ranks: int) -> float:
        return self.times * (ranks - 1) / ranks if self.shared else self.times

    @property
    def formula(self) -> str:
        """`2(n−1)/n`, in n ranks; empty where there is no busbw."""
        times = f"{self.times:g}" if self.times else ""
        return f"{times.removeprefix('1')}(n−1)/n" if self.shared else times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collective:
    """One operation of the catalogue; there is one object of each."""

    name: str
    number: int
    """Of its findings (`COL-001`), for good."""
    title: str
    aliases: tuple[str, ...] = ()
    """Other names that people use, without hyphens and underscores."""

    # Buffers, and what must come out.
    input_count: Count
    """Elements that this rank hands in."""
    output_count: Count
    """Elements of this rank's output buffer (0: nothing comes out here)."""
    layout: Layout
    in_place_slice: Callable[[Geometry], tuple[int, int]] | None = None
    """(offset of the input within the output, offset of the output within the input); one is 0.
    None: no in-place form exists at all (where there is one, an engine may still lack it)."""
    has_data: bool = True
    reduces: bool = False
    rooted: bool = False
    point_to_point: bool = False
    """Made of sends and receives, which take part in pairs."""
    min_ranks: int = 1

    # Figures.
    size_factor: Callable[[int], int]
    """`size` in units of the count parameter, from the number of ranks."""
    bus_factor: BusFactor
    synchronising: bool = False
    """Every rank waits for every other, with as much to do, so that the ranks' times compare."""
    timed_for: tuple[str, ...] = ()
    """Findings, or families of them, that `check` times it for beside its own."""
    scratch: Mapping[str, Literal["input", "output"]] = field(default_factory=dict)
    """Which buffer a backend takes once more (seen with torch 2.13: it flattens lists of chunks, and
    reduces a copy of the input; tests/rank/test_memory_need.py repeats it)."""

    # Models.
    links: Literal["", "ring", "pairs"] = ""
    """How its bytes cross the links in the roofline's model; empty: no model."""
    adds: float = 0.0
    """Passes over memory to add values, for each byte of busbw."""
    algorithms: tuple[Algorithm, ...] = ()
    """What predictions try to fit."""
    algorithms_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those that a backend's source is known to have, by backend."""

    # Its names elsewhere.
    functions: tuple[str, ...] = ()
    """Of torch.distributed and deepspeed.comm, the newest first; each release has one of them."""
    mpi: str = ""
    """MPI's, as mpi4py has it for buffers."""
    program: str = ""
    """Of nccl-tests, without `_perf`; empty: none."""
    recorded: tuple[str, ...] = ()
    """Of calls in torch's flight recorder."""
    same_size: bool = False
    """Whether what is recorded has the same size and type on every rank."""

    @property
    def in_place(self) -> bool:
        return self.in_place_slice is not None

    def count_for(self, size_bytes: int, itemsize: int, ranks: int) -> int:
        """Elements of the count parameter for about that size, at least 1 (0 without data)."""
        if not self.has_data:
            return 0
        return max(1, size_bytes // (itemsize * self.size_factor(ranks)))

    def size_bytes(self, count: int, itemsize: int, ranks: int) -> int:
        """The `size` that nccl-tests would report for that count."""
        return count * itemsize * self.size_factor(ranks)
