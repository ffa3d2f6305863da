"""Where a trainer keeps its tensors: parameters, gradients and optimizer state on this rank.

A strategy whose tensors lie elsewhere may have the attributes `optimizer` (a torch optimizer, or
what wraps one) and `gradients` (a function that returns tensors); both are looked at first.
"""

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from wirespeed.training.contract import Trainer

_WRAPPED = ("optimizer", "optim", "_optimizer", "_optim", "local_optimizer")
"""Where wrappers keep what they wrap: DeepSpeed's `optimizer`, ZeroRedundancyOptimizer's `optim`."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard of it, where it is sharded."""
    shard = getattr(tensor, "ds_tensor", None)
    if isinstance(shard, torch.Tensor):
        return shard
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor


def parameters_of(trainer: Trainer) -> list[torch.Tensor]:
    """The local part of all parameters, frozen ones too."""
    return [local(parameter) for parameter in trainer.model.parameters()]


def gradients_of(trainer: Trainer) -> list[torch.Tensor]:
    """What the optimizer's step is going to read; to be asked between finish and step."""
    told = getattr(trainer, "gradients", None)
    if callable(told):
        return [local(tensor) for tensor in told()]
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
    if (told := getattr(trainer, "optimizer", None)) is not None:
        first: Iterable[object] = told if isinstance(told, list | tuple) else [told]
    else:
        near = (*_attributes(trainer), getattr(trainer.model, "optimizer", None))
        first = [value for value in near if hasattr(value, "param_groups")]
    found: list[object] = []
    waiting = list(first)
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
        for value in tree_iter(kept):
            if isinstance(value, torch.Tensor):
                yield value


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
    for line in lines:
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return None
