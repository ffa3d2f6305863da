"""Two nodes for real: torchrun on each, TCP between them; and what happens when one fails."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

GLOO = {"GLOO_SOCKET_IFNAME": "eth0"}
QUICK = ("check", "-l", "quick", "-q", "--timeout", "5")
# One second a size and fifteen sizes: time enough to strike after the first.
SIZES = ("bench", "all_reduce", "-b", "1K", "-e", "16M", "-f", "2", "-w", "1", "-q")
SLOW = (*SIZES, "--precision", "0.1", "--time-per-size", "1", "--timeout", "3")
AFTER_S = 40.0

Find = Callable[[dict[str, Any], str], dict[str, Any]]


def start(cli: Any, nodes: Any, *words: str, **options: Any) -> list[Any]:
    commands = [nodes.torchrun(node, *words, **options) for node in (0, 1)]
    return [cli.start_words(command, env=GLOO) for command in commands]


@pytest.mark.parametrize(("rendezvous", "ranks"), [("c10d", 2), ("static", 1)])
def test_two_healthy_nodes_are_ready(
    cli: Any, nodes: Any, finding: Find, rendezvous: str, ranks: int
) -> None:
    running = start(cli, nodes, *QUICK, rendezvous=rendezvous, ranks=ranks)
    first, second = [r.wait() for r in running]
    assert (first.code, second.code) == (0, 0), first.out + first.err + second.err
    reports = [text for text in (first.out, second.out) if text]
    assert len(reports) == 1
    assert f"{2 * ranks} ranks on 2 nodes" in reports[0]
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("READY", 0)
    assert run["world"]["size"] == 2 * ranks
    assert [node["host"] for node in run["world"]["nodes"]] == nodes.names
    assert [len(node["ranks"]) for node in run["world"]["nodes"]] == [ranks, ranks]
    assert [one for node in run["world"]["nodes"] for one in node["ranks"]] == [*range(2 * ranks)]
    for node in run["world"]["nodes"]:
        assert "eth0" in {nic["name"] for nic in node["nics"]}
    # One machine under both: what can be compared is equal.
    for id in ("NODE-001", "NODE-002", "NODE-004", "NODE-008"):
        assert finding(run, id)["status"] == "pass", finding(run, id)
    assert finding(run, "COL-001")["status"] == "pass"


def test_a_difference_between_the_nodes_is_a_finding(cli: Any, nodes: Any, finding: Find) -> None:
    words = ("bench", "barrier", "-n", "3", "-w", "1", "-q")
    running = []
    for node, extra in ((0, {}), (1, {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "3"})):
        command = nodes.torchrun(node, *words)
        running.append(cli.start_words(command, env={**GLOO, **extra}))
    assert [r.wait().code for r in running] == [0, 0], running[0].out()
    found = finding(cli.run(), "NODE-008")
    assert found["status"] in ("warn", "fail")
    told = " ".join([found["title"], found["saw"], *found["evidence"]])
    assert "NCCL_DEBUG" in told
    assert "node-1" in told


def test_a_rank_killed_on_the_second_node_is_named_with_its_host(
    cli: Any, nodes: Any, finding: Find
) -> None:
    running = start(cli, nodes, *SLOW)
    os.kill(cli.measuring(2)[1], signal.SIGKILL)
    codes = [r.wait(AFTER_S).code for r in running]
    assert codes == [1, 1], running[0].err()
    run = cli.run()
    assert run["exit_code"] == 1
    found = finding(run, "DIED-001")
    assert found["subject"] == {"kind": "rank", "name": "rank 1"}
    assert "rank 1 on node-1" in found["title"]
    assert "on node-1" in found["next"]
    assert run["measurements"]
    cli.nothing_runs()


def test_a_rank_stopped_on_the_second_node_is_named_with_its_host(
    cli: Any, nodes: Any, finding: Find
) -> None:
    running = start(cli, nodes, *SLOW)
    stopped = cli.measuring(2)[1]
    os.kill(stopped, signal.SIGSTOP)
    cli.until(lambda: any(r.out() for r in running), AFTER_S)
    cli.until(lambda: cli.run()["exit_code"] == 1)  # it is told before it is stored
    found = finding(cli.run(), "HANG-001")
    assert "rank 1 on node-1" in found["title"]
    os.kill(stopped, signal.SIGCONT)
    assert [r.wait(AFTER_S).code for r in running] == [1, 1]


def test_a_cable_pulled_in_the_middle(cli: Any, nodes: Any) -> None:
    running = start(cli, nodes, *SLOW, ranks=2)
    cli.measuring(4)
    nodes.cut(1)
    cli.until(lambda: "FAILED" in running[0].out(), AFTER_S)
    cli.until(lambda: cli.run()["exit_code"] == 1)
    run = cli.run()
    assert run["exit_code"] == 1
    failed = [one for one in run["findings"] if one["status"] == "fail"]
    assert {one["id"] for one in failed} <= {"HANG-001", "HANG-004", "DIED-001"}
    assert "node-1" in " ".join([failed[0]["title"], failed[0]["saw"]])
    assert "node-0" not in failed[0]["title"]
    assert run["measurements"]
    # Cut off, the ranks of node-1 end by themselves too; torchrun's agents are not ours.
    cli.until(lambda: not cli.ranks(), AFTER_S)
