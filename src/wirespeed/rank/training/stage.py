"""Trainers as the cases need them: all kept alive where memory allows, else made anew each turn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from wirespeed.node.limits import memory_available_bytes
from wirespeed.plan import TrainCase, TrainPlan
from wirespeed.rank.place import Place
from wirespeed.rank.time_limit import TimeLimit
from wirespeed.rank.training.failures import (
    CaseFull,
    FaultInjection,
    NoMemory,
    collectives_begun,
    free_what_is_left,
    reason_of,
    unless_full,
)
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup, Trainer
from wirespeed.training.strategies.registry import STRATEGIES, build_of

if TYPE_CHECKING:
    from wirespeed.training.loading import Loader
    from wirespeed.training.step import Precision, Stepper

T = TypeVar("T")


_STATE_BYTES = 20
"""A parameter element with its gradient, AdamW's two moments and a bucket, in float32."""
_SHARE = 0.4
"""Of the free memory that trainers may keep; the rest is for activations."""
BUILD_BOUND_S = 600.0
"""DeepSpeed compiles an extension when it is first used."""
_BUILD_SKEW_S = 60.0
"""So much later than another a rank may be with making its trainer."""


_OPTIMIZERS: dict[str, Any] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(slots=True)
class Act:
    """A trainer with its step, ready to run on this rank."""

    trainer: Trainer
    step: "Stepper"
    number: int = 0

    def run(self) -> "Any":
        """One step; each has batches of its own."""
        self.number += 1
        return self.step(self.number)


class Stage:
    """Makes acts of one plan's cases; every method is collective over the whole world."""

    def __init__(
        self, place: Place, plan: TrainPlan, model: ModelSpec, seed: int, faults: FaultInjection
    ) -> None:
        self.place, self.plan, self.model, self.seed = place, plan, model, seed
        self.faults = faults
        self.patience_s = 15.0
        """A rank whose memory ran out waits so long for the others at the step's end."""
        self.limit = TimeLimit(place, None)
        """Of all measuring."""
        self.on: TrainCase | None = None
        """The case whose trainer was used last."""
        self._groups: dict[int, dist.ProcessGroup | None] = {}
        self._kept: dict[TrainCase, Act | None] = {}
        self._loaders: dict[int, Loader] = {}
        """By samples of a batch: all cases of as many take their batches from the same."""
        self.keeps = self._fits_all()

    def group(self, ranks: int) -> dist.ProcessGroup | None:
        """The first `ranks` ranks; None on the others."""
        if ranks not in self._groups:
            if ranks == self.place.world_size:
                self._groups[ranks] = dist.group.WORLD
            else:
                made = dist.new_group(list(range(ranks)))
                self._groups[ranks] = made if self.place.rank < ranks else None
        return self._groups[ranks]

    @contextmanager
    def act(self, case: TrainCase) -> Iterator[Act | None]:
        """The case's trainer; None on a rank that it leaves out."""
        self.on = case
        if case in self._kept:
            yield self._kept[case]
            return
        act = unless_full(lambda: self._make(case), lambda why: self._full(why, _BUILD_SKEW_S))
        self.share(0.0)  # all have made theirs, or none goes on
        if self.keeps:
            self._kept[case] = act
            yield act
            return
        try:
            yield act
        finally:
            if act is not None:
                act.trainer.close()
            del act
            free_what_is_left()

    def attempt(self, case: TrainCase, work: "Callable[[], T]") -> "T":
        """What `work` gives, every step of which ends with `share`.

        CaseFull where memory ran out in it: on all ranks, with nothing left of the case's trainer.
        NoMemory: it ran out here, and the others wait for this rank in a collective.
        """
        self.on = case
        try:
            done: list[T] = []
            unless_full(lambda: done.append(work()), lambda why: self._full(why, self.patience_s))
            return done[0]
        except CaseFull as full:
            told = full.reasons
        self._drop(case)
        raise CaseFull(told)

    def close(self) -> None:
        """Nothing of the trainers stays: what hooks and modules hold in circles is collected, too."""
        for act in self._kept.values():
            if act is not None:
                act.trainer.close()
        self._kept.clear()
        free_what_is_left()

    def end(self) -> None:
        """Workers of the data loaders have nothing more to do."""
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()

    def _drop(self, case: TrainCase) -> None:
        act = self._kept.pop(case, None)
        if act is not None:
            act.trainer.close()
        del act
        free_what_is_left()

    def setup(self, case: TrainCase, *, samples: int | None = None) -> Setup | None:
        """What the strategy gets; `samples`: another number of samples in a micro batch."""
        group = self.group(case.ranks)
        if group is None:
            return None
        each = case.samples // case.ranks // self.plan.micro_batches
        return Setup(
            group=group,
            device=self.place.device,
            optimizer_class=_OPTIMIZERS[self.plan.optimizer],
            optimizer_options={"lr": self.plan.learning_rate},
            bucket_mb=case.bucket_mb,
            variant=STRATEGIES[case.strategy].variant,
            micro_batches=self.plan.micro_batches,
            samples=samples or each,
            nodes=self.place.hosts[: case.ranks],
        )

    def _make(self, case: TrainCase) -> Act | None:
        from wirespeed.training.step import Stepper

        self.place.busy(BUILD_BOUND_S)
        try:
            setup = self.setup(case)
            if setup is None:
                return None
            torch.manual_seed(self.seed)
            trainer = self.builder(case)(self.model.build(), setup)
            batches = self._batches(setup.samples)
        finally:
            self.place.busy(None)
        step = Stepper(
            trainer,
            self.faults.model(self.model),
            batches,
            rank=self.place.rank,
            device=self.place.device,
            micro_batches=self.plan.micro_batches,
            precision=precision(self.plan),
            clip=self.plan.clip,
            share=self.share,
        )
        return Act(trainer, step)

    def builder(self, case: TrainCase) -> Build:
        """How this rank makes the case's trainer."""
        return self.faults.build(build_of(case.strategy))

    def share(self, loss: float) -> list[float]:
        """Every rank's loss; ranks that a case leaves out call it with 0 for each of its steps.

        CaseFull where some rank's memory ran out in that step; NoMemory where that left it behind.
        """
        rows = self.place.control.matrix([loss, 0.0, float(collectives_begun())])
        self._unless_full(rows, "")
        every: list[float] = rows[:, 0].tolist()
        return every

    def agree(self, case: TrainCase, holds: bool) -> bool:
        """Whether it holds on every rank; where not, ranks that took another course end the run.

        NoMemory: some rank began fewer collectives than others, or this one waited for them in vain.
        """
        self.on = case
        row = [0.0, float(holds), float(collectives_begun())]
        try:
            rows = self.place.control.matrix(row, within_s=None if holds else self.patience_s)
        except TimeoutError:
            raise self._alone(self.place.rank, "its batch did not fit") from None
        held = rows[:, 1].tolist()
        if not all(held) and len(set(rows[: case.ranks, 2].tolist())) > 1:
            raise self._alone(held.index(0.0), "its batch did not fit")
        return all(held)

    def _full(self, reason: str, within_s: float) -> None:
        """This rank's memory ran out: always raises."""
        try:
            row = [0.0, 1.0, float(collectives_begun())]
            rows = self.place.control.matrix(row, within_s=within_s)
        except TimeoutError:
            raise self._alone(self.place.rank, reason) from None
        self._unless_full(rows, reason)

    def _unless_full(self, rows: torch.Tensor, reason: str) -> None:
        """rows: by rank (loss, whether its memory ran out, collectives that it has begun)."""
        full = [rank for rank, one in enumerate(rows[:, 1].tolist()) if one]
        if not full:
            return
        reasons = self.place.control.objects(reason, str)
        ranks = self.on.ranks if self.on else self.place.world_size
        if len(set(rows[:ranks, 2].tolist())) > 1:
            raise self._alone(full[0], reasons[full[0]])
        raise CaseFull([(rank, reasons[rank]) for rank in full])

    def alone(self, error: BaseException) -> NoMemory:
        """What to end the run with where memory ran out on this rank outside of any attempt."""
        return self._alone(self.place.rank, reason_of(error))

    def _alone(self, rank: int, reason: str) -> NoMemory:
        label = self.on.label if self.on else "training"
        return NoMemory(rank, label, reason)

    def _batches(self, samples: int) -> Callable[[int, int], Batch]:
        """Every rank, step and micro batch has data of its own."""
        micro, ranks = self.plan.micro_batches, self.place.world_size
        if self.plan.data_workers is not None:
            return self._loader(samples, self.plan.data_workers)

        def batch(step: int, which: int) -> Batch:
            number = (step * micro + which) * ranks + self.place.rank
            return self.model.batch(self.seed + number, samples)

        return batch

    def _loader(self, samples: int, workers: int) -> "Loader":
        from wirespeed.training.loading import Loader

        if samples not in self._loaders:
            seed = self.seed + self.place.rank
            self._loaders[samples] = Loader(self.model, samples, workers, seed)
        return self._loaders[samples]

    def _fits_all(self) -> bool:
        """Whether all cases' trainers may live at once; decided for all ranks alike."""
        needed = len(self.plan.cases) * _STATE_BYTES * self.model.parameters
        share = len(self.place.sharers(self.place.rank))
        return self.place.control.all_true(needed * share < _SHARE * free_bytes(self.place))


def free_bytes(place: Place) -> float:
    """Of the GPU, or of this node's memory."""
    if place.device.type == "cuda":
        return float(torch.cuda.mem_get_info(place.device)[0])
    return float(memory_available_bytes())


def precision(plan: TrainPlan) -> "Precision":
    """The plan's, which the command line has checked, as the step knows it."""
    from typing import get_args

    from wirespeed.training.step import Precision

    found: Precision = next(one for one in get_args(Precision) if one == plan.precision)
    return found
