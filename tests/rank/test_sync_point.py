"""What a timed call comes after: the barrier of its own group."""

from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.rank.place import sync_point


@pytest.mark.parametrize(
    ("ranks", "group", "met"),
    [
        (4, True, ["own"]),
        (2, True, ["control", "own"]),
        (2, False, ["control"]),
    ],
    ids=["the world", "one of several groups", "outside of every group"],
)
def test_who_meets_before_a_timed_call(ranks: int, group: bool, met: list[str]) -> None:
    seen: list[str] = []
    place: Any = SimpleNamespace(
        world_size=4,
        control=SimpleNamespace(barrier=lambda: seen.append("control")),
        engine=SimpleNamespace(sync_point=lambda group: lambda: seen.append("own")),
    )
    site: Any = SimpleNamespace(ranks=ranks, group=object() if group else None)
    sync_point(place, site)()
    assert seen == met
