"""Records as the checks get them, with one thing changed at a time."""

from collections.abc import Callable
from typing import Any

import pytest

import usual
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Measurement,
    NodeFacts,
    Verification,
    World,
    WrongData,
)


def _measured(op: str = "all_reduce", **changes: Any) -> Measurement:
    """A timing; `half` is the half width of its interval relative to the median of 100 µs."""
    median, half = changes.pop("median", 100e-6), changes.pop("half", 0.05)
    return usual.measurement(median, half=half, **{"op": op, "redop": "none", "ranks": 4} | changes)


def _verified(op: str = "all_reduce", **changes: Any) -> Verification:
    told = {"op": op, "ranks": 4, "count": 1021, "elements": 4084}
    return usual.verification(4084, **told | changes)


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
