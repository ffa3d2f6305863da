"""A stranger in another network namespace wants the seat of rank 1, where ranks meet without torch."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wirespeed.node.secret import VARIABLE, new_secret

pytestmark = pytest.mark.hostile("strangers")
Find = Callable[[dict[str, Any], str], dict[str, Any]]
THIEF = str(Path(__file__).parents[1] / "programs" / "seat_thief.py")
CHECK = ("check", "--only", "placement", "-o", "json", "-q", "--startup-timeout", "60")
PORT = "29400"


def rank(cli: Any, nodes: Any, number: int, **secret: str) -> Any:
    env = {"WORLD_SIZE": "2", "MASTER_ADDR": nodes.address(0), "MASTER_PORT": PORT}
    env |= {"RANK": str(number), "WIRESPEED_ZONE": "a", **secret}
    return cli.start_words(nodes.on(number, sys.executable, "-m", "wirespeed", *CHECK), env=env)


def thief(cli: Any, nodes: Any) -> Any:
    return cli.start_words(nodes.on(1, sys.executable, THIEF, nodes.address(0), PORT))


def test_with_a_secret_he_gets_nothing_and_the_ranks_are_ready(cli: Any, nodes: Any) -> None:
    secret = {VARIABLE: new_secret()}
    stranger = thief(cli, nodes)
    first = rank(cli, nodes, 0, **secret)
    cli.until(stranger.out)
    assert "this rank was given none" in stranger.out()
    second = rank(cli, nodes, 1, **secret)
    done, other = first.wait(), second.wait()
    assert (done.code, other.code) == (0, 0), done.out + done.err + other.err
    assert done.json["verdict"] == "PASSED"
    assert {node["host"] for node in done.json["world"]["nodes"]} == set(nodes.names)
    stranger.kill()


def test_without_one_two_claims_end_the_run_with_both_addresses(
    cli: Any, nodes: Any, finding: Find
) -> None:
    stranger = thief(cli, nodes)
    first = rank(cli, nodes, 0)
    cli.until(stranger.out)
    assert stranger.out() == "taken\n"
    second = rank(cli, nodes, 1)
    done, other = first.wait(), second.wait()
    assert done.code in (1, 3), done.out + done.err
    assert done.json["verdict"] == {1: "FAILED", 3: "UNKNOWN"}[done.code]
    found = finding(done.json, "JOIN-002")
    told = " ".join([found["title"], found["saw"], *found["evidence"]])
    assert "rank 1" in told
    assert told.count(f"{nodes.address(1)}:") >= 2, told
    assert other.code != 0
    stranger.kill()
