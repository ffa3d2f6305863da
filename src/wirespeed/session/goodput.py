"""Training for a time, in as many worlds of ranks as it takes; what became of the time.

`Goodput` is the work that `run_lasting` carries out. Under somebody else's launcher there is one world
only, and the same account is kept of it.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wirespeed.errors import UsageError
from wirespeed.model.lasting_records import Goodput, Incident
from wirespeed.model.units import format_duration
from wirespeed.plan import LastingPlan, Plan, TrainPlan
from wirespeed.runs.folder import PatientFolder
from wirespeed.session.backends import FRUITLESS, log_folder
from wirespeed.session.findings import make_finding
from wirespeed.session.goodput_account import (
    Account,
    Failure,
    best_interval,
    failure_findings,
    failure_of,
    time_between_failures,
)
from wirespeed.session.recording import Session, TurnRecorder
from wirespeed.watchdog import Outcome

_STORED_EVERY_S = 10.0
_SAID, _SAID_EVERY_S = 180, 1.0
"""Lines of progress over the whole time, at most one a second."""
_MOST_INCIDENTS = 1000


class GoodputWork:
    """A `session.backends.Work`; `on_record` is called in the monitor's thread."""

    def __init__(self, session: Session, plan: Plan, *, restarts: bool = True) -> None:
        """restarts: whether another world follows one that failed."""
        self._session, self._plan, self._restarts = session, plan, restarts
        self._training, lasting = _parts(plan)
        folder = lasting.folder or str(session.folder.path / "checkpoints")
        self._lasting = replace(lasting, folder=folder)
        self._account = Account()
        self._begin = time.monotonic()
        self._world = 0
        self._done = self._stopped = False
        self._saved_before = 0
        self._fruitless = 0
        self._start_s = 0.0
        self._began = 0.0
        self._failures: list[Failure] = []
        self._others: list[Incident] = []
        self._warned: set[str] = set()
        self._tokens = 0
        self._loss: float | None = None
        self._said = self._stored = float("-inf")
        self._last: Outcome | None = None
        if isinstance(session.folder, PatientFolder):
            session.folder.on_change = self._on_disk

    # What `run_lasting` asks for.

    def plan(self, left_s: float) -> Plan | None:
        if self._done or (self._world and left_s <= self._start_s):
            return None
        first = self._world == 0
        lasting = replace(
            self._lasting,
            for_s=left_s,
            until=time.time() + left_s,
            resume=self._lasting.resume or not first,
        )
        faults = self._plan.faults if first else ()
        training = replace(self._training, lasting=lasting)
        return replace(self._plan, training=training, faults=faults)

    def recorder(self, number: int) -> "_WorldRecorder":
        if number == 1:
            self._begin = time.monotonic()
        self._world = number
        self._began = self._now()
        self._saved_before = self._account.saved
        self._account.world_began(self._began)
        return _WorldRecorder(self, self._session, number)

    def ended(self, outcome: Outcome, seconds: float) -> bool:
        self._last = outcome
        at, since = self._now(), self._account.last_at
        if outcome.ok:
            self._account.world_ended(at, "interrupted" if self._stopped else "whole")
        elif outcome.kind == "interrupted":
            self._account.world_ended(at, "interrupted")
        else:
            lost = self._account.world_ended(at, "failed")
            self._fail(Failure(failure_of(outcome), _now_text(), since, self._world, lost, at))
        got_on = outcome.ok or self._account.saved > self._saved_before
        self._fruitless = 0 if got_on else self._fruitless + 1
        self._store()
        return got_on

    def settle(self) -> None:
        """Hands over the account, and all failures but one that ended the run: the run tells that."""
        self._session.keep_goodput(self.record())
        ended = self._fruitless >= FRUITLESS or not self._restarts
        by_last = ended and self._last is not None and not self._last.ok
        self._session.note(failure_findings(self._failures[:-1] if by_last else self._failures))

    # What the ranks tell.

    def on_lasting(self, data: dict[str, Any]) -> None:
        at = self._now()
        match data["event"]:
            case "ready":
                self._on_ready(at, data)
            case "steps":
                self._account.stepped(at, data["step"], data["seconds"], data["count"])
                self._loss = data["loss"]
                self._say(at, data["left_s"])
            case "saved":
                self._on_saved(at, data)
            case "stopped":
                self._stopped = self._done = True
            case "over":
                self._done = True

    def refused(self) -> None:
        """A rank cannot do what was asked: another world could not either."""
        self._done = True

    def _on_ready(self, at: float, data: dict[str, Any]) -> None:
        step, first = data["step"], self._account.first_step is None
        self._account.ready(at, step, data["restore_s"])
        self._tokens = data["tokens"]
        self._start_s = at - self._began
        for why in data["refused"]:
            self._warn(
                f"a checkpoint was not taken: {why}",
                f"training went on from step {step:,}" if step else "training began at step 0",
                "see what wrote there; other jobs need a folder of their own",
            )
        if not step and first and self._lasting.resume:
            self._warn(
                f"no checkpoint to resume from in {self._lasting.folder}",
                "training began at step 0",
                "the folder of the run to go on with, as its last lines name it",
            )
        if self._failures and self._failures[-1].resumed is None:
            self._failures[-1].until_s, self._failures[-1].resumed = at, step

    def _on_saved(self, at: float, data: dict[str, Any]) -> None:
        written = not data["why"]
        self._account.saved_at(at, data["step"], data["seconds"], written=written)
        if not written:
            self._not_written(at, data)
        if at - self._stored >= _STORED_EVERY_S:
            self._store()

    def _not_written(self, at: float, data: dict[str, Any]) -> None:
        title = f"the checkpoint of step {data['step']:,} could not be written"
        self._keep("TRAIN-007", title, data["why"], at, lost_s=data["seconds"])
        older = self._account.saved
        from_there = f"step {older:,}" if older else "the beginning"
        costs = f"a failure would have gone back to {from_there}"
        fix = "room in that folder, or another --checkpoint-dir"
        self._warn(title, costs, fix, saw=data["why"], once="could not be written")

    def _on_disk(self, why: str) -> None:
        """The disk under the run folder is full, or has room again; training goes on either way."""
        if not why:
            return
        title = "records cannot be written; they wait in memory"
        self._keep("TRAIN-010", title, why, self._now())
        if title not in self._warned:
            self._warned.add(title)
            self._session.note([make_finding("unwritten", title=title, saw=why)])

    def _keep(self, id: str, title: str, saw: str, at: float, lost_s: float = 0.0) -> None:
        """An incident that ended no world."""
        if len(self._others) < _MOST_INCIDENTS:
            incident = Incident(
                at=_now_text(),
                since_s=at,
                id=id,
                title=title,
                saw=saw,
                lost_s=lost_s,
                world=self._world,
            )
            self._others.append(incident)

    def _warn(self, title: str, costs: str, fix: str, saw: str = "", once: str = "") -> None:
        """once: what is told of the first such trouble only."""
        if (once or title) not in self._warned:
            self._warned.add(once or title)
            told = make_finding("checkpoint", title=title, saw=saw, costs=costs, fix=fix)
            self._session.note([told])

    def _fail(self, failure: Failure) -> None:
        if self._failures and self._failures[-1].resumed is None:
            self._failures[-1].until_s = failure.since_s
        self._failures.append(failure)

    def _incidents(self) -> list[Incident]:
        told = [one.incident() for one in self._failures[:_MOST_INCIDENTS]]
        return sorted([*told, *self._others], key=lambda one: one.since_s)[:_MOST_INCIDENTS]

    # What it comes to.

    def record(self) -> Goodput:
        """As of now, or of the end of the last world."""
        account, case = self._account, self._training.cases[0]
        step_s, low, high, steps = account.mean_step()
        mean_save = account.checkpoint_s / account.checkpoints if account.checkpoints else 0.0
        mtbf = time_between_failures(account.wall, len(self._failures))
        every = self._lasting.checkpoint_steps
        interval = every * step_s if every else self._lasting.checkpoint_s
        return Goodput(
            model=self._training.model,
            strategy=case.strategy,
            ranks=case.ranks,
            asked_s=self._lasting.for_s,
            wall_s=account.wall,
            parts_s=account.parts(),
            first_step=account.first_step or 0,
            last_step=account.step,
            lost_steps=account.lost_steps,
            step_s=step_s,
            step_low_s=low,
            step_high_s=high,
            step_samples=steps,
            tokens_per_step=self._tokens,
            loss=self._loss,
            worlds=self._world,
            restarts=max(0, self._world - 1),
            failures=len(self._failures),
            checkpoints=account.checkpoints,
            checkpoint_s=mean_save,
            checkpoints_failed=account.checkpoints_failed,
            folder=self._lasting.folder,
            mtbf_s=mtbf[0] if mtbf else None,
            mtbf_low_s=mtbf[1] if mtbf else None,
            mtbf_high_s=mtbf[2] if mtbf else None,
            best_interval_s=best_interval(mean_save, mtbf[0]) if mtbf and mean_save else None,
            loss_at_most_s=account.loss_at_most(interval),
            incidents=tuple(self._incidents()),
        )

    def _store(self) -> None:
        """What is known by now, in case that this process is killed."""
        self._stored = self._now()
        self._session.store_goodput(self.record())

    def _say(self, at: float, left_s: float) -> None:
        if at - self._said < max(_SAID_EVERY_S, self._lasting.for_s / _SAID):
            return
        self._said = at
        account = self._account
        parts = [f"step {account.step:,}"]
        parts += [f"loss {self._loss:.4g}"] if self._loss is not None else []
        saved = f", last of step {account.saved:,}" if account.checkpoints else ""
        parts.append(f"{account.checkpoints} checkpoints{saved}")
        if self._world > 1:
            parts.append(f"{self._world - 1} restart" + ("s" if self._world > 2 else ""))
        parts.append(f"{format_duration(max(left_s, 0.0))} left")
        self._session.phase("  ".join(parts))

    def _now(self) -> float:
        return time.monotonic() - self._begin


class _WorldRecorder(TurnRecorder):
    """The recorder of one world."""

    def __init__(self, work: GoodputWork, session: Session, number: int) -> None:
        super().__init__(session, log_folder(session.logs, number))
        self._work, self._number = work, number

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        if kind == "lasting":
            self._work.on_lasting(data)
            return
        if kind == "refusal":
            self._work.refused()
        if not self.session.has_facts(kind, self._number):
            super().on_record(rank, kind, data)


def _parts(plan: Plan) -> tuple[TrainPlan, LastingPlan]:
    if plan.training is None or plan.training.lasting is None:
        raise UsageError("this plan does not last", expected="wirespeed train --for 30m")
    return plan.training, plan.training.lasting


def _now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
