"""Training over nodes with real traffic: a slow link is exposed communication and lost efficiency."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from network_labs import network_lab
from wirespeed.lab import Lab

pytestmark = [pytest.mark.system, pytest.mark.quiet]

BOUND_S = 150.0
TRAIN = (sys.executable, "-m", "wirespeed", "train", "-q", "-o", "json")
QUICK = ("--rounds", "2", "--steps", "1", "--no-prove", "--layers", "1")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    pytest.importorskip("torch", reason="Requires: torch")
    with network_lab(2) as made:
        made.slow("node-1", "50mbit")
        yield made


def trained(lab: Lab, home: Path, *more: str) -> dict[str, Any]:
    results = lab.run(
        [*TRAIN, *QUICK, *more],
        env={"WIRESPEED_HOME": str(home), "OMP_NUM_THREADS": "1"},
        timeout=BOUND_S,
    )
    run: dict[str, Any] = json.loads(results[0].stdout)
    assert results[0].returncode == run["exit_code"] == 0, results[0].stderr
    assert results[1].stdout == ""
    return run


def test_a_slow_link_makes_most_of_the_step_communication(lab: Lab, tmp_path: Path) -> None:
    run = trained(lab, tmp_path, "--strategy", "flat,bucketed")
    assert [node["host"] for node in run["world"]["nodes"]] == ["node-0", "node-1"]
    for row in run["training"]:
        assert (row["ranks"], row["nodes"]) == (2, 2)
    # 1.1 MB of gradients at 50 Mbit/s take longer than a step of this model on any machine.
    for row in run["training"][1:]:
        assert row["exposed_fraction"] > 0.5
        assert row["comm_fraction"] > 0.5
        assert row["predicted_step_ms"] > 2 * run["training"][0]["step_ms"]["mean"]


def test_scaling_over_nodes_says_where_the_loss_goes(lab: Lab, tmp_path: Path) -> None:
    run = trained(lab, tmp_path, "--scaling", "1,2", "--scaling-kind", "weak")
    two = next(r for r in run["training"] if r["strategy"] == "bucketed" and r["ranks"] == 2)
    assert (two["nodes"], two["grade"]) == (2, "poor")
    assert max(two["loss"], key=two["loss"].get) == "exposed communication"
