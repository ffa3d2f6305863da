"""`--on ssh` for verbs: one report of four nodes that are logged in to."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.system

ALL = "node-0,node-1,node-2,node-3"
SIZES = (
    "-b",
    "1K",
    "-e",
    "16M",
    "-f",
    "2",
    "-w",
    "1",
    "--precision",
    "0.1",
    "--time-per-size",
    "1",
)
BOUND_S = 150.0

Find = Callable[[dict[str, Any], str], dict[str, Any]]


def words(ssh_lab: Any, verb: str, *more: str, hosts: str = "node-0,node-2") -> list[str]:
    place = ("--on", "ssh", "--hosts", hosts, "--with", f"config={ssh_lab.config}")
    return [sys.executable, "-m", "wirespeed", verb, *more, *place]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch", reason="Requires: torch")


def test_four_healthy_nodes_are_ready(ssh_lab: Any, cli: Any) -> None:
    done = ssh_lab.run(words(ssh_lab, "check", "-l", "quick", hosts=ALL), timeout=BOUND_S)
    assert done.code == 0, done.out + done.err
    run = cli.run()
    assert (run["verdict"], run["world"]["size"]) == ("READY", 4)
    assert run["speed_judged"] is False
    assert [node["host"] for node in run["world"]["nodes"]] == ssh_lab.hosts


def test_a_node_out_of_reach_fails_and_the_others_are_checked(
    ssh_lab: Any, cli: Any, finding: Find
) -> None:
    ssh_lab.stop_sshd("node-1")
    check = words(ssh_lab, "check", "--only", "correctness", hosts="node-0,node-1,node-2")
    done = ssh_lab.run(check, timeout=BOUND_S)
    run = cli.run()
    assert (done.code, run["verdict"]) == (1, "FAILED")
    lost = finding(run, "LAUNCH-001")
    assert (lost["status"], lost["subject"]["name"]) == ("fail", "node-1")
    assert [node["host"] for node in run["world"]["nodes"]] == ["node-0", "node-2"]
    assert finding(run, "COL-001")["status"] == "pass"


def test_a_killed_rank_on_another_node_is_named(ssh_lab: Any, cli: Any, finding: Find) -> None:
    running = ssh_lab.start(words(ssh_lab, "bench", "all_reduce", *SIZES))
    cli.until(lambda: "[ 2/15]" in running.err())
    (rank,) = [
        pid
        for pid, line in ssh_lab.processes("node-2").items()
        if line.endswith("wirespeed.session.rank_program") and "rank_wrapper" not in line
    ]
    os.kill(rank, signal.SIGKILL)
    done = running.wait(BOUND_S)
    run = cli.run()
    assert done.code == 1, done.err
    died = finding(run, "DIED-001")
    assert died["subject"]["name"] == "rank 1"
    assert "SIGKILL" in died["saw"] and "node-2" in died["title"]
    assert run["measurements"]


def test_a_stopped_rank_on_another_node_is_named(ssh_lab: Any, cli: Any, finding: Find) -> None:
    check = ("check", "--only", "correctness", "--timeout", "5", "--inject", "stop:rank=1,after=1")
    done = ssh_lab.run(words(ssh_lab, *check), timeout=BOUND_S)
    assert done.code == 1, done.err
    assert finding(cli.run(), "HANG-001")["subject"]["name"] == "rank 1"
