"""Goodput and soak as figures: Prometheus, JUnit, CSV."""

import csv
import io
import shutil
import subprocess
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import usual
from wirespeed.model.lasting_records import Goodput, Incident, Soak, SoakCell, SoakWindow
from wirespeed.model.records import Run
from wirespeed.views import Style, data, junit, prometheus

PLAIN = Style()
BOUND_S = 30.0
PARTS = {"useful": 80.0, "start": 9.0, "restore": 1.0, "checkpoint": 4.0}
PARTS |= {"lost": 2.0, "down": 3.0, "other": 1.0}
CELL = SoakCell(
    op="all_reduce", dtype="float32", size_bytes=4084, calls=10, wrong=1, low=1e-4, median=2e-4,
    p99=3e-4, max=4e-4, last_rank=1,
)  # fmt: skip


def incident(id: str) -> Incident:
    return Incident(at="2026-11-22T01:00:00Z", since_s=31.0, id=id, title="=1+1")


def run(command: str, **more: Any) -> Run:
    return usual.run(command=command, started="2026-11-22T00:59:00Z", seconds=61.0, **more)


@pytest.fixture
def lasted() -> Run:
    return run(
        "train",
        goodput=Goodput(
            model="tiny", strategy="ddp", ranks=2, asked_s=99.0, wall_s=100.0, parts_s=PARTS,
            last_step=400, lost_steps=10, step_s=0.2, step_samples=410, worlds=2, restarts=1,
            failures=1, checkpoints=8, checkpoint_s=0.5,
        ),
    )  # fmt: skip


@pytest.fixture
def soaked() -> Run:
    window = SoakWindow(
        since_s=0.0, seconds=30.0, world=1, calls=10, checked_bytes=1000, wrong=1, stalls=0,
        stalled_s=0.0, cells=(CELL,),
    )  # fmt: skip
    later = replace(window, world=2, cells=(replace(CELL, median=6e-4, p99=9e-4, max=1e-3),))
    return run(
        "check",
        soak=Soak(
            for_s=60.0, elapsed_s=60.0, window_s=30.0, worlds=2, calls=20, checked_bytes=2000,
            wrong_calls=2, stall_calls=3, windows=(window, later), uncounted={"incidents": 4},
            incidents=(incident("DIED-001"), incident("SOAK-001"), incident("SOAK-001")),
        ),
    )  # fmt: skip


def samples(run: Run, name: str) -> dict[str, float]:
    """By labels, as they are written."""
    found = {}
    for line in prometheus.render(run, PLAIN).splitlines():
        if line.startswith(f"{name}{{"):
            labels, _, value = line.removeprefix(name).rpartition(" ")
            found[labels] = float(value)
    return found


def test_goodput_has_gauges(lasted: Run) -> None:
    assert set(samples(lasted, "wirespeed_goodput_ratio").values()) == {0.8}
    parts = samples(lasted, "wirespeed_goodput_seconds")
    assert len(parts) == len(PARTS)
    assert sum(parts.values()) == sum(samples(lasted, "wirespeed_goodput_wall_seconds").values())
    assert [v for k, v in parts.items() if 'cause="down"' in k] == [3]
    assert list(samples(lasted, "wirespeed_goodput_restarts").values()) == [1]
    assert lasted.goodput is not None
    none_yet = replace(lasted, goodput=replace(lasted.goodput, step_samples=0, checkpoints=0))
    for name in ("step", "checkpoint"):
        assert samples(lasted, f"wirespeed_goodput_{name}_seconds")
        assert not samples(none_yet, f"wirespeed_goodput_{name}_seconds")


def test_a_soak_has_gauges(soaked: Run) -> None:
    for name, value in {
        "calls": 20, "compared_bytes": 2000, "wrong_calls": 2, "stalled_calls": 3,
        "worlds": 2, "failed_worlds": 1, "seconds": 60,
    }.items():  # fmt: skip
        assert list(samples(soaked, f"wirespeed_soak_{name}").values()) == [value], name
    kinds = {
        k.split('id="')[1][:-2]: v for k, v in samples(soaked, "wirespeed_soak_incidents").items()
    }
    assert kinds == {"DIED-001": 1, "SOAK-001": 2, "SOAK-002": 0, "not kept": 4}
    ((labels, slowest),) = samples(soaked, "wirespeed_soak_call_slowest_seconds").items()
    assert slowest == pytest.approx(1e-3) and 'op="all_reduce"' in labels
    assert list(samples(soaked, "wirespeed_soak_call_seconds").values()) == [pytest.approx(6e-4)]


@pytest.mark.system
def test_promtool_accepts_them(lasted: Run, soaked: Run) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("Requires: promtool (Debian's package prometheus)")
    text = prometheus.render_all([lasted, soaked], PLAIN)
    done = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True,
        timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_junit_tells_them_as_properties(lasted: Run, soaked: Run) -> None:
    document = ET.fromstring(junit.render_all([lasted, soaked], PLAIN))
    first, second = (
        {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
        for suite in document.iter("testsuite")
    )
    assert (first["goodput_ratio"], first["goodput_seconds lost"]) == ("0.8", "2")
    assert (second["soak_calls"], second["soak_incidents SOAK-001"]) == ("20", "2")
    assert "soak_calls" not in first and "soak_call_seconds" not in second


def test_csv_has_a_row_an_operation_of_a_window_and_a_row_an_incident(soaked: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(data.render_csv(soaked, PLAIN))))
    assert [row["row"] for row in rows] == ["operation"] * 2 + ["incident"] * 3
    assert [float(row["median_us"]) for row in rows[:2]] == [200, 600]
    assert rows[2]["id"] == "DIED-001" and rows[2]["title"] == "'=1+1", "no formula"


def test_csv_of_goodput_has_its_ratio(lasted: Run) -> None:
    (row,) = csv.DictReader(io.StringIO(data.render_csv(lasted, PLAIN)))
    assert float(row["goodput_ratio"]) == pytest.approx(0.8)
