"""Step times of gradient-synchronisation strategies that a study published, for a look beside one's own.

Seconds depend on GPU, model and batch; what can be compared is each strategy's share of naive's.
"""

import csv
import io
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from wirespeed.errors import InputError

__all__ = ["TrainingFigure", "of_naive", "shipped_training", "training_from_csv"]

_NEEDED = ("system", "ranks", "model", "batch", "strategy", "step_s", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigure:
    """One row of a study."""

    system: str
    gpu: str
    """Empty: not told."""
    ranks: int
    model: str
    batch: int
    strategy: str
    """As `train --strategy` calls it."""
    bucket_mb: float | None
    step_s: float
    """Mean, in seconds."""
    comm_share: float | None
    """Of the step, as the source counted it."""
    source: str
    published: str = ""
    read: str = ""


@lru_cache(maxsize=1)
def shipped_training() -> tuple[TrainingFigure, ...]:
    """The figures in the package."""
    text = files("wirespeed.reference").joinpath("data/training.csv").read_text("utf-8")
    return training_from_csv(text, source="training.csv")


def training_from_csv(text: str, *, source: str) -> tuple[TrainingFigure, ...]:
    """The rows; InputError names `source`, the line and what is wrong."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    missing = set(_NEEDED) - set(reader.fieldnames or ())
    if missing:
        raise InputError(f"{source}: no column {', '.join(sorted(missing))}")
    try:
        return tuple(_figure(row) for row in reader)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{source}:{reader.line_num}: {error}", expected="seconds and whole numbers above 0"
        ) from error


def _figure(row: dict[str, str]) -> TrainingFigure:
    step = float(row["step_s"])
    if not 0 < step < 1e6:
        raise ValueError(f"step_s is {row['step_s']!r}")
    return TrainingFigure(
        system=row["system"],
        gpu=row.get("gpu") or "",
        ranks=int(row["ranks"]),
        model=row["model"],
        batch=int(row["batch"]),
        strategy=row["strategy"],
        bucket_mb=_optional(row.get("bucket_mb")),
        step_s=step,
        comm_share=_optional(row.get("comm_share")),
        source=row["source"],
        published=row.get("published") or "",
        read=row.get("read") or "",
    )


def _optional(text: str | None) -> float | None:
    return float(text) if text else None


def of_naive(one: TrainingFigure, among: tuple[TrainingFigure, ...]) -> float | None:
    """Its step over naive's in the same study; None where that has no naive."""
    same = [
        other.step_s
        for other in among
        if (other.system, other.model, other.batch, other.ranks, other.strategy)
        == (one.system, one.model, one.batch, one.ranks, "naive")
    ]
    return one.step_s / same[0] if same else None
