"""The vocabulary of grids: worlds of other sizes, backends or batches, one after the other."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["GridPoint", "Missing", "point_from_json", "point_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A row that a point should have, and has not."""

    what: str
    """The operation with its type and reduction (`all_reduce float32 sum`), or the strategy."""
    size_bytes: int = 0
    """Of an operation, as it was asked for; 0 for strategies."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One world of the grid."""

    ranks: int
    backend: str
    """That its ranks joined over; as it was asked for where they did not."""
    batch: int = 0
    """Samples of one step over all ranks; 0 where nothing is trained."""
    seconds: float = 0.0
    """From its start to its end; 0: it was not started."""
    reason: str = ""
    """Why it was not measured, or not to its end."""
    missing: tuple[Missing, ...] = ()

    @property
    def name(self) -> str:
        """`2 ranks, gloo`; `4 ranks, 32 samples`."""
        parts = ["1 rank" if self.ranks == 1 else f"{self.ranks} ranks"]
        parts += [self.backend] if self.backend != "auto" else []
        parts += [f"{self.batch} samples"] if self.batch else []
        return ", ".join(parts)


def point_to_json(point: GridPoint) -> dict[str, Any]:
    return {**asdict(point), "missing": [asdict(one) for one in point.missing]}


def point_from_json(data: Mapping[str, Any]) -> GridPoint:
    missing = tuple(Missing(**one) for one in data.get("missing", ()))
    return GridPoint(**{**data, "missing": missing})
