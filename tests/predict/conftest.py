"""Runs whose truth is known: times made by formula, with noise of a fixed seed."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import usual
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run, World
from wirespeed.model.training_records import Spread, Training

SIZES = tuple(4**k for k in range(5, 13))
Times = Callable[[int, int, int], float]
"""Seconds from nodes, ranks and size."""


def ring(nodes: int, ranks: int, size: int) -> float:
    """all_reduce: 20 µs a call, 10 µs a step, 1 GB/s."""
    return 20e-6 + 10e-6 * 2 * (ranks - 1) + 2 * (ranks - 1) / ranks * size / 1e9


def measurement(size: int, ranks: int, seconds: float, **more: Any) -> Measurement:
    known = math.isfinite(seconds) and seconds > 0
    rates = {"algbw": size / seconds if known else 0.0, "busbw": 0.0}
    return usual.measurement(seconds, size, ranks=ranks, **rates | more)


def world(nodes: int, each: int) -> World:
    facts = tuple(
        NodeFacts(
            host=f"node-{node}", ranks=tuple(range(node * each, (node + 1) * each)), facts=Facts()
        )
        for node in range(nodes)
    )
    return World(size=nodes * each, nodes=facts, backend="gloo", launcher="torchrun")


def bench(
    nodes: int,
    each: int = 1,
    *,
    times: Times = ring,
    sizes: Sequence[int] = SIZES,
    noise: float = 0.0,
    seed: int = 0,
    **more: Any,
) -> Run:
    """One run of `bench` over that world."""
    dice = random.Random(1000 * seed + 31 * nodes + each)
    mood = math.exp(dice.gauss(0, noise / 2))
    measured = tuple(
        measurement(
            size,
            nodes * each,
            times(nodes, nodes * each, size) * mood * math.exp(dice.gauss(0, noise)),
            **more,
        )
        for size in sizes
    )
    return usual.run(
        id=f"{seed:02x}{nodes:03x}{each:03x}",
        command="bench",
        world=world(nodes, each),
        measurements=measured,
    )


def trained(strategy: str, step: float, *, bucket: float | None = None, **more: Any) -> Training:
    fields: dict[str, Any] = {
        "strategy": strategy,
        "bucket_mb": bucket,
        "model": "tiny",
        "ranks": 2,
        "nodes": 2,
        "batch": 8,
        "rounds": 9,
        "step": Spread(mean=step, std=step / 50, low=step * 0.99, high=step * 1.01, samples=18),
        "parts": {"forward": 0.008, "backward": 0.014},
        "samples_per_s": 8 / step,
    }
    return Training(**{**fields, **more})


def training_run(*rows: Training, **config: Any) -> Run:
    return replace(
        bench(2, sizes=()), id="7ra1n", command="train", training=rows, config=dict(config)
    )


class Made:
    """The builders, since tests cannot import from here."""

    sizes = SIZES
    ring = staticmethod(ring)
    bench = staticmethod(bench)
    measurement = staticmethod(measurement)
    trained = staticmethod(trained)
    training_run = staticmethod(training_run)


@pytest.fixture
def made() -> type[Made]:
    return Made
