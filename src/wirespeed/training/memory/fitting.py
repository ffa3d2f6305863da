"""The largest batch of a strategy that memory allows, tried in earnest without bringing anything down.

On the CPU a batch is foretold before it is tried: an allocation that the kernel cannot serve ends
the process, or another's. On CUDA torch's allocator is held to the same limit on every rank, so
that all run out at the same place, where none is left waiting in a collective.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist

from wirespeed.errors import UsageError
from wirespeed.model.training_records import TrainingMemory
from wirespeed.training.contract import Build, ModelSpec, Setup
from wirespeed.training.memory.measured import measure_memory
from wirespeed.training.memory.predicted import Fit, largest_that_fits

_RESERVE = 0.05
"""Of the limit, for what lies outside of tensors (gloo's buffers, kernels' scratch space)."""
_MOST = 1 << 16
"""Samples of a micro batch that are tried at the most."""
_WORTH_COLLECTING = 1 << 26
"""Below so many bytes Python's own pace of collecting garbage will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFit:
    """The largest batch, and what was seen on the way."""

    samples: int
    """Of one micro batch on one rank; 0: not even one fits."""
    too_many: int | None
    """The fewest that did not fit; None: the search ended before."""
    limit_bytes: int
    """The least that any rank may use."""
    memory: TrainingMemory | None
    """On this rank, with `samples`; None where nothing fitted."""
    foretold: tuple[int, ...]
    """Numbers of samples that were refused by prediction, and not tried."""
    ran_out: tuple[int, ...]
    """Numbers of samples at which memory ran out."""
    ended: bool
    """The time was over before the search was."""


def fit_batch(
    spec: ModelSpec,
    build: Build,
    setup: Setup,
    *,
    limit_bytes: int | None = None,
    expect: Callable[[int], int] | None = None,
    within: float = 0.02,
    all_hold: Callable[[bool], bool] | None = None,
    within_s: float = math.inf,
) -> BatchFit:
    """The most samples of a micro batch with which a step stays below the limit; collective.

    limit_bytes: what a rank may use; None: what is free on the GPU (needed on the CPU).
    expect: samples -> bytes of the peak, for batches of which nothing has been measured yet.
    all_hold: whether it holds on every rank; None: asked in the setup's own group, where a rank that ran
    out alone is not understood by those that wait for it in the strategy's collectives.
    within_s: no further batch is tried once so many seconds are over on any rank.
    """
    end_s = time.monotonic() + within_s
    limit = _least(_limit(limit_bytes, setup.device), setup)
    all_hold = all_hold or (lambda holds: _least(int(holds), setup) > 0)
    trials = _Trials(spec, build, setup, limit, expect, all_hold)
    with _held_to(limit, setup.device):
        found = largest_that_fits(
            trials, most=_MOST, within=within, more=lambda: trials.all(time.monotonic() < end_s)
        )
    return trials.result(found)


@dataclass(slots=True)
class _Trials:
    """Whether a batch fits; every rank answers alike."""

    spec: ModelSpec
    build: Build
    setup: Setup
    limit: int
    expect: Callable[[int], int] | None
    all: Callable[[bool], bool]
    """Whether it holds on every rank."""
    measured: dict[int, TrainingMemory] = field(default_factory=dict)
    foretold: list[int] = field(default_factory=list)
    ran_out: list[int] = field(default_factory=list)

    def __call__(self, samples: int) -> bool:
        usable = self.limit * (1 - _RESERVE)
        on_cpu = self.setup.device.type == "cpu"
        if on_cpu and not self.all(self._foresight(samples) <= usable):
            self.foretold.append(samples)
            return False
        memory = self._tried(samples)
        if not self.all(memory is not None):
            self.ran_out.append(samples)
            return False
        if memory is None or not self.all(memory.peak <= usable):
            return False
        self.measured[samples] = memory
        if memory.peak > _WORTH_COLLECTING:
            # Wrappers are held by cycles; the next trainer is not to stand beside this one's rest.
            gc.collect()
        return True

    def result(self, found: Fit) -> BatchFit:
        return BatchFit(
            samples=found.samples,
            too_many=found.too_many,
            limit_bytes=self.limit,
            memory=self.measured.get(found.samples),
            foretold=tuple(self.foretold),
            ran_out=tuple(self.ran_out),
            ended=found.ended,
        )

    def _tried(self, samples: int) -> TrainingMemory | None:
        """The memory of a step, or None where it ran out."""
        try:
            return measure_memory(self.spec, self.build, replace(self.setup, samples=samples))
        except (torch.OutOfMemoryError, MemoryError):
            pass
        except RuntimeError as error:
            if "DefaultCPUAllocator" not in str(error):
                raise
        # The error is gone, and with its frames all that they held.
        gc.collect()
        if self.setup.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _foresight(self, samples: int) -> float:
        """Bytes of the peak with that many samples.

        The peak is the largest of several sums, each of which grows along a line, so the line
        through two measured points may turn out too flat: activations and what is expected steepen
        it. No sum grows by more than in proportion to the batch; that bounds it from above.
        """
        known = sorted(self.measured)
        if not known:
            return self.expect(samples) if self.expect else 0.0
        count, last = known[-1], self.measured[known[-1]]
        standing = last.parameters + last.optimizer
        bound = standing + (last.peak - standing) * samples / count
        slopes = [last.activations / count]
        if len(known) > 1:
            slopes.append((last.peak - self.measured[known[-2]].peak) / (count - known[-2]))
        if self.expect:
            slopes.append((self.expect(samples) - self.expect(count)) / (samples - count))
        if len(slopes) == 1:
            return bound
        return min(bound, last.peak + max(slopes) * (samples - count))


def _least(value: int, setup: Setup) -> int:
    """The smallest over the ranks."""
    if not dist.is_initialized():
        return value
    number = torch.tensor(value, dtype=torch.int64, device=setup.device)
    dist.all_reduce(number, dist.ReduceOp.MIN, group=setup.group)
    return int(number)


def _limit(given: int | None, device: torch.device) -> int:
    if given is not None and given <= 0:
        raise UsageError(f"a limit of {given} bytes", expected="the bytes that a rank may use")
    if device.type != "cuda":
        if given is None:
            raise UsageError("no limit of memory was given", expected="bytes that a rank may use")
        return given
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    return free if given is None else min(given, free)


@contextmanager
def _held_to(limit: int, device: torch.device) -> Iterator[None]:
    """No more than that above what is held already, on CUDA."""
    if device.type != "cuda":
        yield
        return
    total = torch.cuda.mem_get_info(device)[1]
    held = torch.cuda.memory_reserved(device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, (held + limit) / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
