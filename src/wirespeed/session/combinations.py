"""Which combinations of settings are compared, and in how many worlds of ranks. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from shlex import quote

from wirespeed.errors import UsageError
from wirespeed.model.settings_records import DEFAULT
from wirespeed.plan import Plan

MOST = 1024
FINALISTS = 3
"""So many, beside the default, are compared to the end by --search."""
SCREEN_ROUNDS = 3
"""Rounds of --search after which the slower half is dropped."""
_START_S = (2.0, 10.0)
"""Seconds to start and end one world of ranks: a quick machine with gloo, a slow one or NCCL."""


@dataclass(frozen=True, slots=True)
class Combination:
    """One setting of the variables: those with None are unset."""

    variables: Mapping[str, str | None]

    @property
    def values(self) -> dict[str, str]:
        return {k: v for k, v in self.variables.items() if v is not None}

    @property
    def unset(self) -> tuple[str, ...]:
        return tuple(k for k, v in self.variables.items() if v is None)

    @property
    def name(self) -> str:
        """`NCCL_ALGO=Ring OMP_NUM_THREADS=2`, as a shell takes it; `default` with none set."""
        return " ".join(f"{k}={quote(v)}" for k, v in self.values.items()) or DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is to be compared, and how long."""

    combinations: tuple[Combination, ...]
    """The default first: every variable unset."""
    rounds: int
    """Rounds whose figures count."""
    search: bool = False
    seed: int = 1

    @property
    def stages(self) -> list[int]:
        """How many combinations, beside the default, each stage of --search begins with."""
        left, found = len(self.combinations) - 1, []
        while self.search and left > FINALISTS:
            found.append(left)
            left = max(FINALISTS, (left + 1) // 2)
        return found

    @property
    def finalists(self) -> int:
        """How many, beside the default, take part in the rounds that count."""
        rivals = len(self.combinations) - 1
        return min(rivals, FINALISTS) if self.search else rivals

    @property
    def worlds(self) -> int:
        """How many worlds of ranks that makes, if none fails."""
        screening = sum((rivals + 1) * SCREEN_ROUNDS for rivals in self.stages)
        return screening + (self.finalists + 1) * self.rounds


def combinations_of(variables: Mapping[str, Sequence[str | None]]) -> tuple[Combination, ...]:
    """The default, then every combination of the values (None: unset) in their order."""
    number = 1
    for values in variables.values():
        number *= len(values)
    if number > MOST:
        raise UsageError(
            f"{number:,} combinations of settings", expected=f"at most {MOST:,}: fewer values"
        )
    found = [
        Combination(dict(zip(variables, one, strict=True))) for one in product(*variables.values())
    ]
    default = Combination(dict.fromkeys(variables))
    rivals = [one for one in found if one.values]
    if not rivals:
        raise UsageError("nothing to compare: every value is `unset`", expected="--env NAME=VALUE")
    return (default, *rivals)


def estimate(asked: Comparison, plan: Plan, ranks: int) -> str:
    """What will be run and about how long it takes, as one line."""
    worlds = asked.worlds
    head = f"{len(asked.combinations)} settings (the default among them), "
    if asked.stages:
        head += (
            f"the slower half dropped every {SCREEN_ROUNDS} rounds down to {asked.finalists}, then "
        )
    head += (
        f"{asked.rounds} round{'s' if asked.rounds > 1 else ''}: {worlds} worlds of {ranks} ranks, "
    )
    measures = [step.measure for step in plan.steps if step.measure]
    open_end = any(one.iterations is not None for one in measures)
    timed = sum(one.max_time_s for one in measures if one.iterations is None)
    low, high = (worlds * start for start in _START_S)
    # Warming up and checking the data take about half of the time that is given for timing.
    high += worlds * timed * 1.5
    return (
        head
        + f"about {_minutes(low)} to {_minutes(high)}"
        + (", and what -n takes" if open_end else "")
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
