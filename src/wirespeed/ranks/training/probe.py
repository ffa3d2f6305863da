"""A closer look at a few steps: communication time, and the timeline of one step."""

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from wirespeed.plan import TrainCase
from wirespeed.ranks.training.stage import Stage
from wirespeed.training.spans import Span

if TYPE_CHECKING:
    from wirespeed.training.comm_time import ObservedStep

__all__ = ["Probed", "probe"]

STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    comm: float
    """Median seconds a step in which a collective was under way, on the rank with the most."""
    fraction: float
    """Of that rank's steps under the profiler."""
    spans: tuple[Span, ...]
    """This rank's last step, an outer span with the case's name around it."""


def probe(stage: Stage, case: TrainCase) -> Probed:
    """A few more steps under the profiler; collective over the whole world."""
    from wirespeed.training.comm_time import observe

    place = stage.place
    place.busy(None)
    with stage.act(case) as act:
        if act is None:
            seen: list[ObservedStep] = []
            for _ in range(STEPS + 1):
                place.control.barrier()
                stage.share(0.0)
        else:
            phases: list[tuple[Span, ...]] = []

            def step() -> None:
                place.tick()
                phases.append(act.run().phases)

            seen = observe(
                step,
                steps=STEPS,
                rank=place.rank,
                device=place.device,
                barrier=place.control.barrier,
            )
            ends = [parts[-1].end_s for parts in phases[-STEPS:]]
            seen = [_until(one, end) for one, end in zip(seen, ends, strict=True)]
    comm = median(one.communication_s for one in seen) if seen else 0.0
    whole = median(one.end_s - one.begin_s for one in seen) if seen else 1.0
    rows = place.control.matrix([comm, whole])
    most = int(rows[:, 0].argmax())
    spans: tuple[Span, ...] = ()
    if seen:
        last = seen[-1]
        outer = Span(place.rank, "step", case.label, last.begin_s, last.end_s)
        spans = (outer, *phases[-1], *last.compute, *last.communication)
    return Probed(
        comm=float(rows[most, 0]),
        fraction=float(rows[most, 0] / rows[most, 1]),
        spans=tuple(replace(span, rank=place.rank) for span in spans),
    )


def _until(step: "ObservedStep", end_s: float) -> "ObservedStep":
    """The step up to the end of its last part: what ranks tell each other after it is no part of it."""
    return replace(
        step,
        end_s=end_s,
        communication=tuple(span for span in step.communication if span.begin_s < end_s),
        compute=tuple(span for span in step.compute if span.begin_s < end_s),
    )
