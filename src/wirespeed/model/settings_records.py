"""The vocabulary of compared settings: what `bench --env` found about each combination.

Seconds inside; figures get their units on the way out (`records_form.py`).
"""

from dataclasses import dataclass, field

from wirespeed.model.field_types import Count, Micros, NotNegative, Positive
from wirespeed.model.training_records import Ratio

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
    """Lower end of the 95 % interval of that median over the rounds."""
    high: Micros[NotNegative]
    """Upper end of that interval."""
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
