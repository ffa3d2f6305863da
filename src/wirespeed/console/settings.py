"""Compare settings of the environment: a fresh world of ranks for each of them, in every round.

Libraries read such variables once, when they start, so each combination needs ranks of its own; and a
fresh world each round, because what a world drew by chance (ports, paths, places in memory) must not
count as the setting's doing. In each round every combination has its turn, in an order drawn anew, so
that what disturbs the machine disturbs all alike.
"""

import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from wirespeed.checks.combinations import Taken, case_of, judge_settings, pooled, whole_ratios
from wirespeed.console.combinations import SCREEN_ROUNDS, Comparison
from wirespeed.console.remote import interrupted_before
from wirespeed.console.session import Session
from wirespeed.console.settings_findings import (
    given_up_finding,
    search_finding,
    too_few_finding,
    wrong_findings,
)
from wirespeed.console.signals import interrupted_by_signals
from wirespeed.console.worlds import Place, StartWorld
from wirespeed.errors import Interrupted
from wirespeed.plan import Plan
from wirespeed.records import Measurement, Run, Verification
from wirespeed.records_json import measurement_from_json, verification_from_json
from wirespeed.world.watch import Outcome

__all__ = ["run_settings"]


def run_settings(session: Session, place: Place, plan: Plan, asked: Comparison) -> Run:
    """All rounds, the verdicts, the run. A signal ends the rounds; what was measured stays."""
    rounds = _Rounds(session, plan, asked)
    with interrupted_by_signals(rounds.interrupt):
        try:
            with place(session) as start:
                outcome = Outcome(kind="never_joined") if start is None else rounds.run(start)
        except Interrupted as error:
            outcome = Outcome(kind="interrupted", findings=(interrupted_before(error),))
        rounds.settle(whole=outcome.ok)
        return session.close(outcome)


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


class _Rounds:
    """Runs the turns one by one; `settle` hands the session what they came to."""

    def __init__(self, session: Session, plan: Plan, asked: Comparison) -> None:
        self._session = session
        self._plan = plan
        self._asked = asked
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
        self._round = 0
        self._turn = 0
        self._screened = 0
        self._compared = len(self._all) - 1
        self._interrupted = ""
        self._outcome: Outcome | None = None
        """How the default's first world ended, and then what ends all."""

    def interrupt(self, word: str) -> None:
        """Between two worlds; within one, the world itself tells."""
        self._interrupted = self._interrupted or word

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
        return bool(self._interrupted or self._default.taken.given_up) or not self._rivals

    def _end(self) -> Outcome:
        if self._interrupted:
            known = self._outcome
            if known is not None and known.kind == "interrupted":
                return known
            error = Interrupted(f"interrupted by {self._interrupted}")
            return Outcome(kind="interrupted", findings=(interrupted_before(error),))
        return self._outcome or Outcome(kind="never_joined")

    def _rounds_of(self, start: StartWorld, rounds: int) -> None:
        for _ in range(rounds):
            self._round += 1
            for one in self._order():
                if self._over:
                    return
                if not one.taken.given_up:
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
        outcome = start(
            turn, _without_checks(self._plan) if one.checked else self._plan, one.variables
        )
        if outcome.kind == "interrupted":
            self._interrupted, self._outcome = self._interrupted or "a signal", outcome
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

    def settle(self, *, whole: bool) -> None:
        """whole: nothing ended the rounds before their time."""
        taken = [one.taken for one in self._all]
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
        if whole:
            self._session.note(too_few_finding(settings))


def _score(one: _Contender, default: _Contender) -> float:
    ratios = whole_ratios(one.taken, default.taken)
    return median(ratios) if ratios else float("inf")


def _without_checks(plan: Plan) -> Plan:
    """The data were checked under this setting in its first round."""
    return replace(plan, steps=tuple(replace(step, verify=False) for step in plan.steps))


class _Turn:
    """The book of one world: figures go to the session with the setting's name, the rest only once."""

    def __init__(self, session: Session, one: _Contender, number: int, *, whole: bool) -> None:
        self.measured: list[Measurement] = []
        self.checked: list[Verification] = []
        self._session = session
        self._label = one.taken.label
        self._whole = whole
        self._logs = session.logs / f"setting-{one.number}" / f"round-{number}"
        self._logs.mkdir(parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        return self._logs

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        if kind == "measurement":
            data = {**data, "setting": self._label}
            self.measured.append(measurement_from_json(data))
        elif kind == "verification":
            data = {**data, "setting": self._label}
            self.checked.append(verification_from_json(data))
        elif kind == "progress" or not self._whole:
            return
        self._session.on_record(rank, kind, data)

    def phase(self, text: str) -> None:
        """Too quick to be told, in tens of worlds."""

    def tidy(self, *, keep: bool) -> None:
        if not keep:
            shutil.rmtree(self._logs, ignore_errors=True)
