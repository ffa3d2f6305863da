"""The vocabulary of what `bench` records beside its measurements.

Points of a grid (worlds of other sizes, backends or batches, one after the other), compared settings
(`bench --env`), and the figures that a measurement was held against. Seconds inside; figures get their
units on the way out (`codec.py`).
"""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Literal

from wirespeed.model.field_types import (
    ALWAYS,
    SPARSE,
    Count,
    GBps,
    Index,
    Micros,
    NotNegative,
    Positive,
    Share,
)
from wirespeed.model.training_records import Ratio
from wirespeed.model.units import counted, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A row that a point should have, and has not."""

    what: str
    """The operation with its type and reduction (`all_reduce float32 sum`), or the strategy."""
    size_bytes: Annotated[Count, ALWAYS] = 0
    """Of an operation, as it was asked for; 0 for strategies."""
    reason: str
    """Why there are no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One world of the grid."""

    ranks: Positive
    """Ranks of its world."""
    backend: str
    """That its ranks joined over; as it was asked for where they did not."""
    batch: Annotated[Count, ALWAYS] = 0
    """Samples of one step over all ranks; 0 where nothing is trained."""
    seconds: Annotated[NotNegative, ALWAYS] = 0.0
    """From its start to its end; 0: it was not started."""
    reason: Annotated[str, ALWAYS] = ""
    """Why it was not measured, or not to its end; empty: it was."""
    missing: Annotated[tuple[Missing, ...], ALWAYS] = ()
    """Rows that it should have, and has not."""

    @property
    def name(self) -> str:
        """`2 ranks, gloo`; `4 ranks, 32 samples`."""
        parts = ["1 rank" if self.ranks == 1 else f"{self.ranks} ranks"]
        parts += [self.backend] if self.backend != "auto" else []
        parts += [f"{self.batch} samples"] if self.batch else []
        return ", ".join(parts)


DEFAULT = "default"
"""Name of the combination in which every compared variable is unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFigures:
    """One operation of one size under one combination of settings."""

    case: str
    """Such as `all_reduce float32 1 MiB`."""
    median: Micros[NotNegative]
    """Median of the rounds' figures; each is the slowest rank's median of that round."""
    low: Micros[NotNegative]
    """Lower end of the 95 % interval of that median over the rounds; below 6 rounds the least."""
    high: Micros[NotNegative]
    """Upper end of that interval; below 6 rounds the greatest."""
    round_times: Micros[tuple[NotNegative, ...]]
    """One figure a round, µs, in the order of `rounds`."""
    ratio: Ratio | None = None
    """Time over the default's, paired by round; the interval is corrected for all comparisons of
    the run. None for the default, and where no round has both."""
    verdict: str = ""
    """`faster`, `slower`, `same` or `not enough rounds`; empty for the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One combination of the compared variables."""

    name: str
    """`default`, or the variables that it sets: `NCCL_ALGO=Ring OMP_NUM_THREADS=2`."""
    values: dict[str, str] = field(default_factory=dict)
    """Variables that it sets."""
    unset: tuple[str, ...] = ()
    """Variables that it leaves unset."""
    verdict: str
    """`default`; `faster`, `slower`, `same`, `not enough rounds`; `mixed`: faster in one case and
    slower in another; `dropped` by --search; `failed`: the ranks did not run under it."""
    winner: bool = False
    """It is proven faster than the default, slower nowhere, and the quickest of such."""
    ratio: Ratio | None = None
    """Time over the default's: of each round the geometric mean over its cases, then the median
    over the rounds; the interval is corrected for the number of combinations; null for the
    default."""
    rounds: tuple[Positive, ...] = ()
    """Numbers of the rounds that count, from 1."""
    needed: Count = 0
    """Rounds from which on such an interval exists at all."""
    reason: str = ""
    """Why it has no figures, or was given up."""
    figures: tuple[SettingFigures, ...] = ()
    """One entry a case."""


ReferenceKind = Literal["baseline", "own", "fleet", "reference", "roofline"]
"""A baseline, a figure that the user added, the median of earlier runs, the package's figure, or a
model of the links."""
ENDORSED: frozenset[ReferenceKind] = frozenset(("baseline", "own", "reference"))
"""References that may pass a speed: somebody has said that these figures are good."""
Quantity = Literal["busbw", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFigure:
    """One figure, for the measurement of the same operation, engine, type, place, size and ranks."""

    kind: ReferenceKind
    """A baseline, a figure that the user added, the median of earlier runs, the package's figure, or a
    model of the links."""
    source: str
    """Its name with its date; of a roofline the model."""
    op: str
    """The operation."""
    engine: str
    """The engine."""
    dtype: str
    """Type of the elements."""
    redop: str
    """Reduction, or `none`."""
    in_place: bool
    """Whether input and output are the same buffer."""
    size_bytes: Count
    """Size of the measurement."""
    ranks: Count
    """Ranks of one group."""
    busbw: Annotated[GBps[NotNegative | None], SPARSE] = None
    """The figure, where it is a bus bandwidth."""
    busbw_low: Annotated[GBps[NotNegative | None], SPARSE] = None
    """The least among the figures that were joined to it."""
    busbw_high: Annotated[GBps[NotNegative | None], SPARSE] = None
    """The most among them."""
    time: Annotated[Micros[NotNegative | None], SPARSE] = None
    """The figure, where it is a time."""
    time_low: Annotated[Micros[NotNegative | None], SPARSE] = None
    """The least among the figures that were joined to it."""
    time_high: Annotated[Micros[NotNegative | None], SPARSE] = None
    """The most among them."""

    @property
    def quantity(self) -> Quantity | None:
        """None where it has neither, as a later version may write."""
        if self.busbw is not None:
            return "busbw"
        return None if self.time is None else "time"

    @property
    def value(self) -> float:
        """Bytes a second of busbw, seconds of time."""
        return self.busbw if self.busbw is not None else self.time or 0.0

    @property
    def low(self) -> float | None:
        """Least among the figures that were joined to this one; None where there was one."""
        return self.time_low if self.busbw is None else self.busbw_low

    @property
    def high(self) -> float | None:
        """Most among them."""
        return self.time_high if self.busbw is None else self.busbw_high


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianTime:
    """A median with its 95 % interval."""

    median: NotNegative
    """Median."""
    low: NotNegative
    """Lower end of the 95 % interval; of fewer than 6 samples the least."""
    high: NotNegative
    """Upper end of the 95 % interval; of fewer than 6 samples the greatest."""
    samples: Positive
    """How many samples it is of."""


call_key = attrgetter("op", "dtype", "groups", "size_bytes")
"""Of a measurement, and of a replayed call: equal where the one is of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """The calls of one kind that a step of the job has; what one takes alone is a measurement."""

    op: str
    """As in a measurement."""
    dtype: str
    """As in a measurement."""
    groups: str
    """As in a measurement."""
    size_bytes: Count
    """As in a measurement, bytes."""
    calls: Positive
    """How often a step has it."""
    in_job: Micros[MedianTime | None] = None
    """Its time in the job over steps and ranks, waiting for other ranks included; null: not told."""
    last: Micros[NotNegative | None] = None
    """Median of its time in the job on the rank that came last, which waits for nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What `bench --replay` made of the collectives of one step of somebody's job."""

    source: str
    """Where they were read."""
    job_ranks: Count
    """Ranks of the job."""
    job_steps: Count
    """Steps of the job that showed this sequence."""
    job_step: Micros[MedianTime | None] = None
    """Time of a step of the job over steps and ranks; null: not told."""
    own: Micros[NotNegative]
    """The ranks' own work between the calls of a step, which `paced` sleeps through."""
    calls: tuple[ReplayedCall, ...]
    """By kind, in the order of their first."""
    unbroken: Micros[MedianTime]
    """Slowest rank's time for one step's calls, nothing between them."""
    paced: Micros[MedianTime]
    """The same with `own` between them."""
    last_rank: Index = -1
    """Global rank that finished last most often in `unbroken`."""
    last_share: Share = 0.0
    """How often, 0 to 1."""

    @property
    def title(self) -> str:
        """`12 calls, 58 MiB`: alike of replays that may be compared."""
        calls = sum(one.calls for one in self.calls)
        sent = sum(one.calls * one.size_bytes for one in self.calls)
        return f"{counted(calls, 'call')}, {format_size(sent)}"


TOOLS = (
    *("dcgm", "ds_bench", "iperf3", "nccl-inspector", "nccl-tests", "nvbandwidth", "osu"),
    *("p2pBandwidthLatencyTest", "perftest", "superbench"),
)
"""Other tools whose figures a run may hold."""
FigureUnit = Literal["B/s", "FLOP/s", "1/s", "s", ""]
"""Base units; empty: another one, which the tool's documentation tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigure:
    """What another tool measured that is no collective: a copy, a link, a kernel (`runs import`)."""

    tool: str
    """One of `dcgm`, `ds_bench`, `iperf3`, `nccl-inspector`, `nccl-tests`, `nvbandwidth`, `osu`,
    `p2pBandwidthLatencyTest`, `perftest` and `superbench`."""
    test: str
    """As the tool calls it: `host_to_device_memcpy_ce`, `ib_write_bw`, `kernel-launch/event_time`."""
    place: str = ""
    """Where: `node-a`, `node-a -> node-b`, `GPU 0 -> GPU 1`, `node-a:3` for its rank 3; empty: not
    told."""
    size_bytes: Count = 0
    """Of a message; 0: it has none."""
    unit: FigureUnit
    """What `value` is in."""
    value: float
    """In that unit: the figure that the tool tells, mostly its mean."""
    low: float | None = None
    """Lower end of its 95 % interval; null where the tool tells no samples."""
    high: float | None = None
    """Upper end of that interval."""
    samples: Count = 0
    """Repetitions behind it; 0: not told."""
    settings: Annotated[str, SPARSE] = ""
    """Everything else by which the file sets this series apart: `MPI_Put, MPI_Win_flush`, `qps 4`;
    absent: nothing, or imported by a version that did not keep it."""
    beyond: Annotated[bool, SPARSE] = False
    """Whether it is above what any link carries: it is shown and compared with nothing."""


Parallelism = Literal["tensor", "pipeline", "data", "expert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroup:
    """One kind of group: what its ranks send each other."""

    kind: Parallelism
    """`tensor`, `pipeline`, `data` or `expert`."""
    ops: tuple[str, ...]
    """The operations of one turn, as in a measurement."""
    groups: str
    """How this world is cut into such groups, as in a measurement."""
    ranks: Positive
    """Ranks of one of them here."""
    job_ranks: Positive
    """Ranks of one of them in the job."""
    size_bytes: Count
    """Of one call here, as asked for: a measurement's is rounded down to whole elements."""
    job_size_bytes: Count
    """Of one call in the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The traffic of a job, as it was cut down to the ranks that there were."""

    model: str
    """Name of the model."""
    job: str = ""
    """How the job is cut: `tensor 8 × pipeline 4 × data 16`."""
    job_ranks: Positive
    """Ranks of the job."""
    ranks: Positive
    """Ranks of this world."""
    dtype: str
    """Type of all elements."""
    tokens: Positive
    """Tokens of a micro-batch here."""
    job_tokens: Positive
    """Tokens of a micro-batch in the job."""
    width: Positive
    """Elements of a token (the model's d_model)."""
    columns: Positive
    """Of the matrix product that runs beside the traffic: tokens × width times width × columns."""
    job_columns: Positive
    """Of the same product in the job."""
    groups: tuple[ParallelGroup, ...]
    """Those of 2 ranks or more; in the job, too, the others send nothing."""
    lost: tuple[str, ...] = ()
    """Kinds of groups that the job has, and for which there are too few ranks here."""
