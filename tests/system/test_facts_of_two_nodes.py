"""Two nodes for real, one process each, without torch: their places are compared."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Find = Callable[[dict[str, Any], str], dict[str, Any]]


def start(cli: Any, nodes: Any, tmp_path: Path, *words: str, zones: tuple[str, str]) -> list[Any]:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not here')\n")
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": nodes.address(0), "MASTER_PORT": "29400"}
    world["PYTHONPATH"] = str(tmp_path)
    command = [sys.executable, "-m", "wirespeed", *words, "-q"]
    return [
        cli.start_words(
            nodes.on(node, *command),
            env={**world, "RANK": str(node), "WIRESPEED_ZONE": zones[node]},
        )
        for node in (1, 0)
    ]


@pytest.mark.parametrize(
    ("more", "code", "status", "verdict"),
    [((), 1, "fail", "FAILED"), (("--allow", "PLACE-001"), 0, "warn", "PASSED")],
)
def test_two_zones_fail_where_one_is_asked_for(
    cli: Any,
    nodes: Any,
    tmp_path: Path,
    finding: Find,
    more: Any,
    code: int,
    status: str,
    verdict: str,
) -> None:
    words = ("check", "--only", "placement", "-o", "json", *more)
    second, first = [r.wait() for r in start(cli, nodes, tmp_path, *words, zones=("a", "b"))]
    assert (first.code, second.code) == (code, 0), first.err + second.err
    assert second.out == ""
    found = finding(first.json, "PLACE-001")
    assert (found["status"], first.json["verdict"]) == (status, verdict)
    assert {"a: node-0", "b: node-1"} <= set(found["evidence"])


def test_one_zone_passes(cli: Any, nodes: Any, tmp_path: Path, finding: Find) -> None:
    words = ("check", "--only", "placement", "-o", "json")
    second, first = [r.wait() for r in start(cli, nodes, tmp_path, *words, zones=("a", "a"))]
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert finding(first.json, "PLACE-001")["status"] == "pass"
    assert first.json["verdict"] == "PASSED"
    assert [node["ranks"] for node in first.json["world"]["nodes"]] == [[0], [1]]


def test_topo_shows_both(cli: Any, nodes: Any, tmp_path: Path) -> None:
    second, first = [r.wait() for r in start(cli, nodes, tmp_path, "topo", zones=("a", "b"))]
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "wirespeed topo · 2 nodes" in first.out
    assert "node-1 (1 node): the same as node-0" in first.out
    assert "10.77.0.1" in first.out
