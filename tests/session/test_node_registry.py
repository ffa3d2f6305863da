"""Nodes as they are told, before and after the world is joined."""

from typing import Any

from wirespeed.session.run_builder import NodeRegistry


def node(host: str, *ranks: int) -> dict[str, Any]:
    return {"host": host, "ranks": list(ranks), "facts": {}}


def test_before_joining_a_node_is_what_it_says() -> None:
    recorder = NodeRegistry()
    recorder.tell(node("b", 2, 3))
    recorder.tell(node("a", 0, 1))
    assert [(one.host, one.ranks) for one in recorder.nodes()] == [("a", (0, 1)), ("b", (2, 3))]
    assert not recorder.joined


def test_joining_settles_hosts_and_ranks() -> None:
    recorder = NodeRegistry()
    recorder.tell(node("box", 0))
    recorder.tell(node("box", 1))
    recorder.seat(["box", "box#2", "box"])
    assert [(one.host, one.ranks) for one in recorder.nodes()] == [("box", (0, 2)), ("box#2", (1,))]


def test_a_host_that_is_told_twice_is_one_node() -> None:
    recorder = NodeRegistry()
    recorder.tell(node("box", 0))
    recorder.tell(node("box", 1))
    recorder.seat(["box", "box"])
    assert [(one.host, one.ranks) for one in recorder.nodes()] == [("box", (0, 1))]


def test_gpus_are_joined_with_ranks_by_uuid() -> None:
    """CUDA's order is not NVML's; without a rank that computes on a GPU nothing is said."""
    told = {**node("box", 0), "gpus": [{"index": 0, "uuid": "GPU-a"}, {"index": 1}]}
    recorder = NodeRegistry()
    recorder.tell(told)
    recorder.seat(["box", "box"], ["GPU-b", "GPU-a"])
    assert recorder.nodes()[0].gpus == ({"index": 0, "uuid": "GPU-a", "ranks": [1]}, {"index": 1})
    recorder.seat(["box", "box"], ["", ""])
    assert recorder.nodes()[0].gpus == tuple(told["gpus"])


def test_peers_get_the_settled_names() -> None:
    recorder = NodeRegistry()
    recorder.tell(node("box", 0))
    recorder.peers({"rank": 0, "peers": [{"rank": 1, "host": "box", "tcp": ""}]})
    recorder.seat(["box", "box#2"])
    assert recorder.nodes()[0].peers == ({"rank": 1, "host": "box#2", "tcp": ""},)
