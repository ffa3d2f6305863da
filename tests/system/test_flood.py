"""Two nodes are checked while a third one, a stranger, floods all that listens there."""

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed.lab import Lab, LabSpec

pytestmark = pytest.mark.hostile("floods")

STRANGER = Path(__file__).parents[1] / "programs" / "stranger.py"
CHECK = (sys.executable, "-m", "wirespeed", "check", "-l", "quick", "-q", "-o", "json")
BOUND_S = 150.0
RATE, SILENT = 500, 200
NODES = ["node-0", "node-1"]


@pytest.fixture
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("Requires: root and iproute2")
    with Lab(LabSpec(3, f"f{os.getpid()}")) as made:
        yield made


def test_a_flood_of_strangers_changes_no_verdict(
    lab: Lab, tmp_path: Path, count_attacks: Any
) -> None:
    """200 silent connections a port and 500 quick ones a second, some of them with garbage."""
    anchors = lab.start(["sleep", "600"], nodes=NODES, ranks=False).pids
    targets = [f"{lab.address(node)}={anchors[node]}" for node in NODES]
    words = [sys.executable, str(STRANGER), str(RATE), str(SILENT), *targets]
    flood = lab.start(words, nodes=["node-2"], ranks=False)
    env = {"WIRESPEED_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    env["WIRESPEED_SECRET"] = secrets.token_hex(32)
    first, second = lab.run(CHECK, nodes=NODES, env=env, timeout=BOUND_S)
    opened = json.loads(flood.end(within_s=5.0)[0].stdout)
    count_attacks("floods", sum(opened.values()))
    assert (first.returncode, second.returncode) == (0, 0), first.stdout[-3000:] + second.stderr
    run = json.loads(first.stdout)
    assert run["verdict"] == "READY"
    failing = [one for one in run["findings"] if one["status"] == "fail"]
    assert failing == []
    # The session and both doorbells were found and flooded, each by its silent ones at the least.
    flooded = [place for place, count in opened.items() if count >= SILENT]
    assert len(flooded) >= 3, opened
    assert sum(opened.values()) > 4 * RATE, opened
