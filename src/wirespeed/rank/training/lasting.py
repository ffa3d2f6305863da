"""Training by the clock, with checkpoints: steps until the time is over; every rank runs this alike.

Rank 0 tells what it does with `lasting` records, in seconds of its own clock; the session, which sees
world after world, makes the account. Rank 0's clock also decides for all when a checkpoint is due and
when the time is over: it goes around with the losses, so that it costs no message of its own.
"""

import random
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.plan import LastingPlan, Plan, TrainPlan
from wirespeed.rank.place import Place
from wirespeed.rank.steps import Reporter
from wirespeed.rank.training.checkpointing import Keeper
from wirespeed.rank.training.failures import FaultInjection, collectives_begun
from wirespeed.rank.training.findings import trouble
from wirespeed.rank.training.stage import BUILD_BOUND_S, Act, Stage

if TYPE_CHECKING:
    from wirespeed.training.step import Step


Tell = Callable[[str, dict[str, Any]], None]
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
    tell: Tell = heartbeat.record if place.rank == 0 else lambda kind, data: None
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
