"""What a world is, told from the facts of its nodes."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.records import World
from wirespeed.reference.shape import gpu_called, shape_of, shape_told


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("H100", "H100 SXM"), ("h200", "H200 SXM"),
        ("A100", "A100 SXM"), ("H100 NVL", "H100 NVL"), ("NVIDIA GB300", "GB300"),
        ("4090", "RTX 4090"), ("NVIDIA GeForce RTX 5090", "RTX 5090"), ("H20", "H20"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"), ("gaudi3", "Gaudi 3"),
        ("A800", "A800 SXM"), ("AMD Instinct MI355X", "MI355X"), ("DGX Spark", "GB10"),
        ("NVIDIA Future 9000", "Future 9000"), ("MI300X", "MI300X"), ("v100", "V100 SXM2"), ("", ""),
    ],
)  # fmt: skip
def test_gpus_by_the_names_of_drivers_and_people(name: str, product: str) -> None:
    assert gpu_called(name) == product


def test_training_cards_are_told_from_the_slower_ones(cluster: Any) -> None:
    shape = shape_of(cluster(2))
    assert shape is not None
    assert (shape.gpu, shape.per_node, shape.nodes) == ("H100 SXM", 8, 2)
    assert (shape.interconnect, shape.nics, shape.nic_Gbitps) == ("ib", 8, 400.0)
    assert shape.words == "2 nodes of 8 × H100 SXM, InfiniBand 8 × 400 Gbit/s"


def test_a_setting_that_keeps_nccl_off_the_cards_does_not_change_what_is_expected(
    cluster: Any,
) -> None:
    shape = shape_of(cluster(2, environment={"NCCL_IB_DISABLE": "1"}))
    assert shape is not None
    assert shape.interconnect == "ib"


def test_links_that_are_down_lower_the_limit_and_not_the_expectation(
    cluster: Any, port: Any
) -> None:
    half = ({"name": "NVIDIA H100 80GB HBM3", "nvlinks": [True] * 9 + [False] * 9},) * 8
    inside = shape_of(_with_gpus(cluster(1), half))
    assert inside is not None
    assert (inside.interconnect, inside.gpu_link) == ("nvlink", 225e9)
    narrow = tuple(port(n, 400.0, pcie_GTps=16.0, pcie_width=16) for n in range(8))
    between = shape_of(cluster(2, rdma=narrow))
    assert between is not None
    assert between.nic_Gbitps == 400.0
    assert between.nic_carries_Gbitps == pytest.approx(252, abs=1)


def _with_gpus(world: World, gpus: Any) -> World:
    return replace(world, nodes=tuple(replace(node, gpus=gpus) for node in world.nodes))


@pytest.mark.parametrize(
    ("ports", "kind"),
    [
        ([("Ethernet", {})], "roce"),
        ([("Unspecified", {"driver": "efa"})], "efa"),
        ([("InfiniBand", {"state": "DOWN"})], "tcp"),
    ],
)
def test_kinds_of_ports(cluster: Any, port: Any, ports: Any, kind: str) -> None:
    rdma = tuple(port(n, 100.0, layer, **more) for n, (layer, more) in enumerate(ports))
    facts = {"net.nccl.interfaces": ["eth0"], "cpu.model": "Xeon"}
    nics = ({"name": "eth0", "virtual": False, "loopback": False, "speed_Gbitps": 100.0},)
    shape = shape_of(cluster(2, rdma=rdma, facts=facts, nics=nics))
    assert shape is not None
    assert (shape.interconnect, shape.nics, shape.nic_Gbitps) == (kind, 1, 100.0)


def test_a_made_up_speed_is_no_rate(cluster: Any) -> None:
    facts = {"net.gloo.interface": "veth0", "cpu.model": "Xeon"}
    nics = ({"name": "veth0", "virtual": True, "loopback": False, "speed_Gbitps": 10.0},)
    shape = shape_of(cluster(2, backend="gloo", facts=facts, nics=nics, gpus=2))
    assert shape is not None
    assert (shape.gpu, shape.interconnect, shape.nics) == ("cpu", "tcp", None)


def test_what_is_not_alike_or_not_known_has_no_shape(cluster: Any) -> None:
    world = cluster(2)
    uneven = replace(world.nodes[1], ranks=tuple(range(8, 12)))
    assert shape_of(replace(world, nodes=(world.nodes[0], uneven), size=12)) is None
    mixed = replace(world.nodes[1], gpus=({"name": "NVIDIA H200"},) * 8)
    assert shape_of(replace(world, nodes=(world.nodes[0], mixed))) is None
    assert shape_of(cluster(2, gpus=0)) is None
    assert shape_of(World(size=0, nodes=(), backend="nccl", launcher="")) is None


def test_words_of_a_person() -> None:
    assert shape_told("H100", per_node=8, nodes=1).interconnect == "nvlink"
    assert shape_told("H100", per_node=8, nodes=2).interconnect == ""
    assert shape_told("GB200", per_node=4, nodes=18).interconnect == "mnnvl"
    assert shape_told("cpu", per_node=4, nodes=1).interconnect == "memory"


@pytest.mark.parametrize("name", ["RTX4090", "rtx-4090", "rtx_4090", "RTX 4090", "4090"])
def test_a_name_without_gaps_is_the_product(name: str) -> None:
    assert gpu_called(name) == "RTX 4090"


def test_a_name_that_nobody_knows_stays() -> None:
    assert gpu_called("RTX9999") == "RTX9999"
