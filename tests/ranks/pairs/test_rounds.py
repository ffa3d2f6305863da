"""A round on real ranks, over own sockets and over the backend's send and receive."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "programs" / "pairs.py"
RANKS = 3
BOUND_S = 120


Got = dict[str, Any]


@pytest.fixture(scope="module")
def got(tmp_path_factory: pytest.TempPathFactory) -> list[Got]:
    """What each rank of one world got, by way."""
    folder = tmp_path_factory.mktemp("pairs")
    shared = {
        **os.environ,
        "WORLD_SIZE": str(RANKS),
        "STORE": str(folder / "store"),
        "RESULT": str(folder / "result"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    log = folder / "log"
    with log.open("wb") as stream:
        processes = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                env={**shared, "RANK": str(rank)},
                stdout=stream,
                stderr=stream,
            )
            for rank in range(RANKS)
        ]
    try:
        codes = [process.wait(BOUND_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
    assert codes == [0] * RANKS, log.read_text()
    return [json.loads((folder / f"result.{rank}").read_text()) for rank in range(RANKS)]


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
