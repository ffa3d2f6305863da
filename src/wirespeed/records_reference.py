"""The vocabulary of grading: the figures that a measurement was held against."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Quantity", "ReferenceFigure", "ReferenceKind"]

ReferenceKind = Literal["baseline", "own", "fleet", "reference", "roofline"]
"""A baseline, a figure that the user added, the fleet's median, the package's figure, or a model of the
links."""
Quantity = Literal["busbw", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFigure:
    """One figure, for the measurement of the same operation, engine, type, place, size and ranks."""

    kind: ReferenceKind
    source: str
    """Its name with its date; of a roofline the model."""
    quantity: Quantity
    value: float
    """Bytes a second of busbw, seconds of time."""
    low: float | None = None
    """Least and most among the figures that were joined to this one; None where there was one."""
    high: float | None = None
    op: str
    engine: str
    dtype: str
    redop: str
    in_place: bool
    size_bytes: int
    ranks: int
