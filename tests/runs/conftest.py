from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Choice,
    Finding,
    Measurement,
    NodeFacts,
    Run,
    TimeStats,
    Verification,
    World,
    WrongData,
)

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a WIRESPEED_HOME of its own."""
    path = tmp_path / "home"
    monkeypatch.setenv("WIRESPEED_HOME", str(path))
    return path


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def small_run() -> Run:
    """One of everything, so that each part of the shape is there."""
    time = TimeStats(
        median=61e-6, mean=62e-6, low=60e-6, high=63e-6, min=50e-6, p95=80e-6, p99=90e-6, max=1e-4
    )
    shape = {
        "op": "all_reduce",
        "engine": "torch",
        "dtype": "float32",
        "redop": "sum",
        "root": -1,
        "in_place": False,
        "size_bytes": 1024,
        "count": 256,
        "ranks": 2,
    }
    measurement = Measurement(
        **shape, iterations=20, time=time, algbw=16.8e6, busbw=16.8e6, rank_medians=(6e-5, 6.1e-5)
    )
    wrong = WrongData(
        rank=1,
        host="a",
        wrong=1,
        elements=256,
        first_byte=0,
        last_byte=3,
        chunk="from rank 0",
        guess="stale",
        example="element 0: 1.0, expected 2.0",
    )
    return Run(
        id="0badcafe",
        command="bench",
        verdict="NOT READY",
        exit_code=1,
        started="2026-11-03T10:11:12.345Z",
        seconds=1.5,
        world=World(
            size=2,
            nodes=(
                NodeFacts(
                    host="a",
                    ranks=(0, 1),
                    facts=from_json(Facts, {"kernel": "6.8", "cores": 2}),
                    gpus=({"name": "H100"},),
                    environment={"NCCL_DEBUG": "INFO"},
                    unknown={"ecc": "no driver"},
                ),
            ),
            backend="gloo",
            launcher="local",
        ),
        versions={"torch": "2.13.0"},
        environment={"NCCL_DEBUG": "INFO"},
        config={"ops": ["all_reduce"], "deep": {"a": None}},
        choices=(Choice("ranks", "2", "the cores"),),
        findings=(Finding(id="COL-001", status="fail", title="wrong data", evidence=("a:1",)),),
        measurements=(measurement,),
        verifications=(Verification(**shape, wrong=1, elements=512, errors=(wrong,)),),
    )


@pytest.fixture
def finished(small_run: Run) -> Run:
    return replace(small_run, verdict="READY", exit_code=0, findings=())
