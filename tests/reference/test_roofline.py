"""The model's limit, by name, and why busbw may be above it."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.reference.roofline import Limit, passed, roofline, share
from wirespeed.reference.shape import shape_of, shape_told

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
    assert roofline(shape, "all_reduce") is None, "the memory's bandwidth is not among the facts"
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
    assert "look again" in passed(off, "all_reduce", 479e9, limit)
    assert "look again" in passed(one, "broadcast", 479e9, limit)
    a100 = shape_told("A100", per_node=8, nodes=1)
    assert "look again" in passed(a100, "all_reduce", 350e9, roofline(a100, "all_reduce"))


def test_between_nodes_nodes_and_switches_add_up() -> None:
    two = shape_told("H100", per_node=8, nodes=2, **NDR)
    text = passed(two, "all_reduce", 450e9, roofline(two, "all_reduce"))
    assert "30.0 GB/s for each GPU" in text, "450 × (2 − 1) / (16 − 1)"
    assert "SHARP" in text
    efa = replace(two, interconnect="efa")
    assert "SHARP" not in passed(efa, "all_reduce", 450e9, roofline(efa, "all_reduce"))
