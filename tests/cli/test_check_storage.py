"""What a job needs to read, by its own training."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.cli.check import _trained
from wirespeed.model.codec import from_json
from wirespeed.model.records import Run
from wirespeed.runs.store import save

GOLDEN = Path(__file__).parents[1] / "golden" / "train.run.json"


def test_samples_a_second_are_those_of_the_newest_run_of_that_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    run = replace(from_json(Run, json.loads(GOLDEN.read_text())), verdict="READY")
    save(run)
    model = run.training[0].model
    rate, source = _trained(model)
    assert rate == max(one.samples_per_s for one in run.training if one.model == model)
    assert source.startswith(f"train run {run.id}")
    assert _trained("another") == (0.0, "")
