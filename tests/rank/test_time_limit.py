"""How much of --max-time is left, by the clock of the latest rank."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wirespeed.plan import Measure
from wirespeed.rank.time_limit import TimeLimit


class World:
    """Control whose latest rank is so many seconds ahead of this one."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s, self.gathered = ahead_s, 0

    def matrix(self, row: list[float]) -> torch.Tensor:
        self.gathered += 1
        return torch.tensor([row, [row[0] + self.ahead_s]])


def limit_of(world: World, seconds: float | None) -> TimeLimit:
    place: Any = SimpleNamespace(control=world)
    return TimeLimit(place, seconds)


def test_without_a_bound_nothing_is_gathered() -> None:
    world = World()
    limit = limit_of(world, None)
    assert not limit.skip("all_reduce")
    assert limit.share(Measure(), 5) == Measure()
    assert (world.gathered, limit.record()) == (0, None)


def test_the_latest_rank_decides() -> None:
    limit = limit_of(World(ahead_s=50.0), 10.0)
    assert limit.skip("all_reduce")
    assert limit.share(Measure(), 1) is None
    assert limit.record() == {"labels": ["all_reduce"], "seconds": 10.0}


def test_what_is_left_is_shared() -> None:
    limit = limit_of(World(), 60.0)
    shared = limit.share(Measure(max_time_s=60.0), 4)
    assert shared is not None
    assert shared.max_time_s == pytest.approx(10.0, rel=0.1)  # warming up has half as much
    own = limit.share(Measure(max_time_s=0.5), 4)
    assert own is not None
    assert own.max_time_s == 0.5
