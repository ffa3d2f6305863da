"""A round on real ranks, over own sockets and over the backend's send and receive."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "programs" / "pairs.py"
RANKS = 3
BOUND_S = 120


@pytest.mark.parametrize("own_sockets", ["1", "0"])
def test_all_ranks_get_the_same_figures(tmp_path: Path, own_sockets: str) -> None:
    shared = {
        **os.environ,
        "WORLD_SIZE": str(RANKS),
        "STORE": str(tmp_path / "store"),
        "RESULT": str(tmp_path / "result"),
        "OWN_SOCKETS": own_sockets,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    log = tmp_path / "log"
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
    got = [json.loads((tmp_path / f"result.{rank}").read_text()) for rank in range(RANKS)]
    assert got[0] == got[1] == got[2]
    assert [reading["pair"] for reading in got[0]["readings"]] == [[0, 2], [0, 1]]
    for reading in got[0]["readings"]:
        for name in ("forth", "back", "both", "latency"):
            assert len(reading[name]) == 1
            assert reading[name][0] > 0, name
    assert len(got[0]["compute"]) == RANKS
    assert min(got[0]["compute"]) > 0
