"""Training by the clock, with checkpoints: steps until the time is over; every rank runs this alike.

Rank 0 tells what it does with `lasting` records, in seconds of its own clock; the session, which sees
world after world, makes the account. Rank 0's clock also decides for all when a checkpoint is due and
when the time is over: it goes around with the losses, so that it costs no message of its own.
"""

import random
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirespeed.errors import CannotMeasure, UsageError, WirespeedError, WorldError
from wirespeed.node.lock import Held, Lock, Owner
from wirespeed.plan import LastingPlan, Plan, TrainPlan
from wirespeed.rank.place import Place
from wirespeed.rank.steps import Reporter, Tell, teller
from wirespeed.rank.training.failures import FaultInjection, collectives_begun
from wirespeed.rank.training.findings import trouble
from wirespeed.rank.training.stage import BUILD_BOUND_S, Act, Stage
from wirespeed.training.checkpoint_files import CheckpointFiles, Refused
from wirespeed.training.strategies.registry import STRATEGIES

if TYPE_CHECKING:
    from wirespeed.training.step import Step

_TELL_S = 0.2
"""So often steps are told; what a world that dies has not told counts as the time it was down."""
_SLOW_S, _PATIENCE = 3.0, 10
"""Where a step took that long, a later one may take so many times it."""
_ASKEW_S = 1.0
"""Clocks of two nodes may differ by that; a larger difference shows."""


def run_lasting_training(place: Place, whole: Plan, plan: TrainPlan, heartbeat: Reporter) -> None:
    """Train `plan.cases[0]` until its time is over; collective over the whole world."""
    from wirespeed.training.models.catalogue import model_named

    if plan.lasting is None:
        raise ValueError("this plan does not last")
    tell = teller(place, heartbeat)
    model = model_named(plan.model, **plan.model_options)
    faults = FaultInjection(whole.faults, place.rank)
    stage = _ClockedStage(place, plan, model, whole.seed, faults)
    clock = _deadline(plan.lasting)
    _seed(whole.seed)
    heartbeat.enter("making the trainer")
    try:
        with stage.act(plan.cases[0]) as act:
            if act is None:
                raise ValueError("training that lasts takes the whole world")
            stage.clock = clock
            _Loop(stage, plan.lasting, act, heartbeat, tell).run()
    finally:
        stage.close()


def _seed(seed: int) -> None:
    """Generators that a model of somebody's own may draw from; torch's is set with the trainer."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def seconds_left(lasting: LastingPlan, now: float) -> float:
    """Until the time is over, by the clock; all of it where this node's clock is another one."""
    left = lasting.until - now
    askew = left > lasting.for_s + _ASKEW_S or left < -lasting.for_s - _ASKEW_S
    return lasting.for_s if askew else left


def _deadline(lasting: LastingPlan) -> Callable[[], float]:
    """Seconds left, by a clock that nobody sets."""
    end = time.monotonic() + seconds_left(lasting, time.time())
    return lambda: end - time.monotonic()


class _ClockedStage(Stage):
    """Rank 0's seconds left go around with the losses."""

    clock: Callable[[], float] | None = None
    """None until the trainer is there."""
    left_s = 0.0
    """What rank 0 had left when the last step ended; the same on every rank."""

    def share(self, loss: float) -> list[float]:
        if self.clock is None:
            return super().share(loss)
        row = [loss, 0.0, float(collectives_begun()), self.clock()]
        rows = self.place.control.matrix(row)
        self.left_s = float(rows[0, 3])
        every: list[float] = rows[:, 0].tolist()
        return every


class _Loop:
    def __init__(
        self, stage: _ClockedStage, lasting: LastingPlan, act: Act, heartbeat: Reporter, tell: Tell
    ) -> None:
        self._stage, self._lasting, self._act = stage, lasting, act
        self._heartbeat, self._tell = heartbeat, tell
        self._keeper = Keeper(stage, lasting, act)
        self._told = time.monotonic()
        self._seconds, self._count, self._loss = 0.0, 0, 0.0
        self._saved_step = 0
        self._saved_left = 0.0

    def run(self) -> None:
        try:
            self._train()
        finally:
            self._keeper.release()

    def _train(self) -> None:
        from wirespeed.training.step import LossNotFinite

        self._restore()
        self._stage.place.busy(BUILD_BOUND_S)  # a compiler may run in the first step
        try:
            while self._step():
                pass
        except LossNotFinite as error:
            self._say_steps()
            self._tell("trouble", trouble("not_finite", rank=error.ranks[0], error=error))
            self._event("stopped", why="the loss is not a finite number")
            return
        self._say_steps()
        if self._act.number > self._saved_step:
            self._save()
        self._event("over", loss=self._loss)

    def _restore(self) -> None:
        begin = time.monotonic()
        self._enter("looking for a checkpoint", BUILD_BOUND_S)
        if before := self._keeper.claim():
            reason = f"its last owner is dead: {before}"
            taken = {"name": "checkpoint folder", "value": "taken over", "reason": reason}
            self._tell("choices", {"choices": [taken]})
        loaded = self._keeper.restore(resume=self._lasting.resume)
        self._saved_step = loaded.step
        self._stage.share(0.0)
        self._saved_left = self._stage.left_s
        case, model = self._stage.plan.cases[0], self._stage.model
        tokens = case.samples * model.tokens_per_sample if model.tokens_per_sample > 1 else 0
        self._event(
            "ready",
            step=loaded.step,
            restore_s=time.monotonic() - begin if loaded.step or loaded.refused else 0.0,
            tokens=tokens,
            refused=list(loaded.refused),
        )

    def _step(self) -> bool:
        """One step, and a checkpoint where one is due; whether there is time for another."""
        self._heartbeat.enter(f"train step {self._act.number + 1}")
        self._stage.faults.turn()
        step: Step = self._act.run()
        seconds = step.times.step
        if not self._count and step.number == self._saved_step + 1:
            self._stage.place.busy(_PATIENCE * seconds if seconds > _SLOW_S else None)
        self._seconds, self._count = self._seconds + seconds, self._count + 1
        self._loss = step.loss
        if time.monotonic() - self._told >= _TELL_S:
            self._say_steps()
        if self._stage.left_s <= 0:
            return False
        if self._due():
            self._say_steps()
            self._save()
        return True

    def _due(self) -> bool:
        every = self._lasting.checkpoint_steps
        if every is not None:
            return self._act.number % every == 0
        interval = self._lasting.checkpoint_s
        return interval is not None and self._saved_left - self._stage.left_s >= interval

    def _save(self) -> None:
        step, begin = self._act.number, time.monotonic()
        self._enter(f"checkpoint of step {step}", BUILD_BOUND_S)
        why = self._keeper.save(step)
        # Also after one that failed: a full disk is asked again after the interval only.
        self._saved_left = self._stage.left_s
        if not why:
            self._saved_step = step
        self._stage.place.busy(None)
        self._event("saved", step=step, seconds=time.monotonic() - begin, why=why)
        self._told = time.monotonic()

    def _say_steps(self) -> None:
        if self._count:
            told = {"step": self._act.number, "seconds": self._seconds, "count": self._count}
            self._event("steps", **told, loss=self._loss, left_s=self._stage.left_s)
        self._seconds, self._count, self._told = 0.0, 0, time.monotonic()

    def _event(self, what: str, **data: Any) -> None:
        self._tell("lasting", {"event": what, **data})

    def _enter(self, label: str, bound_s: float | None) -> None:
        self._stage.place.busy(bound_s)
        self._heartbeat.enter(label)


# Checkpoints of a whole world: all ranks have one, or none counts; collective throughout.
# Their folder is locked, by rank 0 and, where ranks of other nodes write to a folder of that name of
# their own, by the first of those. Each checkpoint names its job, which goes on with `--resume`.

KEPT = 2
"""The newest checkpoints that stay: the last one, and one for when that is torn."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    step: int
    refused: tuple[str, ...]
    """Why newer ones were not taken."""


class Keeper:
    """Writes and reads the checkpoints of one act. Ranks that hold the same write one, rank 0's."""

    def __init__(self, stage: Stage, lasting: LastingPlan, act: Act) -> None:
        self._place: Place = stage.place
        self._act = act
        self._folder = Path(lasting.folder)
        self._each = STRATEGIES[stage.plan.cases[0].strategy].checkpoint == "part"
        self._writes = self._each or self._place.rank == 0
        number = self._place.rank if self._each else 0
        self._files = CheckpointFiles(self._folder, number, _about(stage))
        self._steps: list[int] = []
        self._lock: Lock | None = None
        # Its imports belong to the start, not to what the first checkpoint costs.
        import_module("wirespeed.training.checkpoint_state")

    def claim(self) -> Owner | None:
        """Keep every other job out; the dead owner whose lock was taken over on this rank.

        CannotMeasure on every rank where a living one holds the folder.
        """
        self._together(self._place.rank == 0, "")
        ally = self._place.control.objects(self._lock.token if self._lock else "", str)[0]
        hosts, rank = self._place.hosts, self._place.rank
        first = hosts.index(hosts[rank]) == rank and hosts[rank] != hosts[0]
        self._together(self._each and first, ally)
        return self._lock.before if self._lock else None

    def _together(self, mine: bool, ally: str) -> None:
        """ally: the token of rank 0's lock: where that is seen, the folder is the same."""
        told: list[str] = []
        if mine:
            try:
                self._lock = Lock.take(self._folder, "wirespeed train")
            except WirespeedError as error:
                same = isinstance(error, Held) and error.token == ally
                told = [] if same and ally else [error.saw, error.expected, error.next]
        for saw, expected, next in filter(None, self._place.control.objects(told, [str])):
            raise CannotMeasure(saw, expected=expected, next=next)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def save(self, step: int) -> str:
        """ "" when the checkpoint of that step is there, on every rank; else why it is not."""
        data = self._state()
        why = self._attempt(lambda: self._write(step, data)) if self._writes else ""
        whys = [text for text in self._place.control.objects(why, str) if text]
        if whys:
            if self._writes and (self._lock is None or self._lock.held):
                self._files.remove(step)
            return str(whys[0])
        self._steps = [*self._steps, step][-KEPT:]
        if self._writes:
            self._files.keep(self._steps)
        return ""

    def _write(self, step: int, data: bytes) -> None:
        if self._lock is not None and not self._lock.held:
            raise Refused(f"{self._folder} was taken over by another job, as this one was stopped")
        self._files.write(step, data)

    def restore(self, *, resume: bool) -> _Loaded:
        """The newest checkpoint that every rank can take; step 0 where there is none.

        UsageError: nobody asked to resume, and the folder holds checkpoints.
        """
        mine = self._files.steps() if self._writes else []
        steps = sorted(set().union(*self._place.control.objects(mine, [int])), reverse=True)
        if steps and not resume:
            raise UsageError(
                f"{self._folder} holds checkpoints, the newest of step {steps[0]}",
                expected="--resume, to go on from there, or another --checkpoint-dir",
                next=f"wirespeed train --for 30m --checkpoint-dir {self._folder} --resume",
            )
        known = next(filter(None, map(self._files.job_of, steps)), "") or secrets.token_hex(8)
        self._files.job = self._place.control.objects(known, str)[0]
        refused: list[str] = []
        for step in steps:
            why = self._load(step)
            if not why:
                self._steps = [step]
                return _Loaded(step, tuple(refused))
            refused.append(why)
        return _Loaded(0, tuple(refused))

    def _state(self) -> bytes:
        from wirespeed.training.checkpoint_state import (
            own_state,
            part_state,
            shared_state,
            to_bytes,
        )

        place, trainer = self._place, self._act.trainer
        scale = self._act.step.scale_state()
        if self._each:
            return to_bytes({**part_state(trainer, place.device), "scale": scale})
        shared = shared_state(trainer, place.rank)
        own = place.control.states(own_state(trainer, place.device), keeps=self._writes)
        return to_bytes({**shared, "own": own, "scale": scale}) if self._writes else b""

    def _load(self, step: int) -> str:
        """ "" when every rank has taken it; else why one cannot."""
        from wirespeed.training.checkpoint_state import from_bytes

        state: Any = None

        def read() -> None:
            nonlocal state
            state = from_bytes(self._files.read(step), f"step-{step}")

        why = self._attempt(read) if self._writes else ""
        told = self._place.control.objects((why, self._files.job_of(step)), (str, str))
        for text, _ in told:
            if text:
                return text
        jobs = [job for _, job in told] if self._each else [told[0][1]]
        if len(set(jobs)) > 1:
            return f"step-{step} is of several jobs: its files do not belong together"
        self._files.job = jobs[0] or self._files.job
        if not self._each:  # only rank 0 has one
            state = self._place.control.states(state)[0]
        try:
            self._take(state)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise WorldError(
                f"the state of step {step} that rank {self._place.rank} got is not this model's "
                f"({type(error).__name__}: {error})",
                next="train with another --checkpoint-dir",
            ) from error
        self._act.number = step
        return ""

    def _take(self, state: Any) -> None:
        from wirespeed.training.checkpoint_state import load_own, load_part, load_shared

        place, trainer = self._place, self._act.trainer
        if self._each:
            load_part(trainer, place.device, state)
        else:
            load_shared(trainer, state)
            load_own(trainer, place.device, state["own"][place.rank])
        self._act.step.load_scale(state["scale"])

    def _attempt(self, work: Callable[[], None]) -> str:
        """ "" or, on this rank's behalf, why not."""
        try:
            work()
        except Refused as error:
            return str(error)
        except OSError as error:
            where = f"rank {self._place.rank} on {self._place.hosts[self._place.rank]}"
            return f"{where} cannot write {self._folder}: {error.strerror or error}"
        return ""


def _about(stage: Stage) -> dict[str, Any]:
    """What must be alike for training to go on to the bit."""
    plan, case = stage.plan, stage.plan.cases[0]
    return {
        "model": plan.model,
        "model_options": plan.model_options,
        "parameters": stage.model.parameters,
        "strategy": case.strategy,
        "bucket_mb": case.bucket_mb,
        "world_size": case.ranks,
        "batch": case.samples,
        "micro_batches": plan.micro_batches,
        "precision": plan.precision,
        "optimizer": plan.optimizer,
        "learning_rate": plan.learning_rate,
        "clip": plan.clip,
        "seed": stage.seed,
    }
