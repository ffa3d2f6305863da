"""Tables of a replay and of a shape, in text, Markdown and the page."""

from dataclasses import replace

import pytest

from wirespeed.model.bench_records import MedianTime, ParallelGroup, Replay, ReplayedCall, Shape
from wirespeed.model.records import Run
from wirespeed.model.training_records import Ends, LoadFigures, Ratio
from wirespeed.views import Style, render


def median(seconds: float) -> MedianTime:
    return MedianTime(median=seconds, low=seconds * 0.9, high=seconds * 1.05, samples=12)


@pytest.fixture
def replayed(bench: Run) -> Run:
    """Of the first measurement, told by the job; and of a call that has none."""
    m = bench.measurements[0]
    known = ReplayedCall(
        op=m.op,
        dtype=m.dtype,
        groups=m.groups,
        size_bytes=m.size_bytes,
        calls=7,
        in_job=median(4 * m.time.median),
        last=m.time.median,
    )
    refused = ReplayedCall(op="gather", dtype="int8", groups="of-2", size_bytes=64, calls=1)
    replay = Replay(
        source="traces/",
        job_ranks=bench.world.size,
        job_steps=30,
        job_step=median(0.5),
        own=0.2,
        calls=(known, refused),
        unbroken=median(0.1),
        paced=median(0.3),
    )
    return replace(bench, replay=replay)


@pytest.mark.parametrize("format", ["table", "md", "wide"])
def test_each_call_alone_and_in_the_job(replayed: Run, format: str) -> None:
    text = render(replayed, format, Style(width=200)).replace("\\", "")
    assert "what a step of traces/ sends" in text
    rows = [line.split() for line in text.split("\n") if " of-2 " in line]
    assert rows, "a call that could not be timed is shown, too"
    first = next(line for line in text.split("\n") if " 7 " in line and "0.25" in line)
    assert "±10.0 %" in first
    for said in ("in the job, all of it", "500 ms", "own work between them (200 ms, as sleep)"):
        assert said in text


def test_sizes_are_not_told_twice(replayed: Run) -> None:
    assert " · each" not in render(replayed, "table", Style())


@pytest.fixture
def shaped(bench: Run) -> Run:
    """Of the first measurement as one kind of group; another one could not be timed."""
    m = bench.measurements[0]
    group = ParallelGroup(
        kind="tensor",
        ops=(m.op,),
        groups=m.groups,
        ranks=m.ranks,
        job_ranks=8,
        size_bytes=m.size_bytes,
        job_size_bytes=128 << 20,
    )
    refused = replace(group, kind="data", ops=("gather",), groups="every-2", job_ranks=16)
    shape = Shape(
        model="llama-70b",
        job="tensor 8 × pipeline 4 × data 16",
        job_ranks=512,
        ranks=4,
        dtype="bfloat16",
        tokens=256,
        job_tokens=8192,
        width=8192,
        columns=256,
        job_columns=3584,
        groups=(group, refused),
        lost=("pipeline",),
    )
    gain, ends = Ratio(value=1.25, low=1.1, high=1.3), Ends(low=0.009, high=0.012)
    product = LoadFigures(
        name="GEMM",
        beside="tensor",
        alone=0.01,
        together=0.016,
        ratio=Ratio(value=1.6, low=1.5, high=1.7),
        rounds=8,
        alone_interval=ends,
        gain=gain,
    )
    tensor = replace(product, name="tensor", beside="GEMM")
    return replace(bench, shape=shape, under_load=(product, tensor))


@pytest.mark.parametrize("format", ["table", "md", "wide"])
def test_groups_alone_and_at_once(shaped: Run, format: str) -> None:
    text = render(shaped, format, Style(width=200)).replace("\\", "")
    assert "llama-70b: tensor 8 × pipeline 4 × data 16 (512 ranks) · here tensor" in text
    assert "256 of 8192 tokens a micro-batch · bfloat16 · too few ranks for pipeline groups" in text
    assert "128 MiB" in text
    (refused,) = [line for line in text.split("\n") if " gather " in line]
    assert refused.count("–") >= 5, "what could not be timed is shown, too"
    rows = [line for line in text.split("\n") if "1.60×" in line]
    assert ["1.25×" in row for row in rows] == [True, False], "once a comparison"
    assert all("±20.0 %" in row for row in rows)


def test_sizes_of_a_shape_are_not_told_twice(shaped: Run) -> None:
    assert " · each" not in render(shaped, "table", Style())
