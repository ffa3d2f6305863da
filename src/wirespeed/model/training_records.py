"""The vocabulary of training: what one strategy's steps took, and where the memory went.

Seconds and bytes inside; figures get their units on the way out (`codec.py`).
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from wirespeed.model.field_types import ALWAYS, SPARSE, SPLIT, Bytes, Count, Millis, NotNegative

TrainingKind = Literal["compare", "strong", "weak"]
PROFILED_STEPS = 2
"""Steps of a case in one turn under the profiler, whose mean is one sample of `comm_spread`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds of single steps, with the interval of their mean."""

    mean: NotNegative
    """Mean."""
    std: NotNegative
    """Standard deviation of single steps."""
    low: float
    """Lower end of the 95 % interval of the mean, from the means of the rounds (Student's t). Below 6
    rounds no view claims it, since nothing shows that so few means are normal."""
    high: float
    """Upper end of that interval."""
    samples: Count
    """Steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio or difference with its 95 % interval."""

    value: float
    """The ratio."""
    low: float
    """Lower end of the 95 % interval; below 6 rounds the least."""
    high: float
    """Upper end of the 95 % interval; below 6 rounds the greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The 95 % interval of a figure that stands beside it."""

    low: float
    """Lower end; below 6 rounds the least."""
    high: float
    """Upper end; below 6 rounds the greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Bytes on the rank that needs most; `peak` is the most that was live at once in a step."""

    parameters: Count
    """Parameters."""
    gradients: Count
    """Gradients."""
    optimizer: Count
    """State of the optimizer."""
    activations: Count
    """What the backward pass needs of the forward pass."""
    communication: Count
    """Buckets, flat buffers, gathered parameters."""
    other: Count
    """The rest of the peak."""
    peak: Count
    """The most that was live at once in a step."""
    resident: Count | None = None
    """The process's resident set at its highest; null on GPUs."""
    started: int | None = None
    """Alive when the trainer has been made; null or missing: not read."""
    started_peak: int | None = None
    """The most until then, from before the model; null or missing: not read."""
    before_optimizer: int | None = None
    """Alive before the optimizer's step, with all gradients; null or missing: not read."""
    before_optimizer_peak: int | None = None
    """The most from the step's begin to then; null or missing: not read."""
    after_optimizer: int | None = None
    """Alive when the optimizer has stepped and gradients are cleared."""
    after_optimizer_peak: int | None = None
    """The most in between; null or missing: not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One strategy with one bucket size on one number of ranks."""

    strategy: str
    """Name, such as `bucketed`; `wirespeed train --list` tells them."""
    bucket_mb: Annotated[NotNegative | None, ALWAYS] = None
    """Bucket size in 10^6 bytes; null where there are no buckets."""
    model: str
    """Name of the model."""
    ranks: Count
    """Ranks that trained together."""
    nodes: Count
    """Nodes that they were on."""
    batch: Count
    """Samples of one step over all ranks."""
    micro_batches: Count = 1
    """Backward passes a step."""
    precision: str = "float32"
    """`float32`, `bf16` or `fp16` (the latter two by autocast)."""
    study: Annotated[TrainingKind, ALWAYS] = "compare"
    """`strong`: the same batch on any number of ranks; `weak`: the same batch a rank."""
    data_workers: Count | None = None
    """Processes of each rank that read batches from a file, 0: the rank itself; None: batches were
    made on the spot. `parts` has the time that the step waited for them, as `data`."""
    rounds: Count
    """Interleaved rounds."""
    step: Millis[Spread]
    """Time of one step of the slowest rank, after a common start."""
    comm_spread: Millis[Spread | None] = None
    """How that scattered over the profiled steps, of which each round has two; null or missing: not
    known."""
    parts: Millis[dict[str, float]] = field(default_factory=dict)
    """Mean of the slowest rank's step by part: data, forward, backward, synchronise, optimizer."""
    comm: Millis[NotNegative | None] = None
    """Time a step in which some collective was under way, from its own start to its own end: mean
    of profiled steps on the rank with the most (median of five where `comm_spread_ms` is missing);
    null: not measured."""
    predicted_step: Millis[NotNegative | None] = None
    """What the cost model says; null: no model."""
    exposed: Annotated[Millis[Ratio | None], SPLIT] = None
    """Step time beyond the same step without synchronisation, interleaved in the same run: median of
    the rounds' differences, with its interval."""
    rank_compute: Millis[tuple[float, ...]] = ()
    """Mean of forward and backward without synchronisation, by rank."""
    round_steps: Millis[tuple[float, ...]] = ()
    """Mean step of each round: rounds of one run compare pair by pair."""
    comm_fraction: NotNegative | None = None
    """Of the steps in which that was measured: the mean."""
    comm_fraction_spread: Spread | None = None
    """How that share scattered over the profiled steps, with the 95 % interval of its mean; null or
    missing: not known."""
    exposed_fraction: float | None = None
    """exposed_ms over the mean step."""
    samples_per_s: NotNegative
    """Samples a second over all ranks."""
    tokens_per_s: NotNegative | None = None
    """Tokens a second over all ranks; null where a sample is no sequence."""
    mfu: NotNegative | None = None
    """Model FLOPs a second over the devices' peak; None where the peak is not known."""
    equal: bool | None = None
    """Whether it trains as one process on the whole batch does (finding TRAIN-001); null: not
    compared."""
    ratio: Ratio | None = None
    """Step time over the fastest strategy's, paired by round; null: not compared."""
    verdict: str = ""
    """`fastest` (`fastest so far` while some rivals are not settled), `same`, `slower`, `not enough
    rounds`, or `yardstick` (no synchronisation)."""
    memory: TrainingMemory | None = None
    """Bytes by kind; null: not measured."""
    memory_predicted: TrainingMemory | None = None
    """What the formulas say of the same; null: no formula."""
    largest_samples: Count | None = None
    """Samples of one micro batch of a rank that fit in memory; null: not looked for."""
    efficiency: Ratio | None = None
    """Of scaling: throughput over ranks times the smallest world's; null: no scaling."""
    grade: str = ""
    """`excellent` above 90 %, `good` above 80 %, else `poor`."""
    loss: dict[str, float] = field(default_factory=dict)
    """Where the missing efficiency went: shares that add up to 1 - efficiency."""
    peak_memory: Bytes[Count | None] = field(init=False, default=None)
    """`memory.peak`."""

    def __post_init__(self) -> None:
        peak = self.memory.peak if self.memory else None
        object.__setattr__(self, "peak_memory", peak)

    @property
    def profiled_rounds(self) -> int:
        """Rounds behind `comm_spread`."""
        return self.comm_spread.samples // PROFILED_STEPS if self.comm_spread else 0

    @property
    def key(self) -> tuple[str, str, float | None, int, int]:
        """What was measured: a later record of the same takes the place of an earlier one."""
        return self.study, self.strategy, self.bucket_mb, self.ranks, self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """One thing timed alone and beside another, in interleaved rounds."""

    name: str
    """Such as `all_reduce 4 MiB`."""
    beside: str
    """What ran beside it."""
    alone: Millis[NotNegative]
    """Median."""
    together: Millis[NotNegative]
    """Median."""
    ratio: Ratio
    """Together over alone."""
    rounds: Count
    """Interleaved rounds."""
    alone_interval: Annotated[Millis[Ends | None], SPARSE] = None
    """Of `alone`; absent in runs of earlier versions."""
    together_interval: Annotated[Millis[Ends | None], SPARSE] = None
    """Of `together`."""
    gain: Annotated[Ratio | None, SPARSE] = None
    """What doing it and all beside it at once brings over one after the other: the sum of alone over
    together. 1: nothing; their number: none slows another. Absent where nothing was at once."""
