"""The check of the barrier, over a store whose `set` nobody answers, as torch's TCPStore."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import dtype_named
from wirespeed.collectives.engines import Group
from wirespeed.plan import Case
from wirespeed.rank.place import Site, broken_barriers


class SlowStore:
    """What is only sent arrives later; what is answered has arrived."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def set(self, key: str, value: str) -> None:
        """Sent, and still on its way."""

    def add(self, key: str, amount: int) -> int:
        self.known.add(key)
        return amount

    def check(self, keys: list[str]) -> bool:
        return self.known >= {*keys}


@pytest.mark.parametrize(("others", "wrong"), [((), 0), ((1,), 1)])
def test_a_mark_on_its_way_blames_no_barrier(others: tuple[int, ...], wrong: int) -> None:
    """others: ranks of the group that never come, so that a barrier that passes is broken."""
    place: Any = SimpleNamespace(
        rank=0,
        device=torch.device("cpu"),
        store=SlowStore(),
        engine=SimpleNamespace(bind=lambda call: lambda: None),
        control=SimpleNamespace(barrier=lambda: None, matrix=lambda row: torch.tensor([row])),
        tick=lambda: None,
    )
    group = Group(ranks=(0, *others), rank=0, handle=None)
    case, collective = Case(op="barrier", size_bytes=0), CATALOGUE["barrier"]
    site = Site(case, collective, dtype_named("float32"), members=[(0,)], group=group, count=0)
    assert broken_barriers(place, site) == (wrong, 1)
