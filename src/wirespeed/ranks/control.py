"""What ranks tell each other around the measurements, apart from the engine under test.

Small CPU tensors over a gloo group of its own. Every method is collective: all ranks call it at the
same point, and all get the same answer, so that what one decides all decide.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

__all__ = ["Control"]

T = TypeVar("T")


class Control:
    """The control group of this world."""

    def __init__(self, group: dist.ProcessGroup | None, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._group = group
        self._token = torch.zeros(1)

    def barrier(self) -> None:
        """Returns when every rank has come here."""
        dist.all_reduce(self._token, group=self._group)

    def matrix(self, row: Sequence[float]) -> torch.Tensor:
        """Every rank's row of the same length, float64, shape (world size, len(row))."""
        mine = torch.tensor(row, dtype=torch.float64)
        rows = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(rows, mine, group=self._group)
        return torch.stack(rows)

    def all_true(self, value: bool) -> bool:
        """Whether it holds on every rank."""
        return bool(self.matrix([float(value)]).min() > 0)

    def objects(self, value: T) -> list[T]:
        """Every rank's value, by rank (small ones only: several round trips)."""
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value, group=self._group)
        return gathered
