"""Memory of one training step, measured: a trainer is made, steps once, and is watched in a second.

Everything from the model's making on is in the ledger (ledger.py), so that what a strategy set
aside at its start is known too. The first step brings the optimizer's state into being; the second
is the one that is told about.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from wirespeed.model.training_records import TrainingMemory
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup, Trainer
from wirespeed.training.memory.holdings import (
    give_back_freed,
    gradients_of,
    highest_resident,
    local,
    optimizer_tensors,
    parameters_of,
    reset_highest_resident,
)
from wirespeed.training.memory.ledger import KINDS, Ledger
from wirespeed.training.step import Precision, Stepper

_SENT = ("communication",)


def measure_memory(
    spec: ModelSpec,
    build: Build,
    setup: Setup,
    *,
    seed: int = 1,
    clip: float | None = None,
    precision: Precision = "float32",
) -> TrainingMemory:
    """Bytes of a step of this strategy on this rank; collective over `setup.group`.

    Each kind is the most that it came to at any time of the step. The kinds are not at their highest
    together (activations go while gradients come), so that their sum may exceed the peak; `other`
    is what else was alive at the peak. A storage is counted once, under one kind: gradients that
    lie in a bucket are gradients, a parameter saved for backward is a parameter.

    Takes `setup.micro_batches` batches of `setup.samples` samples. The trainer is made here and
    closed again. On CUDA nothing else may allocate meanwhile. OutOfMemoryError passes through.
    """
    if setup.device.type == "cuda":
        gc.collect()
        torch.cuda.synchronize(setup.device)
    ledger = Ledger(setup.device)
    allocator = _Allocator(setup.device, ledger)
    with ledger:
        trainer = build(spec.build(), setup)
        try:
            allocator.read("started")
            # What was sent once, such as rank 0's values at the start, is still what it is.
            ledger.mark(parameters_of(trainer), "parameters", over=_SENT)
            step = Stepper(
                _Watched(trainer, ledger, allocator),
                replace(spec, loss=partial(_watched_loss, spec, ledger)),
                lambda number, micro: spec.batch(seed + micro, setup.samples),
                rank=0,
                device=setup.device,
                micro_batches=setup.micro_batches,
                precision=precision,
                clip=clip,
            )
            step(0)
            ledger.mark(optimizer_tensors(trainer), "optimizer", over=_SENT)
            return _second(step, ledger, allocator)
        finally:
            trainer.close()


def _second(step: Stepper, ledger: Ledger, allocator: "_Allocator") -> TrainingMemory:
    """The step in which the optimizer's state is there from the beginning."""
    allocator.begin()
    since = len(ledger.story.changes)
    step(1)
    most, resident = allocator.end()
    peak, highest, at_peak = ledger.story.highest(since)
    peak = peak if most is None else most
    known = sum(at_peak.get(kind, 0) for kind in KINDS)
    return TrainingMemory(
        **{kind: highest.get(kind, 0) for kind in KINDS},
        **allocator.points,
        other=max(peak - known, 0),
        peak=peak,
        resident=resident,
    )


class _Watched:
    """The trainer itself, but that gradients are told of when they are complete, and points are read."""

    def __init__(self, trainer: Trainer, ledger: Ledger, allocator: "_Allocator") -> None:
        self._trainer = trainer
        self._ledger = ledger
        self._allocator = allocator
        self.model = trainer.model
        self.no_sync = trainer.no_sync
        self.backward = trainer.backward
        self.clip = trainer.clip
        self.full_parameters = trainer.full_parameters
        self.close = trainer.close

    def finish(self) -> None:
        self._trainer.finish()
        self._ledger.mark(gradients_of(self._trainer), "gradients", over=_SENT)

    def step(self) -> None:
        self._allocator.read("before_optimizer")
        self._trainer.step()
        self._allocator.read("after_optimizer")


def _watched_loss(spec: ModelSpec, ledger: Ledger, model: nn.Module, batch: Batch) -> torch.Tensor:
    """The loss, with all that is saved for backward marked as activations."""
    ledger.mark((*batch, *map(local, model.buffers())), "other")

    def saved(tensor: torch.Tensor) -> torch.Tensor:
        ledger.mark([local(tensor)], "activations")
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor)
    with _gathered(model, lambda p: ledger.mark([p], "communication")), hooks:
        return spec.loss(model, batch)


@contextmanager
def _gathered(model: nn.Module, tell: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Tell of every parameter as its module sees it: whole, where a strategy gathers shards."""

    def look(module: nn.Module, _: object) -> None:
        for parameter in module.parameters(recurse=False):
            tell(parameter if not hasattr(parameter, "ds_tensor") else parameter.data)

    # Registered last, so that a strategy's own hooks have gathered by then.
    handles = [module.register_forward_pre_hook(look) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Allocator:
    """What is alive, and the peaks: by the allocator where it tells (CUDA), else by the ledger."""

    def __init__(self, device: torch.device, ledger: Ledger) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._before = torch.cuda.memory_allocated(device) if self._cuda else 0
        self._story = ledger.story
        self._since = 0
        self._most = 0
        self.points: dict[str, int] = {}
        """Bytes alive by point, and as `POINT_peak` the most since the point before."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(device)

    def begin(self) -> None:
        """The step begins: the peaks are counted from here."""
        self._most, self._since = 0, len(self._story.changes)
        if self._cuda:
            torch.cuda.synchronize(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            give_back_freed()
            reset_highest_resident()

    def read(self, point: str) -> None:
        """A point is reached: after the start, before the optimizer's step, or after it."""
        if self._cuda:
            alive, peak = self._read_device()
        else:
            alive, peak = self._story.alive(), self._story.highest(self._since)[0]
        self._since = len(self._story.changes)
        self.points |= {point: alive, f"{point}_peak": peak}

    def end(self) -> tuple[int | None, int | None]:
        """(peak above what was there before the trainer, resident size) in bytes, where known."""
        if not self._cuda:
            return None, highest_resident()
        self._read_device()
        return self._most, None

    def _read_device(self) -> tuple[int, int]:
        """(alive, the most since the last call), both without what was there before the trainer."""
        torch.cuda.synchronize(self._device)
        alive = torch.cuda.memory_allocated(self._device) - self._before
        peak = torch.cuda.max_memory_allocated(self._device) - self._before
        torch.cuda.reset_peak_memory_stats(self._device)
        self._most = max(self._most, peak)
        return alive, peak
