"""What a rank tells of training that ended before its time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.training.step import LossNotFinite

__all__ = ["not_finite"]


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
