"""What a rank tells of training that ended before its time, and of what there was no time for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.model.units import format_duration
from wirespeed.plan import TrainCase

if TYPE_CHECKING:
    from wirespeed.training.step import LossNotFinite

__all__ = ["fit_ended", "hardly_watched", "not_finite", "not_watched"]


def not_finite(error: "LossNotFinite") -> dict[str, Any]:
    """TRAIN-002, as a `trouble` record."""
    return {
        "id": "TRAIN-002",
        "status": "fail",
        "rank": error.ranks[0],
        "title": f"training stopped at step {error.step}: the loss is not a finite number",
        "saw": error.saw,
        "expected": error.expected,
        "because": "too high a learning rate, numbers that overflow, or wrong data from a device",
        "fix": "a smaller --lr, --clip 1, --dtype float32; then wirespeed check --only correctness",
        "next": error.next,
    }


def not_watched(cases: Sequence[TrainCase], budget_s: float) -> dict[str, Any]:
    """TRAIN-008, as a `trouble` record: communication time and timeline of these are not known."""
    return {
        "id": "TRAIN-008",
        "status": "not_checked",
        "title": "no step was watched of " + ", ".join(one.label for one in cases),
        "saw": "their communication time and timeline are not known",
        "because": f"the {format_duration(budget_s)} for steps under the profiler were over before",
        "next": "a longer --max-time, fewer strategies, or a quieter machine",
    }


def hardly_watched(cases: Sequence[TrainCase], budget_s: float) -> dict[str, Any]:
    """TRAIN-008, as a `trouble` record: communication time of these is a rough figure."""
    return {
        "id": "TRAIN-008",
        "status": "not_checked",
        "title": "fewer than ten steps were watched of " + ", ".join(one.label for one in cases),
        "saw": "the 95 % interval of their communication time is wider than ±25 %",
        "because": f"the {format_duration(budget_s)} for steps under the profiler were over before",
        "next": "a longer --max-time, fewer strategies, or a quieter machine",
    }


def fit_ended(case: TrainCase, samples: int, too_many: int) -> dict[str, Any]:
    """TRAIN-005, as a `trouble` record: the search for the largest batch was cut short.

    too_many: the fewest samples that did not fit; 0: all that were tried did.
    """
    below = f", {too_many} do not" if too_many else ""
    return {
        "id": "TRAIN-005",
        "status": "not_checked",
        "title": f"{case.label}: the largest batch was not found",
        "saw": f"{samples} samples of a rank fit{below}",
        "because": "the time for the search was over before",
        "next": "a longer --max-time, or one strategy at a time",
    }
