"""A real iperf3 between nodes of the lab: its JSON as a run, and a slow node found by comparing two."""

import shutil
import time

import pytest

from wirespeed.compare.figures import figures_of
from wirespeed.lab import Lab
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="Requires: iperf3"),
]
CLIENT = ["iperf3", "-J", "-c", "node-1", "-t", "1", "-i", "0.1"]


def imported(lab: Lab) -> Run:
    (told,) = lab.run(CLIENT, nodes=["node-0"], ranks=False, timeout=30.0)
    (run,) = import_bytes(told.stdout.encode(), name="iperf3")
    return run


def test_a_slow_node_is_slower_in_iperf3s_own_words(lab: Lab) -> None:
    refused = imported(lab)
    assert (refused.verdict, refused.findings[0].id) == ("FAILED", "IMP-008")
    server = lab.start(["iperf3", "-s"], nodes=["node-1"], ranks=False)
    deadline = time.monotonic() + 20
    while (healthy := imported(lab)).findings and time.monotonic() < deadline:
        time.sleep(0.1)  # the server does not listen yet
    lab.slow("node-1", "20mbit")
    slow = imported(lab)
    server.end()
    (what,) = figures_of(healthy)
    assert what.get("place") == "node-0 -> node-1"
    assert figures_of(slow)[what].log > figures_of(healthy)[what].log + 1.0
    assert slow.figures[0].low is not None
