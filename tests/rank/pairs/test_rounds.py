"""A round on real ranks, over own sockets and over the backend's send and receive."""

from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "programs" / "pairs.py"
RANKS = 3
BOUND_S = 120


Got = dict[str, Any]


@pytest.fixture(scope="module")
def got(world: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Got]:
    """What each rank of one world got, by way."""
    given = {"store": str(tmp_path_factory.mktemp("pairs") / "store")}
    options = {"ranks": RANKS, "arguments": given, "timeout": BOUND_S, "group": False}
    found: list[Got] = world("rounds", file=PROGRAM, **options)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", ["tcp", "backend"])
def test_all_ranks_get_the_same_figures(got: list[Got], way: str) -> None:
    first, second, third = (by_way[way] for by_way in got)
    assert first == second == third
    assert [reading["pair"] for reading in first["readings"]] == [[0, 2], [0, 1]]
    for reading in first["readings"]:
        for name in ("forth", "back", "both", "latency"):
            assert len(reading[name]) == 1
            assert reading[name][0] > 0, name
    assert len(first["seconds"]) == len(first["own"]) == RANKS
    assert min(first["own"]) > 0
    assert all(own <= clock for own, clock in zip(first["own"], first["seconds"], strict=True))
