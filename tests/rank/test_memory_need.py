"""Real ranks take the memory that was foretold, and not much more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="Requires: torch")

PROGRAM = Path(__file__).parents[1] / "programs" / "memory_need.py"
MIB = 1 << 20
SIZE, SLACK, CHECKING = 64 * MIB, 36 * MIB, 112 * MIB
RANKS, BOUND_S = 2, 150


@pytest.mark.slow
def test_what_is_foretold_is_what_it_takes(tmp_path: Path) -> None:
    """Up to what the C library keeps; a check takes a few slices, of which a bound is foretold."""
    shared = {
        **os.environ,
        "WORLD_SIZE": str(RANKS),
        "STORE": str(tmp_path / "store"),
        "RESULT": str(tmp_path / "result.json"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "OPS": "all_reduce,reduce_scatter,all_gather",
        "BYTES": str(SIZE),
    }
    ranks = [
        subprocess.Popen([sys.executable, str(PROGRAM)], env={**shared, "RANK": str(rank)})
        for rank in range(RANKS)
    ]
    try:
        assert [rank.wait(BOUND_S) for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    results = json.loads((tmp_path / "result.json").read_text())
    assert len(results) == 3 * 2 * 2
    for one in results:
        spare = one["foretold"] - one["taken"]
        assert -SLACK < spare < SLACK + CHECKING * one["check"], one
