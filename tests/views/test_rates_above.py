"""A rate above what the links carry is never shown without a word, in any view of figures."""

from dataclasses import replace
from typing import Any

import pytest

from usual import measurement, node, run, world
from wirespeed.model.records import Run
from wirespeed.reference.roofline import CHECK
from wirespeed.views import md, sections, table
from wirespeed.views.html.page import page
from wirespeed.views.text import Style

NVLINK = 450e9
GPU: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "index": 0}


def gpu_run(op: str, busbw: float, command: str = "bench") -> Run:
    eight = node("a", *range(8), gpus=tuple({**GPU, "index": n} for n in range(8)))
    timed = measurement(size=1 << 30, op=op, ranks=8, busbw=busbw, algbw=busbw)
    there = world(eight, size=8, backend="nccl")
    return run(command=command, world=there, measurements=(timed,))


@pytest.mark.parametrize("command", ["bench", "check", "import"])
@pytest.mark.parametrize("op", ["broadcast", "all_gather", "scatter"])
def test_every_view_says_check_the_unit(op: str, command: str) -> None:
    impossible = gpu_run(op, 2 * NVLINK, command)
    wide = Style(width=10_000)
    assert CHECK in table.render(impossible, wide)
    assert CHECK in md.render(impossible, wide)
    assert CHECK in page(impossible)


@pytest.mark.parametrize("op", ["broadcast", "all_gather", "scatter"])
def test_nothing_is_said_of_a_rate_that_can_be(op: str) -> None:
    assert sections.rates_above(gpu_run(op, 0.9 * NVLINK)) == []


def test_switches_that_reduce_are_named_only_where_they_are() -> None:
    wide = Style(width=10_000)
    reduced = table.render(gpu_run("all_reduce", 479e9), wide)
    assert "where switches reduce" in reduced and "NVLS" in reduced
    assert "where switches reduce" not in table.render(gpu_run("scatter", 0.5 * NVLINK), wide)
    laptop = run(command="bench", measurements=(measurement(),))
    assert "where switches reduce" not in table.render(laptop, wide)


def test_many_are_counted() -> None:
    one = gpu_run("broadcast", 2 * NVLINK)
    many = replace(one, measurements=tuple(replace(one.measurements[0]) for _ in range(9)))
    lines = sections.rates_above(many)
    assert len(lines) == 7
    assert lines[-1] == f"3 more rates above their limit: {CHECK}"
