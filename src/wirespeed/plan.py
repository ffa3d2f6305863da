"""The plan: what to measure, as data. The command line makes it, every rank carries it out.

A plan names no process, host or view. It crosses to the ranks as JSON (`to_json`/`from_json`), so
that each rank, wherever it was started, runs the same steps in the same order.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.bench_records import MedianTime, Shape
from wirespeed.model.compute_records import ComputeOp
from wirespeed.model.records import Choice, Timing
from wirespeed.model.training_records import TrainingKind
from wirespeed.model.units import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration of one operation."""

    op: str
    dtype: str = "float32"
    redop: str = "none"
    root: int = -1
    in_place: bool = False
    size_bytes: int = 0
    """Requested size; 0 with `max_fit`. The count is rounded down to whole elements and ranks."""
    groups: str = "all"
    max_fit: bool = False
    """Take the largest size that fits in memory instead of `size_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How a case is timed."""

    timing: Timing = "each"
    blocking: bool = True
    in_flight: int = 1
    warmup: int | None = None
    """Exactly that many; None: until stable."""
    iterations: int | None = None
    """Exactly that many; None: until the interval is narrow enough or the time is up."""
    precision: float = 0.05
    """Half width of the 95 % interval of the median, relative to the median."""
    max_time_s: float = 2.0
    interval_s: float = 0.0
    """Seconds that a slow operation may take for an interval, where twice that time is less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A case, checked, timed, or both."""

    case: Case
    verify: bool = True
    measure: Measure | None = None
    expect_unsupported: bool = False
    """The backend may refuse this; that is `not checked`, and no surprise."""

    @property
    def label(self) -> str:
        """What the watchdog and the progress call this step."""
        case = self.case
        parts = [case.op]
        if CATALOGUE[case.op].has_data:
            parts += [
                case.dtype,
                format_size(case.size_bytes, exact=True) if not case.max_fit else "largest",
            ]
        if case.redop not in ("none", "sum"):
            parts.append(case.redop)
        if case.root > 0:
            parts.append(f"root {case.root}")
        if case.in_place:
            parts.append("in place")
        if case.groups != "all":
            parts.append(f"groups {case.groups}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """How to look for the culprit."""

    over: str = "auto"
    """`nodes`, `rails`, `ranks`, or `auto`: nodes, and ranks where there is one node only."""
    exhaustive: bool = False
    """All pairs, so that a fault of one pair alone is found too."""
    most_rounds: int = 24
    threshold: float = 1.2
    """Slower than the fleet by less than this factor is not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainCase:
    """One strategy with one bucket size, on the first `ranks` of the world."""

    strategy: str
    bucket_mb: float | None = None
    ranks: int
    samples: int
    """Samples of one step over those ranks."""
    kind: TrainingKind = "compare"

    @property
    def label(self) -> str:
        bucket = f" {self.bucket_mb:g} MB" if self.bucket_mb is not None else ""
        kind = "" if self.kind == "compare" else f" {self.kind} scaling"
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"{self.strategy}{bucket} on {ranks}{kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingPlan:
    """Training by the clock, with checkpoints; of the first of the plan's cases alone."""

    for_s: float
    """How long this world of ranks may train and start up, together."""
    until: float
    """The same as seconds since the epoch; where clocks disagree, `for_s` counts."""
    folder: str
    """Where checkpoints lie: seen by all nodes, or each node's own."""
    checkpoint_s: float | None = 60.0
    checkpoint_steps: int | None = None
    """Between checkpoints, instead of `checkpoint_s`."""
    resume: bool = False
    """Go on from the newest checkpoint there; else the folder must hold none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """What to train, how often, and what to look at beside the time."""

    model: str
    model_options: dict[str, Any]
    """Keyword arguments of `training.models.catalogue.model_named`."""
    cases: tuple[TrainCase, ...]
    micro_batches: int = 1
    precision: str = "float32"
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    clip: float | None = None
    rounds: int | None = None
    """None: until the interval of every case is narrow enough, or the time is up."""
    steps: int = 3
    """Steps of a case in one round."""
    goal: float = 0.05
    """Half width of the 95 % interval of the mean step, relative to it."""
    max_time_s: float = 60.0
    prove: bool = True
    """Compare each strategy with one process on the whole batch first."""
    memory: bool = False
    fit: bool = False
    """Look for the largest batch that fits."""
    budget_bytes: int | None = None
    """Memory of one rank that `fit` may use; None: what is free."""
    trace: bool = False
    load: bool = False
    data_workers: int | None = None
    """Processes of a rank that read batches from a file, 0: the rank itself; None: batches are made."""
    lasting: LastingPlan | None = None
    """Train for a time instead of comparing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """Calls and checks of these cases, over and over, until the time is up."""

    cases: tuple[Case, ...]
    for_s: float
    """Of this world; the whole soak's is in its record."""
    window_s: float
    turn: int = 0
    """Of the soak's turns the first that this world takes: each sends data of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCall:
    """One collective of the sequence."""

    step: int
    """Which of the plan's steps it is."""
    gap_s: float
    """What its ranks did by themselves before it: since the end of the call before where they had
    waited for that, else since they had issued it."""
    waited: bool
    """Whether it was over before the next was issued; the others are waited for at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InJob:
    """What the calls of one of the plan's steps took in the job; seconds, None: not told."""

    calls: int
    """How often the sequence has it."""
    time: MedianTime | None = None
    """From its begin to its end, waiting for other ranks included, over the job's steps and ranks."""
    last_s: float | None = None
    """The same of the rank that came last, which waits for nobody: median over the job's steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The collectives of one step of somebody's job, in an order that each rank's own agrees with."""

    source: str
    """Where they were read."""
    job_ranks: int
    job_steps: int
    """Steps of the job, at most of one rank, that showed this sequence."""
    job_step: MedianTime | None
    """Time of a step of the job, over steps and ranks."""
    calls: tuple[ReplayCall, ...]
    in_job: tuple[InJob, ...]
    """By step of the plan."""
    choices: tuple[Choice, ...] = ()
    """What the record does not tell, and was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePlan:
    """What the groups of a large job cost each other, and a matrix product beside them."""

    shape: Shape
    """The plan's steps are the operations of its groups, in their order."""
    choices: tuple[Choice, ...] = ()
    """How the job was cut down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeWork:
    """One thing that every device of a kind does for a while."""

    op: ComputeOp
    on: Literal["cpu", "gpu"]
    dtype: str = "float32"
    shape: tuple[int, int, int] = (0, 0, 0)
    """Of a product: rows, columns, and what is summed over."""
    size_bytes: int = 0
    """Of one array; 0: so much that no cache holds it."""

    @property
    def label(self) -> str:
        """What the watchdog and the progress call it."""
        size = "x".join(map(str, self.shape)) if any(self.shape) else ""
        return " ".join(filter(None, (self.op, self.dtype, size, f"on {self.on.upper()}s")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputePlan:
    """What devices do, alone and together, and what they prove."""

    works: tuple[ComputeWork, ...]
    proofs: tuple[ComputeWork, ...] = ()
    """Types of products to prove; their shapes are the proof's own."""
    prove_s: float = 0.0
    """Of each of them."""
    gpus_only: bool = False
    """Where there are GPUs, CPUs do nothing."""
    alone: bool = True
    """Of each node one device at a time, before all together."""
    sustain_s: float = 0.0
    """The first product of each kind of device, all together, for so long: what heat leaves of it."""
    how: Measure = Measure()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlan:
    """How to look at a folder that holds data and checkpoints, and what its figures are told for."""

    folder: str
    """An absolute path, on every node."""
    max_time_s: float
    """Of one kind of access."""
    precision: float = 0.05
    """Half width of the 95 % interval of the median round, relative to the median."""
    most_bytes: int = 1 << 30
    """Of one rank's file."""
    small_files: int = 64
    """Of one rank in one round."""
    sample_bytes: int = 128 << 10
    model: str = ""
    checkpoint_bytes: int = 0
    """Of that model; 0: no model was named."""
    needed_per_s: float = 0.0
    """Samples a second that the job reads; 0: not told."""
    needed_from: str = ""
    """Who says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    command: str
    steps: tuple[Step, ...]
    pairs: PairPlan | None = None
    """Measure pairs and name the culprit, after the steps."""
    training: TrainPlan | None = None
    """Train with several strategies, after the steps."""
    soak: SoakPlan | None = None
    """Soak, after the steps."""
    replay: ReplayPlan | None = None
    """Time the steps' cases as the sequence of somebody's job, after the steps."""
    shape: ShapePlan | None = None
    """Make the steps' calls at once and beside a matrix product, after the steps."""
    compute: ComputePlan | None = None
    """Look at what the devices compute and remember, after the steps."""
    storage: StoragePlan | None = None
    """Look at a folder and measure it, after the steps."""
    engine: str = "torch"
    seed: int = 1
    op_timeout_s: float = 30.0
    startup_timeout_s: float = 120.0
    max_time_s: float | None = None
    """For all measuring, once the ranks have joined; None: each part has a bound of its own only."""
    facts_only: bool = False
    """Nothing is run: each node tells what it is, without torch and without a process group."""
    faults: tuple[str, ...] = ()
    """Faults to act out, such as `flip:rank=1` (rank/faulty_engine.py); for proving the checks."""

    @property
    def is_timed(self) -> bool:
        """Whether anything is timed for as long as a bound allows: data checks alone are not."""
        timed = any(step.measure is not None for step in self.steps)
        return timed or self.training is not None or self.max_time_s is not None

    def to_json(self) -> dict[str, Any]:
        from wirespeed.model.codec import to_json  # --help builds no plan

        data: dict[str, Any] = to_json(self)
        return data

    def digests(self) -> dict[str, str]:
        """A word for every part by its name, such as `seed` or `training.model`: equal where they are.

        Of no part two ranks may have their own: clocks and sizes that fit are settled among the ranks.
        """
        return dict(_digests(self.to_json(), ""))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Plan":
        """ValueError for the plan of another version, which may say what this one does not know."""
        from wirespeed.model.codec import from_json

        plan = from_json(Plan, data)
        if plan.to_json() != data:
            raise ValueError("it is a plan of another version")
        return plan


def _digests(parts: Mapping[str, Any], within: str) -> Iterator[tuple[str, str]]:
    for name, value in parts.items():
        if isinstance(value, dict) and value:
            yield from _digests(value, f"{within}{name}.")
        else:
            digest = hashlib.sha256(json.dumps(value).encode()).hexdigest()
            yield f"{within}{name}", digest[:16]
