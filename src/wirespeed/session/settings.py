"""Compare settings of the environment: a fresh world of ranks for each of them, in every round.

Libraries read such variables once, when they start, so each combination needs ranks of its own; and a
fresh world each round, because what a world drew by chance (ports, paths, places in memory) must not
count as the setting's doing. In each round every combination has its turn, in an order drawn anew, so
that what disturbs the machine disturbs all alike.
"""

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

from wirespeed.checks.combinations import Taken, case_of, judge_settings, pooled, whole_ratios
from wirespeed.checks.correctness import correctness_findings
from wirespeed.checks.time_limit import not_measured
from wirespeed.errors import UsageError
from wirespeed.model.bench_records import DEFAULT, Setting
from wirespeed.model.codec import from_json
from wirespeed.model.records import Finding, Measurement, Verification
from wirespeed.plan import Plan
from wirespeed.session.backends import ManyWorlds, StartWorld, interrupted
from wirespeed.session.findings import make_finding
from wirespeed.session.recording import Session, TurnRecorder, log_findings
from wirespeed.watchdog import Outcome

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
    bound_s = plan.max_time_s
    low, high = (worlds * start for start in _START_S)
    # Warming up and checking the data take about half of the time that is given for timing.
    high += worlds * timed * 1.5
    if bound_s is not None:
        return head + f"as far as they fit into {_minutes(bound_s)} (--max-time)"
    return (
        head
        + f"about {_minutes(low)} to {_minutes(high)}"
        + (", and what -n takes" if open_end else "")
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@dataclass(slots=True, eq=False)
class _Contender:
    """One combination with all that happened under it."""

    number: int
    variables: dict[str, str | None]
    taken: Taken
    failures: list[Outcome] = field(default_factory=list)
    logs: Path | None = None
    """Of the first failure."""
    checked: list[Verification] = field(default_factory=list)

    def failed(self, outcome: Outcome, logs: Path) -> None:
        """It is given up when it has failed more often than it has run."""
        self.failures.append(outcome)
        self.logs = self.logs or logs
        if len(self.failures) > len(self.taken.rounds):
            first = outcome.findings[0].title if outcome.findings else "nothing was measured"
            self.taken.given_up, self.taken.reason = "failed", first


_LEAST_S = 0.1
"""For the measuring of a world that has started."""


class ComparedSettings(ManyWorlds):
    """A `Workload`: all turns one by one, and the verdicts. A signal ends the rounds."""

    def __init__(self, session: Session, plan: Plan, asked: Comparison) -> None:
        self._session, self._plan, self._asked = session, plan, asked
        self._random = random.Random(asked.seed)
        self._all = [
            _Contender(
                number,
                dict(one.variables),
                Taken(name=one.name, values=one.values, unset=one.unset),
            )
            for number, one in enumerate(asked.combinations)
        ]
        self._default = self._all[0]
        self._begin = time.monotonic()
        self._turns_left_out = 0
        self._round = 0
        self._turn = 0
        self._screened = 0
        self._compared = len(self._all) - 1
        self._outcome: Outcome | None = None
        """How the default's first world ended, and then what ends all."""

    def run(self, start: StartWorld) -> Outcome:
        """The stages of --search, then the rounds that count."""
        for _ in self._asked.stages:
            self._rounds_of(start, SCREEN_ROUNDS)
            if self._over:
                return self._end()
            self._drop()
        self._screened = self._round
        self._compared = max(1, len(self._rivals))
        self._rounds_of(start, self._asked.rounds)
        return self._end()

    @property
    def _rivals(self) -> list[_Contender]:
        return [one for one in self._all[1:] if not one.taken.given_up]

    @property
    def _over(self) -> bool:
        ended = bool(self.word or self._default.taken.given_up or self._turns_left_out)
        return ended or not self._rivals

    def _left_s(self) -> float | None:
        """Return what is left of --max-time; worlds start up within it."""
        limit_s = self._plan.max_time_s
        return None if limit_s is None else limit_s - (time.monotonic() - self._begin)

    def _is_out_of_time(self) -> bool:
        """Return whether no further world fits; the very first one always runs."""
        left_s = self._left_s()
        if left_s is None or not self._turn:
            return False
        return left_s <= (time.monotonic() - self._begin) / self._turn

    def _end(self) -> Outcome:
        if self.word:
            known = self._outcome
            if known is not None and known.kind == "interrupted":
                return known
            return interrupted(f"interrupted by {self.word}")
        return self._outcome or Outcome(kind="never_joined")

    def _rounds_of(self, start: StartWorld, rounds: int) -> None:
        for _ in range(rounds):
            self._round += 1
            for one in self._order():
                if self._over:
                    return
                if one.taken.given_up:
                    continue
                if self._is_out_of_time():
                    self._turns_left_out = self._asked.worlds - self._turn
                    return
                self._take_turn(start, one)

    def _order(self) -> list[_Contender]:
        """Drawn anew each round; the very first world is the default's, as all hang on that."""
        order = [self._default, *self._rivals]
        if self._round == 1:
            rest = order[1:]
            self._random.shuffle(rest)
            return [self._default, *rest]
        self._random.shuffle(order)
        return order

    def _take_turn(self, start: StartWorld, one: _Contender) -> None:
        name = f"round {self._round}: {one.taken.name}"
        told = {"index": self._turn, "of": max(self._asked.worlds, self._turn + 1), "label": name}
        self._session.on_record(0, "progress", told)
        self._turn += 1
        turn = _Turn(self._session, one, self._round, whole=self._outcome is None)
        plan = _without_checks(self._plan) if one.checked else self._plan
        left_s = self._left_s()
        if left_s is not None:
            plan = replace(plan, max_time_s=max(left_s, _LEAST_S))
        outcome = start(turn, plan, one.variables)
        if outcome.kind == "interrupted":
            self.word, self._outcome = self.word or "a signal", outcome
            return
        if outcome.ok and turn.measured:
            one.taken.rounds[self._round] = {case_of(m): m for m in turn.measured}
        else:
            one.failed(outcome, turn.logs)
        one.checked += turn.checked
        turn.tidy(keep=not outcome.ok or self._round == 1)
        if one is self._default and (self._outcome is None or one.taken.given_up):
            self._outcome = outcome

    def _drop(self) -> None:
        """The slower half of those that are left, by the median of their rounds."""
        rivals = self._rivals
        keep = max(len(rivals) + 1 >> 1, min(len(rivals), self._asked.finalists))
        ranked = sorted(rivals, key=lambda one: _score(one, self._default))
        for one in ranked[keep:]:
            one.taken.given_up = "dropped"
            one.taken.reason = f"after {len(one.taken.rounds)} rounds in the slower half"

    def settle(self, outcome: Outcome) -> None:
        taken = [one.taken for one in self._all]
        if self._turns_left_out and self._plan.max_time_s is not None:
            worlds = f"{self._turns_left_out} of {self._asked.worlds} worlds of ranks"
            self._session.note([not_measured([worlds], self._plan.max_time_s)])
        if not any(one.rounds for one in taken):
            return
        settings = judge_settings(taken, self._compared, self._screened)
        measured = [m for one in taken if not one.given_up for m in pooled(one, self._screened)]
        self._session.settle(settings, measured)
        for one in self._all[1:]:
            if one.failures:
                self._session.note(
                    [given_up_finding(one.taken, one.failures[0], self._plan, one.logs)]
                )
            self._session.note(wrong_findings(one.taken.name, one.checked))
        self._session.note(search_finding(taken))
        if outcome.ok:  # nothing ended the rounds before their time
            self._session.note(too_few_finding(settings))


def _score(one: _Contender, default: _Contender) -> float:
    ratios = whole_ratios(one.taken, default.taken)
    return median(ratios) if ratios else float("inf")


def _without_checks(plan: Plan) -> Plan:
    """The data were checked under this setting in its first round."""
    return replace(plan, steps=tuple(replace(step, verify=False) for step in plan.steps))


class _Turn(TurnRecorder):
    """The recorder of one world: figures go on with the setting's name, the rest only once."""

    def __init__(self, session: Session, one: _Contender, number: int, *, whole: bool) -> None:
        super().__init__(session, session.logs / f"setting-{one.number}" / f"round-{number}")
        self.measured: list[Measurement] = []
        self.checked: list[Verification] = []
        self._label, self._whole = one.taken.label, whole
        self.logs.mkdir(parents=True, exist_ok=True)

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        if kind == "measurement":
            data = {**data, "setting": self._label}
            self.measured.append(from_json(Measurement, data))
        elif kind == "verification":
            data = {**data, "setting": self._label}
            self.checked.append(from_json(Verification, data))
        elif kind == "progress" or not self._whole:
            return
        super().on_record(rank, kind, data)

    def phase(self, text: str) -> None:
        """Too quick to be told, in tens of worlds."""

    def tidy(self, *, keep: bool) -> None:
        if not keep:
            shutil.rmtree(self.logs, ignore_errors=True)


_MOST_TOLD = 12


def given_up_finding(one: Taken, outcome: Outcome, plan: Plan, logs: Path | None) -> Finding:
    """SET-001: the ranks failed under this setting, from its first failure."""
    said = [*outcome.findings, *(log_findings(logs) if logs else [])]
    first = said[0] if said else None
    rest = [text for cause in said[1:] for text in (cause.title, cause.because) if text]
    times = f"in {len(one.rounds)} other rounds they ran" if one.rounds else "no round went well"
    return make_finding(
        "setting_failed",
        name=one.name,
        op=plan.steps[0].case.op,
        saw=f"{first.title if first else 'no figure came'}; {times}",
        because=(first.because if first else "") or (rest[0] if rest else ""),
        evidence=(*(first.evidence if first else ()), *rest)[:_MOST_TOLD],
    )


def wrong_findings(name: str, checked: Sequence[Verification]) -> list[Finding]:
    """Wrong data under this setting; nothing where all data were right."""
    return [
        replace(one, title=f"{name}: {one.title}")
        for one in correctness_findings(checked)
        if one.status == "fail"
    ]


def search_finding(taken: Sequence[Taken]) -> list[Finding]:
    """SET-003: what --search has not compared to the end."""
    dropped = [one for one in taken if one.given_up == "dropped"]
    if not dropped:
        return []
    rounds = sorted({len(one.rounds) for one in dropped})
    spread = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
    names = tuple(one.name for one in dropped[:_MOST_TOLD])
    counts: dict[str, Any] = {"dropped": len(dropped), "all": len(taken) - 1, "spread": spread}
    return [make_finding("not_to_the_end", **counts, evidence=names)]


def too_few_finding(settings: Sequence[Setting]) -> list[Finding]:
    """SET-002: with so few rounds, no figures could have given a verdict."""
    short = [one for one in settings if one.rounds and len(one.rounds) < one.needed]
    if not short:
        return []
    least, needed = min(len(one.rounds) for one in short), max(one.needed for one in short)
    return [make_finding("too_few_rounds", least=least, needed=needed)]
