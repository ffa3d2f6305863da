"""The model's limit, by name, and why busbw may be above it."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.reference.ask import Asked, ask
from wirespeed.reference.roofline import CHECK, Limit, passed, roofline, share
from wirespeed.reference.shape import CPU, shape_of, shape_told

NDR: dict[str, Any] = {"interconnect": "ib", "nics": 8, "nic_Gbitps": 400.0}


def test_within_a_node_and_between_nodes() -> None:
    inside = roofline(shape_told("H100", per_node=8, nodes=1), "all_reduce")
    assert inside == Limit(450e9, "ring over NVLink, one direction of one GPU")
    two = shape_told("H100", per_node=8, nodes=2, **NDR)
    assert roofline(two, "all_gather") == Limit(400e9, "ring over 8 × 400 Gbit/s a node")
    every = roofline(two, "all_to_all")
    assert every is not None
    assert every.busbw == pytest.approx(50e9 * 15 / 8)


def test_a_narrow_pcie_link_counts_instead_of_the_port() -> None:
    two = replace(shape_told("H100", per_node=8, nodes=2, **NDR), nic_carries_Gbitps=200.0)
    limit = roofline(two, "all_reduce")
    assert limit is not None
    assert limit.busbw == 200e9
    assert "narrowed by their PCIe link" in limit.model


def test_what_no_fact_tells_has_no_limit(laptop: Any) -> None:
    shape = shape_of(laptop())
    assert shape is not None
    assert roofline(shape, "all_reduce") is None, "how fast a core copies is not among the facts"
    two = shape_told("H100", per_node=8, nodes=2, interconnect="ib")
    assert roofline(two, "all_reduce") is None
    assert roofline(shape_told("H100", per_node=8, nodes=1), "send_recv") is None
    assert roofline(shape_told("H100", per_node=1, nodes=1), "all_reduce") is None


def test_the_model_is_named_with_the_ratio() -> None:
    text = share(200e9, Limit(400e9, "ring over 8 × 400 Gbit/s a node"))
    assert text == '0.50 of 400 GB/s, the limit of the model "ring over 8 × 400 Gbit/s a node"'


def test_nvls_explains_what_passes_the_wire() -> None:
    one = shape_told("H100", per_node=8, nodes=1)
    limit = roofline(one, "all_reduce")
    assert "NVLS" in passed(one, "all_reduce", 479e9, limit)
    assert passed(one, "all_reduce", 440e9, limit) == ""
    off = replace(one, switch="nvls off")
    assert passed(off, "all_reduce", 479e9, limit).endswith(CHECK)
    assert passed(one, "broadcast", 479e9, limit).endswith(CHECK)
    a100 = shape_told("A100", per_node=8, nodes=1)
    assert passed(a100, "all_reduce", 350e9, roofline(a100, "all_reduce")).endswith(CHECK)
    # No switch makes a GPU send less than its data once.
    assert passed(one, "all_reduce", 1e15, limit).endswith(CHECK)


def test_between_nodes_nodes_and_switches_add_up() -> None:
    two = shape_told("H100", per_node=8, nodes=2, **NDR)
    text = passed(two, "all_reduce", 450e9, roofline(two, "all_reduce"))
    assert "30.0 GB/s for each GPU" in text, "450 × (2 − 1) / (16 − 1)"
    assert "SHARP" in text
    efa = replace(two, interconnect="efa")
    assert "SHARP" not in passed(efa, "all_reduce", 450e9, roofline(efa, "all_reduce"))


@pytest.mark.parametrize("op", ["all_gather", "scatter", "broadcast", "all_to_all", "gather"])
@pytest.mark.parametrize("fabric", ["ib", "rdma", "efa", "tcp"])
def test_switches_explain_only_what_they_reduce(op: str, fabric: str) -> None:
    two = replace(shape_told("H100", per_node=8, nodes=2, **NDR), interconnect=fabric)
    limit = roofline(two, op)
    assert limit is not None
    text = passed(two, op, 1.2 * limit.busbw, limit)
    assert "SHARP" not in text and "add up" not in text
    assert "traffic shaper" in text and "share its memory" in text
    assert text.endswith(CHECK)


def test_what_even_switches_that_reduce_do_not_explain() -> None:
    two = shape_told("H100", per_node=8, nodes=2, **NDR)
    assert passed(two, "all_reduce", 1e15, roofline(two, "all_reduce")).endswith(CHECK)


def test_nodes_without_gpus_have_a_wire_too() -> None:
    lab = shape_told("", per_node=1, nodes=2, interconnect="tcp", nics=1, nic_Gbitps=1.0)
    lab = replace(lab, gpu=CPU)
    limit = roofline(lab, "scatter")
    assert limit is not None
    text = passed(lab, "scatter", 1.5 * limit.busbw, limit)
    assert "traffic shaper" in text and "share its memory" not in text
    assert text.endswith(CHECK)


def memory(laptop: Any, ranks: int, cores: int, rate: Any = 16.0, **facts: Any) -> Any:
    world = laptop(ranks=ranks)
    told = {
        "cpu.model": "AMD EPYC",
        "memory.copy_GBps": rate,
        "cpu.shared": cores,
        "cpu.quota": "unlimited",
    }
    node = replace(world.nodes[0], facts=from_json(Facts, told | facts))
    return shape_of(replace(world, nodes=(node,)))


@pytest.mark.parametrize(
    ("op", "passes"),
    [
        ("all_reduce", 2.5),
        ("reduce_scatter", 3.0),
        ("all_gather", 2.0),
        ("all_to_all", 2.0),
        ("broadcast", 2.0 * 3 / 4),
        ("reduce", 3.0 * 3 / 4),
    ],
)
def test_copies_bound_ranks_of_one_machine(laptop: Any, op: str, passes: float) -> None:
    """All that four ranks on two cores copy in a second, shared by what an operation must copy."""
    limit = roofline(memory(laptop, 4, 2), op)
    assert limit is not None
    assert limit.busbw == pytest.approx(2 * 16e9 / 4 / passes)
    assert "at most" in limit.model and "2 cores for 4 ranks" in limit.model


def test_a_rank_keeps_two_cores_busy_at_most(laptop: Any) -> None:
    many = roofline(memory(laptop, 2, 64), "all_gather")
    assert many is not None
    assert many.busbw == 2 * 16e9 / 2
    half = roofline(memory(laptop, 2, 64, **{"cpu.quota": 0.5}), "all_gather")
    assert half is not None
    assert half.busbw == 0.5 * 16e9 / 2 / 2


@pytest.mark.parametrize("rate", [None, 0.0, 1e6, "fast", float("nan")])
def test_a_rate_that_cannot_be_is_none(laptop: Any, rate: Any) -> None:
    assert roofline(memory(laptop, 2, 2, rate), "all_reduce") is None


def test_a_bound_that_is_beaten_says_nothing(laptop: Any) -> None:
    shape = memory(laptop, 2, 2)
    limit = roofline(shape, "all_gather")
    assert limit is not None
    assert share(0.9 * limit.busbw, limit).startswith("0.90 of 8.00 GB/s")
    assert share(1.1 * limit.busbw, limit) == ""
    assert passed(shape, "all_gather", 1.1 * limit.busbw, limit) == ""
    beaten = ask(shape, "all_gather", Asked(1 << 20, 1.1 * limit.busbw), None)
    assert (beaten.limit, beaten.place) == (None, "unknown")
    assert ask(shape, "all_gather", Asked(1 << 20, limit.busbw / 2), None).limit == limit


def test_mpi_shares_memory_and_has_no_such_bound(laptop: Any) -> None:
    shape = memory(laptop, 2, 2)
    assert roofline(shape, "all_gather", "mpi") is None
    assert roofline(shape, "all_gather", "deepspeed") == roofline(shape, "all_gather")


def test_a_part_of_a_mesh_has_a_part_of_its_links() -> None:
    two, eight = (shape_told("MI300X", per_node=n, nodes=1) for n in (2, 8))
    part, whole = roofline(two, "all_reduce"), roofline(eight, "all_reduce")
    assert part is not None and whole is not None
    assert (part.busbw, whole.busbw) == (64e9, 448e9)
    assert "1 of 7 xGMI links" in part.model
