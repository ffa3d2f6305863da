"""What ranks tell each other around the measurements, apart from the engine under test.

Small CPU tensors over a gloo group of its own. Every method is collective: all ranks call it at the
same point, and all get the same answer, so that what one decides all decide.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from wirespeed.training.exchange import gathered, gathered_states

__all__ = ["Control"]

T = TypeVar("T")
_CPU = torch.device("cpu")


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

    def matrix(self, row: Sequence[float], *, within_s: float | None = None) -> torch.Tensor:
        """Every rank's row of the same length, float64, shape (world size, len(row)).

        within_s: TimeoutError when the others have not come by then; this group is then of no more use.
        """
        # Gather and broadcast take a third of all_gather's time on gloo (docs/benchmarks.md), and
        # nobody can get other figures than the rest.
        mine = torch.tensor(row, dtype=torch.float64)
        every = torch.empty(self.world_size, len(row), dtype=torch.float64)
        rows = list(every) if self.rank == 0 else None
        if within_s is None:
            dist.gather(mine, rows, dst=0, group=self._group)
            dist.broadcast(every, src=0, group=self._group)
            return every
        bound = timedelta(seconds=within_s)
        _wait(dist.gather(mine, rows, dst=0, group=self._group, async_op=True), bound)
        _wait(dist.broadcast(every, src=0, group=self._group, async_op=True), bound)
        return every

    def all_true(self, value: bool) -> bool:
        """Whether it holds on every rank."""
        return bool(self.matrix([float(value)]).min() > 0)

    def objects(self, value: T, shape: Any) -> list[T]:
        """Every rank's value, by rank, as that shape (training/exchange.py); small ones.

        WorldError where a rank sent anything else.
        """
        return gathered(value, shape, self._group, _CPU)

    def states(self, state: Any, *, keeps: bool = True) -> list[Any]:
        """Every rank's tree of values and tensors, by rank; `keeps`: whether this one needs them."""
        return gathered_states(state, self._group, _CPU, keeps=keeps)


def _wait(work: Any, bound: timedelta) -> None:
    try:
        work.wait(bound)
    except RuntimeError as error:
        raise TimeoutError(str(error)) from error
