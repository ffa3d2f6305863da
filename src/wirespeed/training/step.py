"""One training step over a trainer, with a clock on each of its parts; loss scaling for float16.

    for each micro batch:  batch from its source (data), loss (forward), trainer.backward (backward)
    trainer.finish (synchronise), unscaling, clipping and trainer.step (optimizer)

On a CPU the clock is `time.perf_counter`. On CUDA the parts are taken by events on the current stream,
which cost nothing until the device is synchronised at the step's end; the whole step is then the
host's time between two moments when the device was idle, so that it includes streams of all kinds.

Each loss is divided by the number of micro batches before its backward pass, so that the gradients
are the mean over the whole batch.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import torch

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import Batch, ModelSpec, Trainer
from wirespeed.training.trace import Span


class _StandIn(torch.optim.Optimizer):
    """A trainer as an optimizer; never initialised as one, because it has no state of its own."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def param_groups(self) -> list[dict[str, object]]:  # type: ignore[override]
        return [{"params": [p for p in self._trainer.model.parameters() if p.requires_grad]}]

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self._trainer.step()


class LossScale:
    """A growing and shrinking scale that keeps float16 gradients from vanishing."""

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        """CannotMeasure: the device has no loss scaling."""
        self._trainer = trainer
        self.scaler = torch.amp.GradScaler(device.type)
        if not self.scaler.is_enabled():
            raise CannotMeasure(
                f"torch has no loss scaling on {device.type}, and fp16 needs it",
                expected="a device with GradScaler",
                next="wirespeed train --precision bf16",
            )
        self._stand_in = _StandIn(trainer)

    @property
    def scale(self) -> float:
        return self.scaler.get_scale()

    def step(self, clip: float | None) -> bool:
        """Unscale, clip and step; False: a gradient was not finite, so nothing but the scale moved."""
        if all(one.grad is None for one in self._stand_in.param_groups[0]["params"]):  # type: ignore[attr-defined]
            raise CannotMeasure(
                "this strategy keeps no gradients on the parameters, so fp16 cannot unscale them",
                next="wirespeed train --precision bf16",
            )
        before = self.scale
        self.scaler.unscale_(self._stand_in)
        if clip is not None:
            self._trainer.clip(clip)
        self.scaler.step(self._stand_in)
        self.scaler.update()
        stepped = self.scale >= before
        if not stepped:
            self._trainer.model.zero_grad(set_to_none=True)
        return stepped


Precision = Literal["float32", "bf16", "fp16"]

_Part = tuple[str, float, float]
"""(name, begin, end) on the host's clock."""

LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LossNotFinite(CannotMeasure):
    """Training stopped: the loss is NaN or infinite."""

    def __init__(self, losses: Sequence[tuple[int, float]], step: int) -> None:
        """Losses with the ranks that had them, at least one."""
        who = ", ".join(f"{loss} on rank {rank}" for rank, loss in losses[:4])
        more = f" and {len(losses) - 4} more ranks" if len(losses) > 4 else ""
        super().__init__(
            f"the loss of step {step} is {who}{more}",
            expected="a finite loss on every rank",
            next="wirespeed train --lr 1e-4 --clip 1 --dtype float32",
        )
        self.step = step
        self.ranks = tuple(rank for rank, _ in losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one step on this rank."""

    step: float
    """From begin to end; what lies between the parts makes it a little more than their sum."""
    data: float
    """Getting batches and taking them to the device."""
    forward: float
    backward: float
    synchronise: float
    """`Trainer.finish`: for overlapping strategies only what was not done by then."""
    optimizer: float
    """Unscaling, clipping and the optimizer's step, with what these send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step took, and what it gave."""

    number: int
    times: StepTimes
    loss: float
    """Mean over this rank's micro batches."""
    skipped: bool
    """Whether the loss scale was too large, so that the optimizer did not step (fp16 only)."""
    phases: tuple[Span, ...]
    """Every part on the host's clock, lane `step`."""


class _HostMarks:
    """Ends of parts, each with the name of the part that ends there."""

    def begin(self) -> None:
        self._names: list[str] = []
        self._times = [perf_counter()]

    def mark(self, name: str) -> None:
        self._times.append(perf_counter())
        self._names.append(name)

    def end(self) -> tuple[float, list[_Part]]:
        """Seconds of the whole, and the parts."""
        times = self._times
        parts = list(zip(self._names, times[:-1], times[1:], strict=True))
        return perf_counter() - times[0], parts


class _CudaMarks(_HostMarks):
    """Events are made once and used again in every step."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def begin(self) -> None:
        self._names: list[str] = []
        torch.cuda.synchronize(self._device)
        self._begin = perf_counter()
        self._record(0)

    def mark(self, name: str) -> None:
        self._names.append(name)
        self._record(len(self._names))

    def end(self) -> tuple[float, list[_Part]]:
        torch.cuda.synchronize(self._device)
        seconds = perf_counter() - self._begin
        first = self._events[0]
        offsets = [first.elapsed_time(one) / 1e3 for one in self._events[: len(self._names) + 1]]
        times = [self._begin + offset for offset in offsets]
        return seconds, list(zip(self._names, times[:-1], times[1:], strict=True))

    def _record(self, index: int) -> None:
        while len(self._events) <= index:
            self._events.append(torch.cuda.Event(enable_timing=True))
        self._events[index].record(torch.cuda.current_stream(self._device))


class Stepper:
    """Runs step after step of one trainer on this rank."""

    def __init__(
        self,
        trainer: Trainer,
        model: ModelSpec,
        batches: Callable[[int, int], Batch],
        *,
        rank: int,
        device: torch.device,
        micro_batches: int = 1,
        precision: Precision = "float32",
        clip: float | None = None,
        share: Callable[[float], Sequence[float]] | None = None,
    ) -> None:
        """`batches(step, micro)` gives a batch on the CPU.

        `share` gives every rank's value, by rank, and is collective: with it all ranks stop together
        when one of them meets a loss that is not finite. It is called once a step, off the clock.
        CannotMeasure: the device has no such precision.
        """
        self._trainer = trainer
        self._model = model
        self._batches = batches
        self._rank = rank
        self._device = device
        self._micro_batches = micro_batches
        self._dtype = LOWER.get(precision)
        self._scale = LossScale(trainer, device) if precision == "fp16" else None
        self._clip = clip
        self._share = share
        self._marks = _CudaMarks(device) if device.type == "cuda" else _HostMarks()

    def __call__(self, number: int) -> Step:
        """One step; LossNotFinite when its loss is NaN or infinite."""
        marks = self._marks
        marks.begin()
        last = self._micro_batches - 1
        losses = [self._micro(number, micro, last=micro == last) for micro in range(last + 1)]
        self._trainer.finish()
        marks.mark("synchronise")
        skipped = self._optimize()
        marks.mark("optimizer")
        seconds, parts = marks.end()
        loss = float(torch.stack(losses).mean())
        self._stop_unless_finite(loss, number)
        return Step(
            number=number,
            times=_times(seconds, parts),
            loss=loss,
            skipped=skipped,
            phases=tuple(Span(self._rank, "step", *part) for part in parts),
        )

    def scale_state(self) -> dict[str, Any]:
        """The loss scale's numbers, for a checkpoint; {} where there is none."""
        return dict(self._scale.scaler.state_dict()) if self._scale is not None else {}

    def load_scale(self, state: dict[str, Any]) -> None:
        if self._scale is not None and state:
            self._scale.scaler.load_state_dict(state)

    def _micro(self, number: int, micro: int, *, last: bool) -> torch.Tensor:
        """Forward and backward of one micro batch; its loss, detached."""
        mark = self._marks.mark
        inputs, targets = self._batches(number, micro)
        batch = inputs.to(self._device), targets.to(self._device)
        mark("data")
        # Forward lies within no_sync too: torch's DDP looks at it there.
        with nullcontext() if last else self._trainer.no_sync():
            with torch.autocast(self._device.type, self._dtype, enabled=self._dtype is not None):
                loss = self._model.loss(self._trainer.model, batch)
            mark("forward")
            share = loss / self._micro_batches if self._micro_batches > 1 else loss
            self._trainer.backward(self._scale.scaler.scale(share) if self._scale else share)
        mark("backward")
        return loss.detach().float()

    def _optimize(self) -> bool:
        """Clip and step; whether the step was skipped."""
        if self._scale is not None:
            return not self._scale.step(self._clip)
        if self._clip is not None:
            self._trainer.clip(self._clip)
        self._trainer.step()
        return False

    def _stop_unless_finite(self, loss: float, number: int) -> None:
        known = enumerate(self._share(loss)) if self._share else [(self._rank, loss)]
        bad = [(rank, value) for rank, value in known if not math.isfinite(value)]
        if bad:
            raise LossNotFinite(bad, number)


def _times(seconds: float, parts: list[_Part]) -> StepTimes:
    sums = dict.fromkeys(("data", "forward", "backward", "synchronise", "optimizer"), 0.0)
    for name, begin, end in parts:
        sums[name] += end - begin
    return StepTimes(step=seconds, **sums)
