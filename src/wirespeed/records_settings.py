"""The vocabulary of compared settings: what `bench --env` found about each combination.

Seconds inside; `records_settings_json.py` gives figures their units on the way out.
"""

from dataclasses import dataclass, field

from wirespeed.records_training import Ratio

__all__ = ["DEFAULT", "Setting", "SettingFigures"]

DEFAULT = "default"
"""Name of the combination in which every compared variable is unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFigures:
    """One operation of one size under one combination of settings."""

    case: str
    """Such as `all_reduce float32 1 MiB`."""
    median: float
    """Seconds: of the rounds' figures, each of which is the slowest rank's median of that round."""
    low: float
    """Lower end of the 95 % interval of that median, over the rounds (order statistics)."""
    high: float
    round_times: tuple[float, ...]
    """Seconds, one figure a round, in the order of `Setting.rounds`."""
    ratio: Ratio | None = None
    """Time over the default's, paired by round; the interval is corrected for all comparisons of the
    run. None for the default, and where no round has both."""
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
    """Time over the default's: of each round the geometric mean over its cases, then the median over
    the rounds; the interval is corrected for the number of combinations."""
    rounds: tuple[int, ...] = ()
    """Numbers of the rounds that count, from 1."""
    needed: int = 0
    """Rounds from which on such an interval exists at all."""
    reason: str = ""
    """Why it has no figures, or was given up."""
    figures: tuple[SettingFigures, ...] = ()
