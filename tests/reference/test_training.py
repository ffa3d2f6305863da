"""Published step times of strategies: read, related to naive's, and shown beside a run's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import usual
from wirespeed.cli import run as wirespeed
from wirespeed.errors import InputError
from wirespeed.model.training_records import Spread, Training
from wirespeed.reference.ask import of_naive, shipped_training, training_from_csv
from wirespeed.runs.store import save

HEAD = "system,ranks,model,batch,strategy,step_s,source\n"


def test_the_studys_steps_are_those_that_it_reports() -> None:
    figures = shipped_training()
    assert {one.strategy: one.step_s for one in figures} == {
        "naive": 0.417, "flat": 0.411, "overlap": 0.355, "bucketed": 0.352,
    }  # fmt: skip
    assert all(one.source and one.read for one in figures)
    assert of_naive(figures[-1], figures) == pytest.approx(0.352 / 0.417)
    assert of_naive(figures[-1], figures[1:]) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("system,ranks\n", "no column batch"),
        (HEAD + "x,2,xl,4,flat,soon,me\n", "t:2: could not convert"),
        (HEAD + "x,2,xl,4,flat,-1,me\n", "t:2: step_s is '-1'"),
    ],
)
def test_a_wrong_table_is_told(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        training_from_csv(text, source="t")


def _step(strategy: str, seconds: float) -> Training:
    spread = Spread(mean=seconds, std=0.0, low=seconds, high=seconds, samples=5)
    return Training(
        strategy=strategy, model="xl", ranks=2, nodes=1, batch=4, rounds=1, step=spread,
        samples_per_s=4 / seconds,
    )  # fmt: skip


def test_a_runs_shares_stand_beside(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    steps = (_step("naive", 2.0), _step("flat", 1.5))
    run = usual.run(command="train", verdict="UNKNOWN", training=steps)
    save(run)
    assert wirespeed(["reference", "training", "--run", "91ae", "-o", "json"]) == 0
    told = {one["strategy"]: one for one in json.loads(capsys.readouterr().out)}
    assert told["flat"]["here"] == 0.75
    assert told["overlap"]["here"] is None
    assert wirespeed(["reference", "training", "--run", "91ae"]) == 0
    assert "0.75" in capsys.readouterr().out
    save(replace(run, id="aaaaaaaa", training=(_step("flat", 1.5),)))
    assert wirespeed(["reference", "training", "--run", "aaaa"]) == 2
    assert "no step of the strategy naive" in capsys.readouterr().err
