"""The vocabulary of work that lasts for minutes to days: what went wrong meanwhile, and when.

Seconds inside.
"""

from dataclasses import dataclass, field
from typing import Annotated

from wirespeed.model.field_types import ALWAYS, Count, Index, NotNegative, Positive, RoundedMicros


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong while the work lasted, and did not end it."""

    at: str
    """ISO 8601 in UTC: when it was seen."""
    since_s: NotNegative
    """Seconds from the start of the work."""
    id: str
    """Of the finding that tells it, such as `HANG-001`."""
    title: str
    """One sentence: what happened."""
    subject_kind: str = "job"
    """`rank`, `node`, `link`, `rail` or `job`."""
    subject: str = "job"
    """`rank 3`, a host name, or `job`."""
    saw: str = ""
    """What was seen."""
    because: str = ""
    """The cause, where it is known."""
    lost_s: NotNegative = 0.0
    """Time that it cost: until the work went on, with what had to be done again."""
    world: Count = 0
    """Which world of ranks it was in, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What training that lasted made of its time."""

    model: str
    """Name of the model."""
    strategy: str
    """How gradients were synchronised."""
    ranks: Positive
    """Ranks that trained together."""
    asked_s: NotNegative
    """For how long it was to train, seconds."""
    wall_s: NotNegative
    """From the start of the first world of ranks to the end of the last, seconds."""
    parts_s: Annotated[dict[str, float], ALWAYS] = field(default_factory=dict)
    """Where `wall_s` went, seconds; they add up to it: `useful` (steps whose results are in the
    final state), `start`, `restore`, `checkpoint` (what training waited for one), `lost` (steps
    after the last checkpoint before a failure), `down`, `other`. Goodput is `useful` over
    `wall_s`."""
    first_step: Count = 0
    """Steps that were made before this run, by the checkpoint that it resumed from."""
    last_step: Count = 0
    """Steps whose results are in the final state."""
    lost_steps: Count = 0
    """Steps that had to be made again, or are not in the final state."""
    step_s: NotNegative = 0.0
    """Mean of a step, without anything between steps; with its 95 % interval."""
    step_low_s: NotNegative = 0.0
    """Lower end of its 95 % interval, of batches of steps."""
    step_high_s: NotNegative = 0.0
    """Upper end of that interval."""
    step_samples: Count = 0
    """Steps that the mean is over, lost ones included."""
    tokens_per_step: Count = 0
    """Over all ranks; 0 where samples are no sequences."""
    loss: float | None = None
    """Of the last step, on rank 0; null: no step was made, or it is no finite number."""
    worlds: Count = 0
    """Worlds of ranks that were started, one after the other."""
    restarts: Count = 0
    """Worlds after the first."""
    failures: Count = 0
    """Worlds that failed; the last one too, which nothing followed."""
    checkpoints: Count = 0
    """Checkpoints written."""
    checkpoint_s: NotNegative = 0.0
    """Mean time that one kept training waiting, seconds."""
    checkpoints_failed: Count = 0
    """Checkpoints that could not be written."""
    folder: str = ""
    """Where the checkpoints lie."""
    mtbf_s: float | None = None
    """Mean time between failures: wall time over failures; null below two."""
    mtbf_low_s: float | None = None
    """Lower end of its 95 % interval, for failures that come at random (exact, Poisson)."""
    mtbf_high_s: float | None = None
    """Upper end of that interval."""
    best_interval_s: float | None = None
    """Time between checkpoints that loses least, by Young and Daly; null where it is not known."""
    loss_at_most_s: NotNegative = 0.0
    """The most that one failure costs: the longest time between checkpoints, and a restart."""
    incidents: tuple[Incident, ...] = ()
    """What went wrong meanwhile and did not end it, in order of time; at most 1000."""

    @property
    def ratio(self) -> float:
        """Goodput: useful time over wall time."""
        return self.parts_s.get("useful", 0.0) / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def steps(self) -> int:
        """Steps of this run whose results are in the final state."""
        return self.last_step - self.first_step


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakCell:
    """One operation at one size in one window; times in seconds, of the slowest rank of each call."""

    op: str
    """Operation."""
    dtype: str
    """Operation."""
    size_bytes: Count
    """Size asked for."""
    calls: Count
    """Each of them checked, element by element."""
    wrong: Count
    """Calls with a wrong element on some rank."""
    low: RoundedMicros[NotNegative]
    """A tenth of the calls were quicker."""
    median: RoundedMicros[NotNegative]
    """Median."""
    p99: RoundedMicros[NotNegative]
    """One in a hundred was slower."""
    max: RoundedMicros[NotNegative]
    """The slowest."""
    last_rank: Index
    """Global rank; -1 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakWindow:
    """A stretch of a soak in one world of ranks; lists are by rank."""

    since_s: NotNegative
    """From the start of the soak to the begin of this window."""
    seconds: NotNegative
    """Its length."""
    world: Count
    """From 1."""
    calls: Count
    """Checked calls."""
    checked_bytes: Count
    """Results compared, over all ranks."""
    wrong: Count
    """Calls with wrong data."""
    stalls: Count
    """Calls that took many times their usual time."""
    stalled_s: NotNegative
    """Time within calls that stalled."""
    cells: tuple[SoakCell, ...] = ()
    """One an operation, type and size."""
    last_share: tuple[float, ...] = ()
    """Share of the calls in which that rank was last."""
    rss_bytes: tuple[int, ...] = ()
    """Memory of the process, at the window's end."""
    waited: tuple[float, ...] = ()
    """Seconds a second that threads of that rank were ready and had no core; above 1 where several
    waited. Negative: not known."""
    free_bytes: dict[str, int] = field(default_factory=dict)
    """Room in the temporary folder of each host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SoakEvent:
    at: str
    """Operation."""
    since_s: NotNegative
    """Seconds from the start of the soak."""
    world: Count
    """From 1."""
    op: str
    """Operation."""
    dtype: str
    """Operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakStall(_SoakEvent):
    """A call that took many times as long as that operation takes in this run."""

    size_bytes: Count
    """Size asked for."""
    seconds: NotNegative
    """Of the slowest rank."""
    median: NotNegative
    """Of that operation and size so far."""
    last_rank: Index
    """Global rank; -1 where it is not known."""
    last_host: str = ""
    """Operation."""
    paused: tuple[int, ...] = ()
    """Ranks whose whole process made no step for most of that time, and had not been waiting for a
    core."""
    busy: tuple[int, ...] = ()
    """Ranks that waited for a core for most of that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakWrong(_SoakEvent):
    """A wrong result on one rank."""

    redop: str
    """Operation."""
    size_bytes: Count
    """Size asked for."""
    seed: Count
    """Of `bench --seed`, which sends the same data again."""
    call: Count
    """Which call with these data it was, from 0."""
    rank: Count
    """Global rank."""
    host: str
    """Operation."""
    wrong: Count
    """Elements."""
    elements: Count
    """Elements compared."""
    example: str
    """Index, value seen and value expected of the first wrong element."""
    guess: str
    """Operation."""
    suspect: Index = -1
    """Global rank; -1 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What a soak came to. Its lists are bounded; `uncounted` says how many events are not in them."""

    for_s: NotNegative
    """Seconds asked for."""
    elapsed_s: NotNegative
    """Seconds soaked, without the time between a kill and --resume."""
    window_s: NotNegative
    """Length of a window."""
    worlds: Count = 0
    """Worlds of ranks."""
    resumed: Count = 0
    """How often it was gone on with by `--resume`."""
    calls: Count = 0
    """Checked calls."""
    checked_bytes: Count = 0
    """Results compared, over all ranks."""
    wrong_calls: Count = 0
    """Calls with wrong data."""
    stall_calls: Count = 0
    """Calls that stalled."""
    windows: tuple[SoakWindow, ...] = ()
    """In order; neighbours are put together beyond 240."""
    incidents: tuple[Incident, ...] = ()
    """In order of time."""
    stalls: tuple[SoakStall, ...] = ()
    """First and newest."""
    wrong: tuple[SoakWrong, ...] = ()
    """First and newest."""
    uncounted: dict[str, int] = field(default_factory=dict)
    """How many are not in the lists, by list."""

    @property
    def failures(self) -> tuple[Incident, ...]:
        """The incidents that ended a world of ranks; the others are wrong data, stalls and the like."""
        return tuple(
            one
            for one in self.incidents
            if one.id == "SOAK-004" or not one.id.startswith("SOAK-00")
        )
