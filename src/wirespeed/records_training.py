"""The vocabulary of training: what one strategy's steps took, and where the memory went.

Seconds and bytes inside; `records_training_json.py` gives figures their units on the way out.
"""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LoadFigures", "Ratio", "Spread", "Training", "TrainingKind", "TrainingMemory"]

TrainingKind = Literal["compare", "strong", "weak"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds of single steps, with the interval of their mean."""

    mean: float
    std: float
    """Of single steps."""
    low: float
    """Lower end of the 95 % interval of the mean, from the means of the rounds (Student's t)."""
    high: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Bytes on the rank that needs most; `peak` is the most that was live at once in a step."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    communication: int
    """Buckets, flat buffers, gathered parameters."""
    other: int
    peak: int
    resident: int | None = None
    """The process's resident set at its highest; None on GPUs."""
    started: int | None = None
    """Alive when the trainer has been made."""
    started_peak: int | None = None
    """The most that was alive until then, from before the model."""
    before_optimizer: int | None = None
    """Alive when gradients are complete, before the optimizer's step."""
    before_optimizer_peak: int | None = None
    """The most from the step's begin to then."""
    after_optimizer: int | None = None
    """Alive when the optimizer has stepped and gradients are cleared."""
    after_optimizer_peak: int | None = None
    """The most in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One strategy with one bucket size on one number of ranks."""

    strategy: str
    bucket_mb: float | None = None
    """10**6 bytes; None where the strategy has no buckets."""
    model: str
    ranks: int
    nodes: int
    batch: int
    """Samples of one step over all ranks."""
    micro_batches: int = 1
    precision: str = "float32"
    study: TrainingKind = "compare"
    """`strong`: the same batch on any number of ranks; `weak`: the same batch a rank."""
    data_workers: int | None = None
    """Processes of each rank that read batches from a file, 0: the rank itself; None: batches were made
    on the spot. `parts` has the time that the step waited for them, as `data`."""
    rounds: int
    step: Spread
    round_steps: tuple[float, ...] = ()
    """Mean step of each round in seconds: rounds of one run compare pair by pair."""
    parts: dict[str, float] = field(default_factory=dict)
    """Mean seconds of the slowest rank's step: data, forward, backward, synchronise, optimizer."""
    comm: float | None = None
    """Seconds a step in which some collective was under way, from its start to its end: the mean over
    profiled steps of the rank with the most (the median of five in runs that have no `comm_spread`)."""
    comm_spread: Spread | None = None
    """Of the same steps, by turns of a few; None: not measured."""
    comm_fraction: float | None = None
    """Of the steps in which that was measured: the mean."""
    comm_fraction_spread: Spread | None = None
    """Of the same steps: shares, not seconds; None: not measured."""
    exposed: Ratio | None = None
    """Seconds a step beyond the same step without synchronisation; the rounds' median and interval."""
    exposed_fraction: float | None = None
    samples_per_s: float
    tokens_per_s: float | None = None
    """None where a sample is no sequence."""
    mfu: float | None = None
    """Model FLOPs a second over the devices' peak; None where the peak is not known."""
    rank_compute: tuple[float, ...] = ()
    """Mean seconds of forward and backward without synchronisation, by rank of the group."""
    equal: bool | None = None
    """Whether it trains as one process on the whole batch does; None: not compared."""
    ratio: Ratio | None = None
    """Step time over the fastest strategy's, paired by round."""
    verdict: str = ""
    """`fastest` (`fastest so far` while some rivals are not settled), `same`, `slower`,
    `not enough rounds`, or `yardstick` (no synchronisation)."""
    predicted_step: float | None = None
    """What the cost model says, in seconds (docs/training.md)."""
    memory: TrainingMemory | None = None
    memory_predicted: TrainingMemory | None = None
    largest_samples: int | None = None
    """Samples of one micro batch of a rank that fit in memory; None: not looked for."""
    efficiency: Ratio | None = None
    """Of scaling: throughput over ranks times the throughput of the smallest world."""
    grade: str = ""
    """`excellent` above 90 %, `good` above 80 %, else `poor`."""
    loss: dict[str, float] = field(default_factory=dict)
    """Where the missing efficiency went: shares that add up to 1 - efficiency."""

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
    """Such as `GEMM 512`."""
    alone: float
    together: float
    """Median seconds."""
    ratio: Ratio
    """Together over alone."""
    rounds: int
