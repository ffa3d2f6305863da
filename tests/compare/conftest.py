"""Runs with figures that a test chooses."""

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run, TimeStats, World

MakeRun = Callable[..., Run]


def measurement(size: int, time: float, *, wide: float = 0.01, **fields: object) -> Measurement:
    """One of that median; its 95 % interval is `wide` to both sides (0: none, as in an import)."""
    low, high = time * math.exp(-wide), time * math.exp(wide)
    given: dict[str, object] = {
        "op": "all_reduce",
        "engine": "torch",
        "dtype": "float32",
        "redop": "sum",
        "root": -1,
        "in_place": False,
        "size_bytes": size,
        "count": size // 4,
        "ranks": 2,
        "iterations": 20,
        "time": TimeStats(
            median=time, mean=time, low=low, high=high, min=low, p95=high, p99=high, max=high
        ),
        "algbw": size / time,
        "busbw": size / time,
    }
    return Measurement(**{**given, **fields})  # type: ignore[arg-type]


@pytest.fixture
def make_run() -> MakeRun:
    """`make_run("a1", {1024: 1e-5})`: times by size; more measurements, versions, a host."""

    def make(
        id: str,
        times: Mapping[int, float] | None = None,
        *,
        more: Sequence[Measurement] = (),
        versions: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        host: str = "node-a",
        started: str = "2026-11-03T10:00:00Z",
        wide: float = 0.001,
    ) -> Run:
        node = NodeFacts(
            host=host,
            ranks=(0, 1),
            facts=from_json(Facts, {"kernel": "6.1"}),
            environment=dict(environment or {}),
        )
        own = [measurement(size, time, wide=wide) for size, time in (times or {}).items()]
        return Run(
            id=id,
            command="bench",
            verdict="READY",
            exit_code=0,
            started=started,
            seconds=1.0,
            world=World(size=2, nodes=(node,), backend="gloo", launcher="local"),
            versions=dict(versions or {"torch": "2.12"}),
            measurements=(*own, *more),
        )

    return make


@pytest.fixture
def make_measurement() -> Callable[..., Measurement]:
    return measurement
