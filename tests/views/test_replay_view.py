"""Tables of a replay, in text and Markdown."""

from dataclasses import replace

import pytest

from wirespeed.model.bench_records import MedianTime, Replay, ReplayedCall
from wirespeed.model.records import Run
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
