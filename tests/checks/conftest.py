"""Records as the checks get them, with one thing changed at a time."""

from collections.abc import Callable
from typing import Any

import pytest

from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Measurement,
    NodeFacts,
    TimeStats,
    Verification,
    World,
    WrongData,
)


def _measured(op: str = "all_reduce", **changes: Any) -> Measurement:
    """A timing; `half` is the half width of its interval relative to the median of 100 µs."""
    median, half = changes.pop("median", 100e-6), changes.pop("half", 0.05)
    time = TimeStats(
        median=median, mean=median, low=median * (1 - half), high=median * (1 + half),
        min=median, p95=median, p99=median, max=median,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "op": op, "engine": "torch", "dtype": "float32", "redop": "none", "root": -1,
        "in_place": False, "size_bytes": 1024, "count": 256, "ranks": 4, "iterations": 20,
        "time": time, "algbw": 1e9, "busbw": 1e9,
    }  # fmt: skip
    return Measurement(**{**fields, **changes})


def _verified(op: str = "all_reduce", **changes: Any) -> Verification:
    fields: dict[str, Any] = {
        "op": op, "engine": "torch", "dtype": "float32", "redop": "sum", "root": -1,
        "in_place": False, "size_bytes": 4084, "count": 1021, "ranks": 4, "wrong": 0,
        "elements": 4084,
    }  # fmt: skip
    return Verification(**{**fields, **changes})


def _wrong(rank: int = 1, **changes: Any) -> WrongData:
    fields: dict[str, Any] = {
        "rank": rank, "host": "node-a", "wrong": 1, "elements": 1021, "first_byte": 8,
        "last_byte": 11, "chunk": "from rank 0", "guess": "bit flip",
        "example": "element 2: saw 3.0, expected 1.0",
    }  # fmt: skip
    return WrongData(**{**fields, **changes})


@pytest.fixture
def measured() -> Callable[..., Measurement]:
    return _measured


@pytest.fixture
def verified() -> Callable[..., Verification]:
    return _verified


@pytest.fixture
def wrong() -> Callable[..., WrongData]:
    return _wrong


@pytest.fixture
def world() -> World:
    """Four ranks on two nodes, without a fact that could differ."""
    nodes = (
        NodeFacts(host="node-a", ranks=(0, 1), facts=Facts()),
        NodeFacts(host="node-b", ranks=(2, 3), facts=Facts()),
    )
    return World(size=4, nodes=nodes, backend="gloo", launcher="local")
