"""The vocabulary of comparing: what two sides of runs showed, and how a figure went over time.

A side is one run or several repeats. Ratios are of times, after over before: 1.1 is 10 % slower. The
views turn them round where they show a bandwidth. docs/comparing.md says how verdicts come about.
"""

from dataclasses import dataclass
from typing import Literal

CompareVerdict = Literal["WORSE", "better", "same", "not enough runs", "wrong data"]
Noise = Literal["repeats", "history", "stated", "unknown"]
"""From where the noise between runs is known: the sides' own repeats, also stored repeats of such
runs, what the user said, or not at all."""


@dataclass(frozen=True, slots=True)
class What:
    """What was measured: figures of two runs are compared where all of this is alike."""

    kind: Literal["collective", "training", "goodput", "soak"]
    fields: tuple[tuple[str, str | int | float | bool | None], ...]
    """Name and value, in the order of the record: op, engine, dtype, …"""

    def get(self, name: str) -> str | int | float | bool | None:
        """The value of that name; None where it has none."""
        return dict(self.fields).get(name)

    @property
    def is_ratio(self) -> bool:
        """Whether it is a goodput: its time is then seconds of wall time for a useful one."""
        return self.get("figure") == "goodput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    name: str
    """The start of the run's id, with `+2` for two more runs; or `baseline NAME`."""
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
