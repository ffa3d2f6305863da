"""Each case once before anything is timed: what does not fit is left out, and said."""

from typing import Any

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.plan import TrainCase
from wirespeed.ranks.training.memory_end import CaseFull, NoMemory, does_not_fit
from wirespeed.ranks.training.space import limit_bytes, predicted
from wirespeed.ranks.training.stage import Stage
from wirespeed.units import format_size

__all__ = ["rehearse"]

_DONE = "done"


def rehearse(stage: Stage, case: TrainCase) -> dict[str, Any] | None:
    """A `trouble` record where the case does not fit in memory on some rank; collective.

    It is foretold first, where there is a formula: on CPUs the kernel ends a process, and not always
    the right one, rather than refuse it memory. Then one step is made.
    """
    setup, limit = stage.setup(case), limit_bytes(stage)
    foreseen = predicted(stage, case, setup)
    if not stage.place.control.all_true(foreseen is None or foreseen.peak <= limit):
        needs = f"a step needs {format_size(foreseen.peak)} by the formulas" if foreseen else ""
        return does_not_fit(case, saw=needs, limit=limit)
    try:
        end = stage.attempt(case, lambda: _first_step(stage, case))
    except CaseFull as full:
        return does_not_fit(case, saw=f"in its first step {full.saw}", limit=limit)
    ends = stage.place.control.objects(end, str)
    refused = [end for end in ends if end != _DONE]
    return _cannot(case, refused[0]) if refused else None


def _first_step(stage: Stage, case: TrainCase) -> str:
    """How this rank's first step ended; a reason where the strategy cannot be used here."""
    from wirespeed.training.step import LossNotFinite

    try:
        with stage.act(case) as act:
            stage.share(0.0) if act is None else act.run()
    except (CannotMeasure, UsageError) as error:
        if isinstance(error, (LossNotFinite, NoMemory)):
            raise
        return error.saw
    return _DONE


def _cannot(case: TrainCase, reason: str) -> dict[str, Any]:
    return {
        "id": "TRAIN-004",
        "status": "not_checked",
        "title": f"{case.label} was left out",
        "because": reason,
    }
