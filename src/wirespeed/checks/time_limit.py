"""What `--max-time` left no time for."""

from collections.abc import Sequence

from wirespeed.checks.registry import tell
from wirespeed.model.records import Finding

_MOST = 40
"""Labels that are listed."""


def not_measured(labels: Sequence[str], seconds: float) -> Finding:
    """Return TIME-001, which names what was left out."""
    first = labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else "")
    more = [f"and {len(labels) - _MOST} more"] if len(labels) > _MOST else []
    return tell(
        "TIME-001",
        "over",
        first=first,
        seconds=f"{seconds:g}",
        longer=f"{2 * seconds:g}",
        evidence=(*labels[:_MOST], *more),
    )
