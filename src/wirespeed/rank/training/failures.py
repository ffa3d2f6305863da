"""What goes wrong with training on a rank: memory that runs out, and faults acted out on request.

Memory that runs out in the middle is agreed on where that can be, else named and ended.

A rank whose allocator refuses leaves its step, while the others may wait for it in a collective. It
goes to where every step ends, where ranks tell each other their losses (`Stage.share`), and says there
that it is full. If all come there, having begun equally many collectives, the process groups are as
before: the case is left out and the others go on (`CaseFull`). If not, nobody can answer the collective
that the others are in, so the rank says what happened and ends the run (`NoMemory`).
"""

import errno
import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.errors import CannotMeasure
from wirespeed.model.units import format_size
from wirespeed.plan import TrainCase
from wirespeed.rank.faulty_engine import PROCESS_FAULTS, Fault, strike
from wirespeed.rank.training.findings import trouble
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup, Trainer

if TYPE_CHECKING:
    import torch
    from torch import nn


T = TypeVar("T")

_SIGNS = (
    "DefaultCPUAllocator",
    "std::bad_alloc",
    "out of memory",
    "Cannot allocate memory",
    "ALLOC_FAILED",
)
"""torch's CPU allocator, C++, CUDA, the kernel's ENOMEM, cuBLAS and cuDNN."""
_LONGEST = 300


class CaseFull(Exception):
    """Memory ran out in a step of one case; raised on all ranks alike, which may go on with others."""

    def __init__(self, reasons: Sequence[tuple[int, str]]) -> None:
        """(rank, what its allocator said) of those whose memory ran out."""
        super().__init__("; ".join(reason for _, reason in reasons))
        self.reasons = tuple(reasons)
        self.saw = _who(reasons)


class NoMemory(CannotMeasure):
    """Memory ran out on a rank where the others cannot go on without it."""

    def __init__(self, rank: int, label: str, reason: str) -> None:
        super().__init__(
            f"memory ran out on rank {rank} in {label}, and the others cannot go on without it",
            expected="enough memory on every rank",
        )
        self.rank = rank
        self.reason = f"{_who([(rank, reason)])}; the others cannot go on without it"


def memory_ran_out(error: BaseException) -> bool:
    """Whether an exception says that memory was refused, on the CPU or a GPU."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
    return told or isinstance(error, MemoryError)


def unless_full(work: Callable[[], T], full: Callable[[str], None]) -> T | None:
    """What `work` gives; where memory runs out in it, `full` is called with what the allocator said.

    That is done after the exception is gone, and with its frames the tensors that they held.
    """
    try:
        return work()
    except (RuntimeError, MemoryError, OSError) as error:
        if not memory_ran_out(error):
            raise
        reason = reason_of(error)
    free_what_is_left()
    full(reason)
    return None


def free_what_is_left() -> None:
    """Modules and their hooks hold each other in circles; the GPU's allocator keeps what it had."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def collectives_begun() -> int:
    """On this rank, over all of its process groups: equal on all ranks that took the same course."""
    import torch.distributed as dist

    begun = 0
    for group in list(dist.distributed_c10d._world.pg_map):
        number = getattr(group, "_get_sequence_number_for_group", None)
        with suppress(RuntimeError):  # a backend that does not count
            begun += number() if number else 0
    return begun


def does_not_fit(
    case: TrainCase,
    *,
    saw: str,
    limit: int | None,
    rank: int = -1,
    kept: str = "and was left out",
) -> dict[str, Any]:
    """A `trouble` record; `limit`: bytes that one rank may use, where that is known."""
    each = max(1, case.samples // case.ranks)
    return trouble(
        "does_not_fit",
        rank=rank,
        case=case,
        each=each,
        kept=kept,
        saw=saw,
        expected=f"at most {format_size(limit)} for one rank"
        if limit is not None
        else "memory for one step on every rank",
        smaller=f"--batch {max(1, each // 2) * case.ranks}" if each > 1 else "a smaller model",
    )


def reason_of(error: BaseException) -> str:
    """The allocator's own words, without where in its source it is; one line."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    for sign in ("DefaultCPUAllocator", "CUDA out of memory"):
        line = line[line.find(sign) :] if sign in line else line
    return line.strip()[:_LONGEST]


def _who(reasons: Sequence[tuple[int, str]]) -> str:
    ranks = ", ".join(str(rank) for rank, _ in reasons[:8]) + (" …" if len(reasons) > 8 else "")
    word = "rank" if len(reasons) == 1 else "ranks"
    return f"memory ran out on {word} {ranks}: {reasons[0][1]}"


class FaultInjection:
    """What this rank acts out; nothing, mostly."""

    def __init__(self, faults: Sequence[str], rank: int) -> None:
        parsed = (Fault.parse(text) for text in faults)
        self._mine = [fault for fault in parsed if fault.rank == rank]
        self._turns = 0

    def turn(self) -> None:
        """A turn begins."""
        for fault in self._mine:
            if fault.kind in PROCESS_FAULTS and fault.after == self._turns:
                strike(fault)
        self._turns += 1

    def build(self, build: Build) -> Build:
        if not any(fault.kind == "twice" for fault in self._mine):
            return build

        def spoiled(model: "nn.Module", setup: Setup) -> Trainer:
            trained = [one for one in model.parameters() if one.requires_grad]
            trained[-1].register_hook(lambda gradient: 2 * gradient)
            return build(model, setup)

        return spoiled

    def model(self, model: ModelSpec) -> ModelSpec:
        after = [fault.after for fault in self._mine if fault.kind == "nan"]
        if not after:
            return model
        steps = count()

        def spoiled(module: "nn.Module", batch: Batch) -> "torch.Tensor":
            loss = model.loss(module, batch)
            return loss * float("nan") if next(steps) >= after[0] else loss

        return replace(model, loss=spoiled)
