"""Faults of the lab, with real traffic: `locate` names the culprit and its kind.

The faults differ from the rest by factors that no noise makes; no figure is compared with a clock.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from network_labs import network_lab
from wirespeed.lab import Lab, NodeResult

pytestmark = pytest.mark.system

NODES = 4
BOUND_S = 150.0
LOCATE = (sys.executable, "-m", "wirespeed", "locate", "-q", "-o", "json")

Named = set[tuple[str, str, str]]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with network_lab(NODES) as made:
        yield made


@pytest.fixture
def located(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run `locate` on all nodes; the run as JSON. Afterwards the lab is whole again."""

    def run(*more: str) -> dict[str, Any]:
        results = lab.run(
            [*LOCATE, *more],
            env={"WIRESPEED_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
            timeout=BOUND_S,
        )
        found: dict[str, Any] = json.loads(results[0].stdout)
        assert results[0].returncode == found["exit_code"], results[0].stderr
        assert [one.stdout for one in results[1:]] == [""] * (NODES - 1)
        return found

    yield run
    lab.heal()


def named(run: dict[str, Any]) -> Named:
    """(id, kind, name) of every failing finding."""
    return {
        (one["id"], one["subject"]["kind"], one["subject"]["name"])
        for one in run["findings"]
        if one["status"] == "fail"
    }


@pytest.mark.quiet
@pytest.mark.parametrize("turn", range(2))
def test_a_healthy_fabric_has_no_culprit(located: Callable[..., Any], turn: int) -> None:
    run = located()
    assert named(run) == set()
    assert (run["verdict"], run["exit_code"]) == ("NO CULPRIT", 0)
    assert run["located"]["pairs_measured"] == 6


FAULTS: dict[str, tuple[Callable[[Lab], object], Named]] = {
    "one slow link": (
        lambda lab: lab.slow_link("node-0", "node-2", "100mbit"),
        {("LOC-006", "link", "node-0 <-> node-2")},
    ),
    "sending of one and receiving of another": (
        lambda lab: (lab.one_way("node-0", "200mbit"), lab.one_way("node-3", "200mbit", "in")),
        {("LOC-002", "node", "node-0"), ("LOC-002", "node", "node-3")},
    ),
    "delay": (lambda lab: lab.delay("node-3", "5ms"), {("LOC-001", "node", "node-3")}),
    "two slow nodes": (
        lambda lab: (lab.slow("node-1", "100mbit"), lab.slow("node-3", "200mbit")),
        {("LOC-001", "node", "node-1"), ("LOC-001", "node", "node-3")},
    ),
    "a CPU quota": (lambda lab: lab.straggler("node-1", "30%"), {("LOC-007", "node", "node-1")}),
    "an MTU black hole": (lambda lab: lab.mtu("node-1", 1400), {("LOC-008", "node", "node-1")}),
}


@pytest.mark.quiet
@pytest.mark.parametrize("fault", FAULTS)
def test_the_culprit_is_named(lab: Lab, located: Callable[..., Any], fault: str) -> None:
    broken, culprits = FAULTS[fault]
    broken(lab)
    run = located()
    assert named(run) == culprits
    assert (run["verdict"], run["exit_code"]) == ("CULPRIT NAMED", 1)
    assert run["verdict_subject"] in {name for _, _, name in culprits}


SETTINGS: dict[str, tuple[Callable[[Lab], object], Named]] = {
    "a wrong interface name": (
        lambda lab: lab.environment("node-2", "GLOO_SOCKET_IFNAME", "ib0"),
        {("NET-002", "node", "node-2")},
    ),
    "a loopback host name": (
        lambda lab: lab.loopback_name("node-1"),
        {("NET-001", "node", "node-1")},
    ),
    "firewalled ports": (
        lambda lab: lab.firewall("node-2"),
        {("NET-004", "node", "node-2")},
    ),
    "firewalled ports of the first node": (
        lambda lab: lab.firewall("node-0"),
        {("NET-004", "node", "node-0")},
    ),
    "only the master port open everywhere": (
        lambda lab: lab.firewall("all"),
        {("NET-004", "node", node) for node in ("node-0", "node-1", "node-2", "node-3")},
    ),
}


@pytest.mark.parametrize("fault", SETTINGS)
def test_what_keeps_the_world_from_joining_is_named(
    lab: Lab, located: Callable[..., Any], fault: str
) -> None:
    """The node and its setting, long before gloo gives up; what the ranks raised is a warning."""
    broken, culprits = SETTINGS[fault]
    broken(lab)
    run = located()
    assert named(run) == culprits
    assert (run["verdict"], run["exit_code"]) == ("CULPRIT NAMED", 1)
    assert run["verdict_subject"] in {name for _, _, name in culprits}
    watched = [one for one in run["findings"] if one["id"] == "RAISED-001"]
    assert [one["status"] for one in watched] == ["warn"]
    assert all("a consequence of NET-" in one["because"] for one in watched)


@pytest.mark.quiet
def test_a_lossy_node_is_named(lab: Lab, located: Callable[..., Any]) -> None:
    """Loss hits sending more than receiving, so it may look like one direction."""
    lab.lossy("node-1", "5%")
    assert {(kind, name) for _, kind, name in named(located())} == {("node", "node-1")}


@pytest.mark.quiet
def test_bursts_of_sigstop_make_a_straggler(lab: Lab, located: Callable[..., Any]) -> None:
    lab.straggler("node-2", "stop:300ms/700ms")
    assert named(located()) == {("LOC-007", "node", "node-2")}


def test_a_node_that_is_cut_off_is_named(lab: Lab, located: Callable[..., Any]) -> None:
    lab.cut("node-2")
    run = located("--startup-timeout", "20")
    assert named(run) == {("JOIN-001", "rank", "rank 2")}
    assert (run["verdict"], run["exit_code"]) == ("CULPRIT NAMED", 1)
    assert run["verdict_subject"] == "rank 2"


@pytest.mark.quiet
def test_one_slow_node_under_torchrun_by_hand_whose_rank_0_alone_prints(
    lab: Lab, tmp_path: Path
) -> None:
    lab.slow("node-1", "100mbit")
    words = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "{nodes}"),
        *("--nproc-per-node", "1", "--node-rank", "{rank}", "--master-addr", "{master}"),
        *("--master-port", "{port}", "-m", "wirespeed", "locate", "-o", "json", "-q"),
    ]
    try:
        results: list[NodeResult] = lab.run(
            words, env={"WIRESPEED_HOME": str(tmp_path)}, timeout=BOUND_S
        )
    finally:
        lab.heal()
    run = json.loads(results[0].stdout)
    assert named(run) == {("LOC-001", "node", "node-1")}
    assert (run["verdict"], run["verdict_subject"]) == ("CULPRIT NAMED", "node-1")
    assert all(one.stdout == "" for one in results[1:])
