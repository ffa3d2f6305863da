"""The vocabulary of work that lasts for minutes to days: what went wrong meanwhile, and when.

Seconds inside; `records_lasting_json.py` is the one place where they become JSON and back.
"""

from dataclasses import dataclass, field

__all__ = ["Goodput", "Incident", "Soak", "SoakCell", "SoakStall", "SoakWindow", "SoakWrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong while the work lasted, and did not end it."""

    at: str
    """ISO 8601 in UTC: when it was seen."""
    since_s: float
    """Seconds from the start of the work."""
    id: str
    """Of the finding that tells it, such as `HANG-001`."""
    title: str
    """One sentence: what happened."""
    subject_kind: str = "job"
    """As of `records.Subject`."""
    subject: str = "job"
    """`rank 3`, a host name, or `job`."""
    saw: str = ""
    because: str = ""
    lost_s: float = 0.0
    """Time that it cost: until the work went on, with what had to be done again."""
    world: int = 0
    """Which world of ranks it was in, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What training that lasted made of its time."""

    model: str
    strategy: str
    ranks: int
    asked_s: float
    """For how long it was to train."""
    wall_s: float
    """From the start of the first world of ranks to the end of the last."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """Where `wall_s` went, and they add up to it: `useful`, `start`, `restore`, `checkpoint`, `lost`,
    `down` and `other` (what none of these explains)."""
    first_step: int = 0
    """Steps that were made before this run, by the checkpoint that it resumed from."""
    last_step: int = 0
    """Steps whose results are in the final state."""
    lost_steps: int = 0
    """Steps that had to be made again, or are not in the final state."""
    step_s: float = 0.0
    """Mean of a step, without anything between steps; with its 95 % interval."""
    step_low_s: float = 0.0
    step_high_s: float = 0.0
    step_samples: int = 0
    """Steps that the mean is over, lost ones included."""
    tokens_per_step: int = 0
    """Over all ranks; 0 where samples are no sequences."""
    loss: float | None = None
    """Of the last step, on rank 0."""
    worlds: int = 0
    restarts: int = 0
    failures: int = 0
    """Worlds that failed; the last one too, which nothing followed."""
    checkpoints: int = 0
    checkpoint_s: float = 0.0
    """Mean time that a checkpoint kept training waiting."""
    checkpoints_failed: int = 0
    folder: str = ""
    """Where the checkpoints lie."""
    mtbf_s: float | None = None
    """Wall time over failures; None below two of them."""
    mtbf_low_s: float | None = None
    """Lower end of the 95 % interval for failures that come at random (exact, Poisson)."""
    mtbf_high_s: float | None = None
    best_interval_s: float | None = None
    """Between checkpoints, by Young and Daly; None where no time between failures is known."""
    loss_at_most_s: float = 0.0
    """The most that one failure costs: the longest time between checkpoints, and a restart."""
    incidents: tuple[Incident, ...] = ()
    """The first ones, in order of time."""

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
    dtype: str
    size_bytes: int
    calls: int
    """Each of them checked, element by element."""
    wrong: int
    """Calls with a wrong element on some rank."""
    low: float
    """A tenth of the calls were quicker: what the rest of the machine does shows last in it."""
    median: float
    p99: float
    max: float
    last_rank: int
    """Who was last in the slowest call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakWindow:
    """A stretch of a soak in one world of ranks; lists are by rank."""

    since_s: float
    """From the start of the soak to the begin of this window."""
    seconds: float
    world: int
    """From 1."""
    calls: int
    checked_bytes: int
    """Results compared, over all ranks."""
    wrong: int
    stalls: int
    stalled_s: float
    """Time within calls that stalled."""
    cells: tuple[SoakCell, ...] = ()
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
class SoakStall:
    """A call that took many times as long as that operation takes in this run."""

    at: str
    since_s: float
    world: int
    op: str
    dtype: str
    size_bytes: int
    seconds: float
    median: float
    """Of that operation and size so far."""
    last_rank: int
    last_host: str = ""
    paused: tuple[int, ...] = ()
    """Ranks whose whole process made no step for most of that time, and had not been waiting for a
    core."""
    busy: tuple[int, ...] = ()
    """Ranks that waited for a core for most of that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakWrong:
    """A wrong result on one rank."""

    at: str
    since_s: float
    world: int
    op: str
    dtype: str
    redop: str
    size_bytes: int
    seed: int
    """Of `bench --seed`, which sends the same data again."""
    call: int
    """Which call with these data it was, from 0."""
    rank: int
    host: str
    wrong: int
    """Elements."""
    elements: int
    example: str
    """Index, value seen and value expected of the first wrong element."""
    guess: str
    suspect: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What a soak came to. Its lists are bounded; `uncounted` says how many events are not in them."""

    for_s: float
    elapsed_s: float
    window_s: float
    worlds: int = 0
    resumed: int = 0
    """How often it was gone on with by `--resume`."""
    calls: int = 0
    checked_bytes: int = 0
    wrong_calls: int = 0
    stall_calls: int = 0
    windows: tuple[SoakWindow, ...] = ()
    incidents: tuple[Incident, ...] = ()
    stalls: tuple[SoakStall, ...] = ()
    wrong: tuple[SoakWrong, ...] = ()
    uncounted: dict[str, int] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[Incident, ...]:
        """The incidents that ended a world of ranks; the others are wrong data, stalls and the like."""
        return tuple(
            one
            for one in self.incidents
            if one.id == "SOAK-004" or not one.id.startswith("SOAK-00")
        )
