"""Storage in every view."""

import math
from dataclasses import replace

import pytest

from wirespeed.compare.figures import figures_of
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.records import Run
from wirespeed.model.storage_records import Storage, StorageFigure, StorageNode
from wirespeed.views import Style, prometheus, render
from wirespeed.views.html.page import page

RATE = MedianTime(median=2e9, low=1.9e9, high=2.2e9, samples=9)


@pytest.fixture
def stored(check: Run) -> Run:
    write = StorageFigure(
        access="write",
        engine="fio",
        ranks=2,
        size=1 << 30,
        calls=1024,
        rate=RATE,
        latency=MedianTime(median=1e-3, low=9e-4, high=2e-3, samples=9),
        p95=2e-3,
        p99=3e-3,
        max=4e-2,
        slowest="node-b",
        slowest_ratio=MedianTime(median=1.2, low=1.1, high=1.3, samples=9),
    )
    files = replace(write, access="open", engine="own", per_s=replace(RATE, median=2e3))
    node = StorageNode(
        host="node-a",
        filesystem="nfs4",
        source="srv:/data",
        options="hard",
        direct=True,
        total=1 << 40,
        free=1 << 39,
        inodes=0,
        free_inodes=0,
    )
    found = Storage(folder="/data", nodes=(node,), figures=(write, files), sample=1 << 17)
    return replace(check, storage=found)


@pytest.mark.parametrize("format", ["table", "wide", "md"])
def test_figures_and_nodes(stored: Run, format: str) -> None:
    text = render(stored, format, Style(width=200)).replace("\\", "")
    for said in ("storage /data", "2.00 GB/s", "±10.0 %", "40.0 ms", "node-b 1.20×", "512 GiB"):
        assert said in text


def test_page_and_metrics(stored: Run) -> None:
    assert "Data and checkpoints" in page(stored)
    told = prometheus.render(stored, Style())
    how = 'command="check",access="write",engine="fio",ranks="2"'
    assert f"wirespeed_storage_bytes_per_second{{{how}}} 2000000000" in told


def test_runs_are_compared_by_it(stored: Run) -> None:
    found = {what.get("figure"): one for what, one in figures_of(stored).items()}
    assert found["write 1 GB (fio)"].log == pytest.approx(math.log(0.5))
    assert "open a sample (own)" in found
