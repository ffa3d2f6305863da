"""The vocabulary of grading: the figures that a measurement was held against."""

from dataclasses import dataclass
from typing import Annotated, Literal

from wirespeed.model.field_types import SPARSE, Count, GBps, Micros, NotNegative

ReferenceKind = Literal["baseline", "own", "fleet", "reference", "roofline"]
"""A baseline, a figure that the user added, the fleet's median, the package's figure, or a model of the
links."""
Quantity = Literal["busbw", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFigure:
    """One figure, for the measurement of the same operation, engine, type, place, size and ranks."""

    kind: ReferenceKind
    """A baseline, a figure that the user added, the fleet's median, the package's figure, or a
    model of the links."""
    source: str
    """Its name with its date; of a roofline the model."""
    op: str
    """The operation."""
    engine: str
    """The engine."""
    dtype: str
    """Type of the elements."""
    redop: str
    """Reduction, or `none`."""
    in_place: bool
    """Whether input and output are the same buffer."""
    size_bytes: Count
    """Size of the measurement."""
    ranks: Count
    """Ranks of one group."""
    busbw: Annotated[GBps[NotNegative | None], SPARSE] = None
    """The figure, where it is a bus bandwidth."""
    busbw_low: Annotated[GBps[NotNegative | None], SPARSE] = None
    """The least among the figures that were joined to it."""
    busbw_high: Annotated[GBps[NotNegative | None], SPARSE] = None
    """The most among them."""
    time: Annotated[Micros[NotNegative | None], SPARSE] = None
    """The figure, where it is a time."""
    time_low: Annotated[Micros[NotNegative | None], SPARSE] = None
    """The least among the figures that were joined to it."""
    time_high: Annotated[Micros[NotNegative | None], SPARSE] = None
    """The most among them."""

    @property
    def quantity(self) -> Quantity | None:
        """None where it has neither, as a later version may write."""
        if self.busbw is not None:
            return "busbw"
        return None if self.time is None else "time"

    @property
    def value(self) -> float:
        """Bytes a second of busbw, seconds of time."""
        return self.busbw if self.busbw is not None else self.time or 0.0

    @property
    def low(self) -> float | None:
        """Least among the figures that were joined to this one; None where there was one."""
        return self.time_low if self.busbw is None else self.busbw_low

    @property
    def high(self) -> float | None:
        """Most among them."""
        return self.time_high if self.busbw is None else self.busbw_high
