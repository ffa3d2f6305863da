import json
from pathlib import Path

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.records import Run

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def check() -> Run:
    """A run of `check` with findings of every status, on two nodes."""
    return from_json(Run, json.loads((GOLDEN / "check.run.json").read_text()))


@pytest.fixture
def bench() -> Run:
    """A run of `bench` with several operations, both sides, and a barrier."""
    return from_json(Run, json.loads((GOLDEN / "bench.run.json").read_text()))


@pytest.fixture
def flip() -> Run:
    """A real `check -l quick --inject flip:rank=1` on a noisy laptop: long before it is folded."""
    return from_json(Run, json.loads((GOLDEN / "flip.run.json").read_text()))


@pytest.fixture
def train() -> Run:
    """A real `train` of several strategies with --memory, --load and --scaling put together."""
    return from_json(Run, json.loads((GOLDEN / "train.run.json").read_text()))
