"""Each case once before anything is timed: what does not fit is left out, and said."""

from typing import Any

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.plan import TrainCase
from wirespeed.ranks.training.space import limit_bytes, predicted
from wirespeed.ranks.training.stage import Stage
from wirespeed.units import format_size

__all__ = ["rehearse"]

_DONE, _FULL = "done", "no memory"


def rehearse(stage: Stage, case: TrainCase) -> dict[str, Any] | None:
    """A `trouble` record where the case does not fit in memory on some rank; collective.

    It is foretold first, where there is a formula: on CPUs the kernel ends a process, and not always
    the right one, rather than refuse it memory. Then one step is made; memory that runs out there
    runs out on all ranks, which do the same with the same sizes.
    """
    setup, limit = stage.setup(case), limit_bytes(stage)
    foreseen = predicted(stage, case, setup)
    if not stage.place.control.all_true(foreseen is None or foreseen.peak <= limit):
        needs = f"a step needs {format_size(foreseen.peak)} by the formulas" if foreseen else ""
        return _too_large(case, limit, needs)
    ends = stage.place.control.objects(_first_step(stage, case))
    refused = [end for end in ends if end not in (_DONE, _FULL)]
    if refused:
        return _cannot(case, refused[0])
    return _too_large(case, limit, "") if _FULL in ends else None


def _first_step(stage: Stage, case: TrainCase) -> str:
    """How this rank's first step ended; a reason where the strategy cannot be used here."""
    import torch

    from wirespeed.training.step import LossNotFinite

    try:
        with stage.act(case) as act:
            stage.share(0.0) if act is None else act.run()
    except (torch.OutOfMemoryError, MemoryError):
        return _FULL
    except (CannotMeasure, UsageError) as error:
        if isinstance(error, LossNotFinite):
            raise
        return error.saw
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):
            raise
        return _FULL
    return _DONE


def _cannot(case: TrainCase, reason: str) -> dict[str, Any]:
    return {
        "id": "TRAIN-004",
        "status": "not_checked",
        "title": f"{case.label} was left out",
        "because": reason,
    }


def _too_large(case: TrainCase, limit: int, needs: str) -> dict[str, Any]:
    return {
        "id": "TRAIN-003",
        "status": "warn",
        "title": f"{case.label} does not fit in memory, and was left out",
        "saw": needs or "memory ran out in its first step",
        "expected": f"at most {format_size(limit)} for one rank",
        "fix": "a smaller --batch, more --micro-batches, --dtype bf16, or a strategy that shards more",
        "next": f"wirespeed train --strategy {case.strategy} --fit",
    }
