"""Checkpoints of a whole world: all ranks have one, or none counts; collective throughout.

Their folder is locked, by rank 0 and, where ranks of other nodes write to a folder of that name of
their own, by the first of those. Each checkpoint names its job, which goes on with `--resume`.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from wirespeed.errors import CannotMeasure, UsageError, WirespeedError, WorldError
from wirespeed.node.lock import Held, Lock, Owner
from wirespeed.plan import LastingPlan
from wirespeed.rank.place import Place
from wirespeed.rank.training.stage import Act, Stage
from wirespeed.training.checkpoints.files import CheckpointFiles, Refused
from wirespeed.training.strategies.registry import STRATEGIES

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
        import_module("wirespeed.training.checkpoints.state")

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
        from wirespeed.training.checkpoints.state import (
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
        from wirespeed.training.checkpoints.state import from_bytes

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
        from wirespeed.training.checkpoints.state import load_own, load_part, load_shared

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
