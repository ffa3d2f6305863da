"""The vocabulary of grids: worlds of other sizes, backends or batches, one after the other."""

from dataclasses import dataclass
from typing import Annotated

from wirespeed.model.field_types import ALWAYS, Count, NotNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A row that a point should have, and has not."""

    what: str
    """The operation with its type and reduction (`all_reduce float32 sum`), or the strategy."""
    size_bytes: Annotated[Count, ALWAYS] = 0
    """Of an operation, as it was asked for; 0 for strategies."""
    reason: str
    """Why there are no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One world of the grid."""

    ranks: Positive
    """Ranks of its world."""
    backend: str
    """That its ranks joined over; as it was asked for where they did not."""
    batch: Annotated[Count, ALWAYS] = 0
    """Samples of one step over all ranks; 0 where nothing is trained."""
    seconds: Annotated[NotNegative, ALWAYS] = 0.0
    """From its start to its end; 0: it was not started."""
    reason: Annotated[str, ALWAYS] = ""
    """Why it was not measured, or not to its end; empty: it was."""
    missing: Annotated[tuple[Missing, ...], ALWAYS] = ()
    """Rows that it should have, and has not."""

    @property
    def name(self) -> str:
        """`2 ranks, gloo`; `4 ranks, 32 samples`."""
        parts = ["1 rank" if self.ranks == 1 else f"{self.ranks} ranks"]
        parts += [self.backend] if self.backend != "auto" else []
        parts += [f"{self.batch} samples"] if self.batch else []
        return ", ".join(parts)
