"""Three reasons, first what the facts prove."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.reference.reasons import reasons
from wirespeed.reference.shape import shape_of, shape_told


@pytest.mark.parametrize(
    "kind",
    ["nvlink", "xgmi", "pcie", "memory", "mnnvl", "mnnvl+ib", "ib", "roce", "efa", "tcp", ""],
)
def test_always_three_that_differ(kind: str) -> None:
    shape = shape_told("H100", per_node=8, nodes=2, interconnect=kind)
    assert len(set(reasons(shape, (), 0.7))) == 3


def test_a_setting_comes_first_with_the_hosts_that_have_it(cluster: Any) -> None:
    world = cluster(2)
    world.nodes[1].environment["NCCL_IB_DISABLE"] = "1"
    shape = shape_of(world)
    assert shape is not None
    found = reasons(shape, world.nodes, 0.02)
    assert found[0] == "NCCL_IB_DISABLE=1 is set on node-1"
    assert found[1].startswith("NCCL goes over TCP instead of InfiniBand")


def test_facts_come_before_what_is_frequent(cluster: Any) -> None:
    one, other = cluster(2).nodes
    one.gpus[3]["slowed_by"] = ["power cap"]
    facts = replace(other.facts, memlock_soft=65536, gpudirect_peer_module="")
    world = replace(cluster(2), nodes=(one, replace(other, facts=facts)))
    shape = shape_of(world)
    assert shape is not None
    assert reasons(shape, world.nodes, 0.8) == (
        "GPU 3 of node-0 is slowed down by power cap",
        "memlock is limited to 65536 bytes on node-1, too little for RDMA",
        "neither nvidia-peermem nor dma-buf on node-1: no GPUDirect RDMA",
    )


def test_a_node_with_fewer_ports_is_named(cluster: Any, port: Any) -> None:
    world = cluster(3)
    short = replace(world.nodes[2], rdma=tuple(port(n, 400.0) for n in range(7)))
    world = replace(world, nodes=(*world.nodes[:2], short))
    shape = shape_of(world)
    assert shape is not None
    assert reasons(shape, world.nodes, 0.8)[0] == "node-2 has 7 ports of 400 Gbit/s, the others 8"


def test_crowded_cores_are_told_on_a_laptop(laptop: Any) -> None:
    world = laptop(ranks=4, cores=2)
    shape = shape_of(world)
    assert shape is not None
    assert reasons(shape, world.nodes, 0.5)[0] == "4 ranks share 2 cores on laptop"


H100: dict[str, Any] = {"per_node": 8, "nics": 8, "nic_Gbitps": 400.0}


@pytest.mark.parametrize("kind", ["ib", "roce"])
def test_half_points_to_what_halves(kind: str) -> None:
    found = reasons(shape_told("H100", nodes=2, interconnect=kind, **H100), (), 0.4)
    assert found[0].startswith("ACS is on or GPUDirect RDMA is off")
    assert found[1].startswith("one node, card or cable is slow")
    assert found[2].startswith("fewer cards in use")
    assert all("nccl" in one or "NCCL" in one for one in found)


def test_a_ring_on_two_nodes_is_told_as_such() -> None:
    two = shape_told("H100", nodes=2, interconnect="ib", **H100)
    assert reasons(two, (), 370 / 445)[0].startswith("NCCL takes a ring")
    assert not any("takes a ring" in one for one in reasons(two, (), 0.7))
    a100 = shape_told("A100", nodes=2, interconnect="ib", **H100)
    assert not any("takes a ring" in one for one in reasons(a100, (), 370 / 445))


def test_next_to_nothing_over_roce_is_dropped_packets_or_tcp() -> None:
    found = reasons(shape_told("H100", nodes=2, interconnect="roce", **H100), (), 0.01)
    assert found[0].startswith("NCCL goes over TCP")
    assert "packets are dropped" in found[1]


@pytest.mark.parametrize(("gpu", "has"), [("H100", True), ("A100", False), ("V100", False)])
def test_nvls_is_a_reason_only_where_the_gpu_has_it(gpu: str, has: bool) -> None:
    shape = shape_told(gpu, per_node=8, nodes=1, interconnect="nvlink")
    assert any("NVLS is not in use" in one for one in reasons(shape, (), 0.8)) == has
