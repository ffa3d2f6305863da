"""Memory of one training step, measured: a trainer is made, steps once, and is watched in a second.

Everything from the model's making on is in the ledger (ledger.py), so that what a strategy set
aside at its start is known too. The first step brings the optimizer's state into being; the second
is the one that is told about.

A strategy's attribute `optimizer` (a torch optimizer, or what wraps one) is looked at first.
"""

import ctypes
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from wirespeed.model.training_records import TrainingMemory
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup, Trainer
from wirespeed.training.memory.ledger import KINDS, Ledger
from wirespeed.training.step import Precision, Stepper

_SENT = ("communication",)
_WRAPPED = ("optimizer", "optim", "_optimizer", "_optim", "local_optimizer")
"""Where wrappers keep what they wrap: DeepSpeed's `optimizer`, ZeroRedundancyOptimizer's `optim`."""


def measure_memory(
    spec: ModelSpec,
    build: Build,
    setup: Setup,
    *,
    seed: int = 1,
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
            ledger.mark(map(local, trainer.model.parameters()), "parameters", over=_SENT)
            step = Stepper(
                _Watched(trainer, ledger, allocator),
                replace(spec, loss=partial(_watched_loss, spec, ledger)),
                lambda number, micro: spec.batch(seed + micro, setup.samples),
                rank=0,
                device=setup.device,
                micro_batches=setup.micro_batches,
                precision=precision,
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
    with _gathered(model, lambda p: ledger.mark([p], "communication")), ledger.saved(local):
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


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard of it, where it is sharded."""
    shard = getattr(tensor, "ds_tensor", None)
    if isinstance(shard, torch.Tensor):
        return shard
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor


def gradients_of(trainer: Trainer) -> list[torch.Tensor]:
    """What the optimizer's step is going to read; to be asked between finish and step."""
    own = [p.grad for p in trainer.model.parameters() if p.grad is not None]
    theirs = (p.grad for one in optimizers_of(trainer) for p in _held(one) if p.grad is not None)
    return [local(gradient) for gradient in (*own, *theirs, *_averaged(trainer))]


def optimizer_tensors(trainer: Trainer) -> list[torch.Tensor]:
    """State, and the parameters that the optimizer steps: the model's own or copies of them."""
    found: list[torch.Tensor] = []
    for one in optimizers_of(trainer):
        state = getattr(one, "state", None)
        values = tree_iter(list(state.values())) if isinstance(state, Mapping) else ()
        found += [local(value) for value in values if isinstance(value, torch.Tensor)]
        found += [local(parameter) for parameter in _held(one)]
    return found


def optimizers_of(trainer: Trainer) -> list[object]:
    """The trainer's optimizers, with those that they wrap."""
    told = getattr(trainer, "optimizer", None)
    near = (*_attributes(trainer), getattr(trainer.model, "optimizer", None))
    waiting = [told] if told is not None else [v for v in near if hasattr(v, "param_groups")]
    found: list[object] = []
    while waiting:
        one = waiting.pop(0)
        if not any(one is known for known in found):
            found.append(one)
            inner = (getattr(one, name, None) for name in _WRAPPED)
            waiting += [each for each in inner if hasattr(each, "param_groups")]
    return found


def _held(optimizer: object) -> Iterator[torch.Tensor]:
    """Parameters that it steps; some (DeepSpeed's stage 3) are in a group during the step only."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]
    state = getattr(optimizer, "state", None)
    if isinstance(state, Mapping):
        yield from (key for key in state if isinstance(key, torch.Tensor))


def _averaged(trainer: Trainer) -> Iterator[torch.Tensor]:
    """DeepSpeed's ZeRO keeps this rank's part of the gradients apart from the parameters."""
    for one in optimizers_of(trainer):
        kept: Any = getattr(one, "averaged_gradients", None) or ()
        yield from (value for value in tree_iter(kept) if isinstance(value, torch.Tensor))


def _attributes(thing: object) -> Iterator[object]:
    """Values of its attributes, whether in slots or not."""
    yield from getattr(thing, "__dict__", {}).values()
    for kind in type(thing).__mro__:
        slots: str | Iterable[str] = getattr(kind, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield getattr(thing, name)


def give_back_freed() -> None:
    """Let the kernel have what the allocator keeps; nothing where the C library cannot (musl)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_highest_resident(process: Path = Path("/proc/self")) -> bool:
    """Let the high-water mark start anew; False where the kernel does not let us.

    proc_pid_status(5): VmHWM is the largest resident size; proc_pid_clear_refs(5): writing 5 into
    clear_refs sets it back to the present size. That size holds what glibc keeps of memory that was
    freed, which malloc_trim(3) gives back: without it every step after the largest one seems as large.
    """
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def highest_resident(process: Path = Path("/proc/self")) -> int | None:
    """Bytes; None where the kernel does not tell."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return None
    sizes = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    kilobytes = next(sizes, None)
    return None if kilobytes is None else int(kilobytes) * 1024
