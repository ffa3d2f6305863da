"""The vocabulary of what `compare`, `trend` and `predict` make of stored runs; it stands in no run.

Comparing: what two sides of runs showed, and how a figure went over time. A side is one run or several
repeats. Ratios are of times, after over before: 1.1 is 10 % slower. The views turn them round where they
show a bandwidth. docs/comparing.md says how verdicts come about.

Predicting: what measured runs say of worlds that nobody has measured yet. Seconds and bytes inside.
Every figure is an `Estimate`: its 95 % interval is that of a *measurement* to come (its median time), so
that it can be proven wrong by measuring.
"""

from dataclasses import dataclass
from typing import Literal

CompareVerdict = Literal["WORSE", "better", "same", "not enough runs", "wrong data"]
FigureKind = Literal[
    "collective",
    "training",
    "goodput",
    "soak",
    "watched",
    "replay",
    "load",
    "compute",
    "tool",
    "storage",
]
Noise = Literal["repeats", "history", "stated", "unknown"]
"""From where the noise between runs is known: the sides' own repeats, also stored repeats of such
runs, what the user said, or not at all."""


@dataclass(frozen=True, slots=True)
class What:
    """What was measured: figures of two runs are compared where all of this is alike."""

    kind: FigureKind
    fields: tuple[tuple[str, str | int | float | bool | None], ...]
    """Name and value, in the order of the record: op, engine, dtype, …"""

    def get(self, name: str) -> str | int | float | bool | None:
        """The value of that name; None where it has none."""
        return dict(self.fields).get(name)

    @property
    def name(self) -> str:
        """The operation, the strategy, the other tool, or which figure of its kind."""
        told = dict(self.fields)
        names = (told.get(name) for name in ("op", "strategy", "tool", "figure"))
        return str(next((name for name in names if name), ""))

    @property
    def is_ratio(self) -> bool:
        """Whether it is a share that is better when it is more, a goodput or the part of a step that
        is not exposed communication: its time is then seconds of wall time for such a one."""
        return self.get("figure") in ("goodput", "unexposed")

    @property
    def unit(self) -> str:
        """Of another tool's rate, such as `B/s`, which is better when it is more: its time is then
        seconds for such a one. Empty for all else."""
        unit = str(self.get("unit") or "")
        return unit if unit.endswith("/s") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    name: str
    """The start of the first run's id and how many runs, `7f3c (3 runs)`; or `baseline NAME`."""
    runs: tuple[str, ...]
    """Ids."""
    started: str
    """ISO 8601 in UTC, of the first run."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something recorded that is not alike on both sides."""

    group: str
    """`versions`, `environment`, `hosts`, `image`, `hardware`, `clocks`, `world` or `options`."""
    name: str
    before: str
    """Several values, of several nodes or runs, stand with ` | ` between them."""
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that both sides measured."""

    what: What
    before: float
    """Seconds: the geometric mean of the runs' medians (of `train`: of their mean steps; of a goodput
    wall time for a useful second)."""
    after: float
    busbw_before: float = 0.0
    """Bytes a second, the same mean; 0 where it has no meaning."""
    busbw_after: float = 0.0
    ratio: float
    """Time after over time before."""
    low: float
    """Lower end of the ratio's 95 % interval; 0 and infinity where the noise is not known at all."""
    high: float
    p: float
    """Probability of such a difference, or a greater one, if there were none."""
    adjusted_p: float = 1.0
    """The same, corrected for the number of rows (Benjamini and Hochberg)."""
    runs: tuple[int, int]
    samples: tuple[int, int]
    """Timed operations, over all runs of the side."""
    noise: float
    """Standard deviation of one run's figure, relative to it; infinite where it is not known."""
    noise_from: Noise
    verdict: CompareVerdict = "not enough runs"
    runs_needed: int = 0
    """Runs a side that would tell a change of `fail_on`, at this noise; 0: not known."""
    outside: int = 0
    """Runs of the other side that the few runs of one side lie outside of, all of them and far; 0: none
    such. It is said while the verdict is `not enough runs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """Figures that only one side has."""

    before: int = 0
    after: int = 0
    differ_in: tuple[str, ...] = ()
    """Names in which the two sides' figures nearly pair: `--across` one of them pairs some."""
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """One side against the first."""

    before: Side
    after: Side
    differences: tuple[Difference, ...]
    alike: tuple[str, ...]
    """Groups of facts that are the same on both sides."""
    unknown: tuple[str, ...]
    """Groups that no run recorded."""
    rows: tuple[Row, ...]
    unpaired: Unpaired = Unpaired()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    fail_on: float
    """The change that matters: 0.05 is 5 % of the time."""
    versus: tuple[Versus, ...]
    strict: bool = False

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for one in self.versus for row in one.rows)

    def count(self, verdict: CompareVerdict) -> int:
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def exit_code(self) -> int:
        """1: something is worse, or wrong; 3: nothing is decided (strict: not everything); else 0."""
        if self.count("WORSE") or self.count("wrong data"):
            return 1
        undecided = self.count("not enough runs")
        if undecided == len(self.rows) or (self.strict and undecided):
            return 3
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A step in a series."""

    run: str
    """Id of the first run after it."""
    at: str
    """When that run started."""
    last_before: str
    """Id of the last run before it."""
    ratio: float
    """Time of the level after over that of the level before."""
    low: float
    high: float
    p: float
    """From permutations, corrected for the number of series."""
    runs: tuple[int, int]
    differences: tuple[Difference, ...] = ()
    """What was recorded to be different in the first run after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure over many runs."""

    what: What
    backend: str
    runs: tuple[str, ...]
    at: tuple[str, ...]
    times: tuple[float, ...]
    """Seconds of each run."""
    busbw: tuple[float, ...]
    """Bytes a second; 0 where it has no meaning."""
    changes: tuple[Change, ...] = ()
    judged: bool = True
    """Whether there are enough runs to look for changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    series: tuple[Series, ...]
    fail_on: float | None = None
    """Regression: the newest level is slower than the one before it by more than this."""
    family: int = 0
    """Series of all runs that were looked at, shown or not: changes are corrected for their number."""

    @property
    def regressions(self) -> tuple[Series, ...]:
        if self.fail_on is None:
            return ()
        return tuple(
            one
            for one in self.series
            if one.changes and one.changes[-1].low > 1 and one.changes[-1].ratio > 1 + self.fail_on
        )

    @property
    def exit_code(self) -> int:
        """1: a regression; 3: no series is long enough to be judged; else 0."""
        if self.regressions:
            return 1
        return 0 if any(one.judged for one in self.series) else 3


# Predicting.


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class WorldSize:
    """Where something would run."""

    nodes: int
    ranks_per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One run that figures were taken from."""

    id: str
    what: str
    """Such as `all_reduce, broadcast: 22 sizes on 3 nodes × 1 rank`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """What was fitted to one collective, and how well it foretells what it was not shown."""

    op: str
    how: str
    """How it was measured: `gloo · torch · float32 · each`."""
    shape: str
    """The algorithm whose terms weigh most, such as `ring`."""
    weight: float
    """Share of the forecast that this shape has; the rest are others that fit about as well."""
    others: tuple[str, ...]
    """Their names, by weight."""
    terms: dict[str, float]
    """What each term costs: seconds for a call or a step, seconds a byte for bytes."""
    error: float
    """Median |log(predicted / measured)| of measurements that were left out of the fit."""
    error_p90: float
    points: int
    sizes: int
    worlds: tuple[WorldSize, ...]
    smallest: int
    largest: int
    """Bytes."""
    iterations: int
    """Timed iterations behind all points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """One collective of one size on one world."""

    op: str
    world: WorldSize
    size_bytes: int
    time: Estimate
    busbw: Estimate
    """Bytes a second."""
    measured: float | None = None
    """Median seconds, where just this was measured."""
    points: int
    """Measurements behind it."""
    beyond: str = ""
    """How far it lies beyond what was measured, such as `4 × the nodes`; empty: within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One training step of one strategy."""

    world: WorldSize
    strategy: str
    bucket_mb: float | None
    step: Estimate
    efficiency: Estimate
    """The step without synchronisation over this one: 1 where communication costs nothing."""
    first: float
    """Share of the forecasts in which it is the quickest on this world."""
    samples: int
    """Measurements behind it: points of the collective and rounds of the training run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTime:
    """The collectives of one step of somebody's job, as a replay measured them elsewhere."""

    run: str
    """The replay."""
    world: WorldSize
    calls: Estimate
    """Nothing between them."""
    step: Estimate
    """The same with the job's own work between them."""
    here: float
    """`calls` where the replay measured, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestStep:
    """The strategy to choose on one world."""

    world: WorldSize
    strategy: str
    bucket_mb: float | None
    settled: bool
    """Quickest in at least 95 % of the forecasts."""
    rivals: tuple[str, ...] = ()
    """What else may be quickest, by how often it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Up to where a strategy's efficiency stays above a bound."""

    strategy: str
    bucket_mb: float | None
    bound: float
    """0.8 or 0.5."""
    nodes: int | None
    """The first number of nodes looked at where it is lower; None: nowhere up to `looked`."""
    low: int | None
    """The first where it may already be lower (the interval reaches below the bound)."""
    high: int | None
    """The first where it surely is lower (the whole interval lies below)."""
    looked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a named improvement would bring."""

    name: str
    what: str
    """`all_reduce 64 MiB` or `step, bucketed 25 MB`."""
    world: WorldSize
    before: Estimate
    after: Estimate
    ratio: Estimate
    """Before over after, from the same forecasts: 2 means twice as fast."""
    assumes: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was asked for and is not predicted."""

    what: str
    because: str
    helps: str
    """The runs that would make it predictable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Everything that `predict` found."""

    sources: tuple[Source, ...]
    models: tuple[FittedModel, ...]
    collectives: tuple[CollectiveTime, ...] = ()
    steps: tuple[StepTime, ...] = ()
    best: tuple[BestStep, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    replays: tuple[ReplayTime, ...] = ()
    gains: tuple[Gain, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out of the fit and why; what the step model assumes."""
