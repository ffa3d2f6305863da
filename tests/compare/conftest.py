"""Runs with figures that a test chooses."""

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

import usual
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run

MakeRun = Callable[..., Run]


def measurement(size: int, time: float, *, wide: float = 0.01, **fields: object) -> Measurement:
    """One of that median; its 95 % interval is `wide` to both sides (0: none, as in an import)."""
    low, high = time * math.exp(-wide), time * math.exp(wide)
    stats = usual.times(time, low=low, high=high, min=low, p95=high, p99=high, max=high)
    given = {"time": stats, "algbw": size / time, "busbw": size / time}
    return usual.measurement(size=size, **given | fields)


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
        return usual.run(
            id=id,
            command="bench",
            started=started,
            world=usual.world(node),
            versions=dict(versions or {"torch": "2.12"}),
            measurements=(*own, *more),
        )

    return make


@pytest.fixture
def make_measurement() -> Callable[..., Measurement]:
    return measurement
