"""`check` over several nodes of the lab: what nodes see of each other, with real packets."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from network_labs import network_lab
from wirespeed.lab import Lab

pytestmark = pytest.mark.system

NODES = 3
BOUND_S = 150.0
CHECK = (sys.executable, "-m", "wirespeed", "check", "-l", "quick", "-q", "-o", "json")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with network_lab(NODES, "nft") as made:
        yield made


@pytest.fixture
def checked(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run `check` on all nodes; the run as JSON. Afterwards the lab is whole again."""

    def run(*more: str) -> dict[str, Any]:
        env = {"WIRESPEED_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        results = lab.run([*CHECK, *more], env=env, timeout=BOUND_S)
        found: dict[str, Any] = json.loads(results[0].stdout)
        return found

    yield run
    lab.heal()


def of(run: dict[str, Any], id: str) -> list[tuple[str, str]]:
    """(status, subject's name) of the findings with that id."""
    return [
        (one["status"], (one.get("subject") or {}).get("name", ""))
        for one in run["findings"]
        if one["id"] == id
    ]


def test_good_paths_pass(checked: Callable[..., Any]) -> None:
    run = checked("--only", "NET")
    assert (run["verdict"], run["exit_code"]) == ("PASSED", 0)
    for id in ("NET-001", "NET-003", "NET-004", "NET-005", "NET-006", "NET-007"):
        assert [status for status, _ in of(run, id)] == ["pass"], id
    assert all(len(node["peers"]) == NODES - 1 for node in run["world"]["nodes"])


def test_a_small_mtu_on_the_way_is_the_cause_and_the_hang_its_consequence(
    lab: Lab, checked: Callable[..., Any]
) -> None:
    """The first large message stalls; the node behind the small port is named, not the waiting."""
    lab.mtu("node-1", 1400)
    run = checked("--timeout", "8")
    assert of(run, "NET-005") == [("fail", "node-1")]
    assert [one["id"] for one in run["findings"] if one["status"] == "fail"] == ["NET-005"]
    hangs = [one for one in run["findings"] if one["id"].startswith("HANG-")]
    assert [one["status"] for one in hangs] == ["warn"] * len(hangs)
    assert (run["verdict"], run["exit_code"]) == ("NOT READY", 1)


def test_a_clock_that_is_ahead_is_named(checked: Callable[..., Any]) -> None:
    run = checked("--only", "NET", "--inject", "clock:rank=2")
    assert of(run, "NET-006") == [("warn", "node-2")]
    assert run["verdict"] == "PASSED"


def test_a_name_that_one_node_cannot_look_up_is_told(lab: Lab, checked: Callable[..., Any]) -> None:
    """As where one node's /etc/hosts was forgotten."""
    hosts = lab.layout.hosts("node-2")
    whole = hosts.read_text()
    kept = [line for line in whole.splitlines() if "node-1" not in line]
    hosts.write_text("\n".join(kept) + "\n")
    try:
        run = checked("--only", "NET")
    finally:
        hosts.write_text(whole)
    assert of(run, "NET-007") == [("warn", "node-2")]
