"""Tables of a shape, in text, Markdown and the page."""

from dataclasses import replace

import pytest

from wirespeed.model.records import Run
from wirespeed.model.shape_records import ParallelGroup, Shape
from wirespeed.model.training_records import Ends, LoadFigures, Ratio
from wirespeed.views import Style, render


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
        job_ranks=128,
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
    assert "llama-70b: tensor 8 × data 16 (128 ranks) · here tensor" in text
    assert "256 of 8192 tokens a micro-batch · bfloat16 · too few ranks for pipeline groups" in text
    assert "128 MiB" in text
    (refused,) = [line for line in text.split("\n") if " gather " in line]
    assert refused.count("–") >= 5, "what could not be timed is shown, too"
    rows = [line for line in text.split("\n") if "1.60×" in line]
    assert ["1.25×" in row for row in rows] == [True, False], "once a comparison"
    assert all("±20.0 %" in row for row in rows)


def test_sizes_are_not_told_twice(shaped: Run) -> None:
    assert " · each" not in render(shaped, "table", Style())
