"""Worlds as the facts of their nodes tell them."""

from collections.abc import Callable
from typing import Any

import pytest

import usual
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run, World


def _port(number: int, rate: float, layer: str = "InfiniBand", **more: Any) -> dict[str, Any]:
    return {
        "device": f"mlx5_{number}", "port": 1, "state": "ACTIVE", "rate_Gbitps": rate,
        "link_layer": layer, **more,
    }  # fmt: skip


def _node(number: int, gpus: int = 8, **changes: Any) -> NodeFacts:
    """A node of H100s with eight NDR cards and a slower one for storage."""
    gpu = {"name": "NVIDIA H100 80GB HBM3", "nvlinks": [True] * 18}
    fields: dict[str, Any] = {
        "host": f"node-{number}",
        "ranks": tuple(range(number * gpus, number * gpus + gpus)),
        "gpus": tuple({"index": n, **gpu} for n in range(gpus)),
        "rdma": (*(_port(n, 400.0) for n in range(8)), _port(8, 100.0, "Ethernet")),
        "environment": {},
    }
    facts = from_json(Facts, changes.pop("facts", {"cpu.model": "Xeon", "cpu.allowed": 96}))
    return NodeFacts(**{**fields, "facts": facts, **changes})


def _cluster(nodes: int = 2, backend: str = "nccl", **changes: Any) -> World:
    facts = tuple(_node(number, **changes) for number in range(nodes))
    size = sum(len(node.ranks) for node in facts)
    return World(size=size, nodes=facts, backend=backend, launcher="torchrun")


def _laptop(ranks: int = 2, cores: int = 8) -> World:
    node = NodeFacts(
        host="laptop",
        ranks=tuple(range(ranks)),
        facts=from_json(Facts, {"cpu.model": "AMD EPYC", "cpu.allowed": cores}),
    )
    return usual.world(node, size=ranks)


def _timed(
    busbw: float = 400e9, size: int = 8 << 30, half: float = 0.02, **changes: Any
) -> Measurement:
    """An all_reduce of 16 ranks; `half`: of its interval, relative to the median."""
    median = changes.pop("median", 2 * size / busbw)
    told = {"ranks": 16, "algbw": busbw / 2, "busbw": busbw}
    return usual.measurement(median, size, half, **told | changes)


def _run(world: World, *timings: Measurement, **changes: Any) -> Run:
    return usual.run(**{"world": world, "measurements": timings} | changes)


@pytest.fixture
def cluster() -> Callable[..., World]:
    return _cluster


@pytest.fixture
def port() -> Callable[..., dict[str, Any]]:
    return _port


@pytest.fixture
def laptop() -> Callable[..., World]:
    return _laptop


@pytest.fixture
def timed() -> Callable[..., Measurement]:
    return _timed


@pytest.fixture
def run() -> Callable[..., Run]:
    return _run
