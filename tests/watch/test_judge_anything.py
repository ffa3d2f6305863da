"""Whatever agents tell, the judge answers: no error, no warning of numpy, a record to keep."""

import json

import numpy as np
import pytest

from wirespeed.model.codec import to_json
from wirespeed.watch.judge import judge
from wirespeed.watch.steps import COLUMNS, LinkUse, RankUse, StepTable


def drawn(rng: np.random.Generator, ranks: int, rows: int) -> np.ndarray:
    """Times with holes, zeros, extremes, or of nobody."""
    values = np.abs(rng.normal(0.1, 0.05, (ranks, rows))) * rng.choice([0, 1, 1, 1, 1e-3, 1e6])
    way = rng.integers(6)
    if way < 3:
        values[[np.s_[:], rng.random((ranks, rows)) < 0.5, rng.integers(ranks)][way]] = np.nan
    elif way == 3:
        values[rng.random((ranks, rows)) < 0.5] = 0
    return values.astype(np.float32)


def rubbish(seed: int) -> StepTable:
    rng = np.random.default_rng(seed)
    ranks, rows = int(rng.choice([1, 2, 3, 4, 9])), int(rng.choice([1, 2, 19, 25, 60, 200]))
    each = rng.choice([1, 2, 64], rows).astype(np.int64)
    return StepTable(
        hosts=[f"host{rank // 2}" for rank in range(ranks)],
        first=np.cumsum(each) - each,
        each=each,
        columns={name: drawn(rng, ranks, rows) for name in COLUMNS},
        begin_s=np.where(rng.random(rows) < 0.3, np.nan, np.cumsum(each) * 0.1),
        use=[RankUse(0, step, int(rng.integers(10**9))) for step in range(30)],
        bad_loss={0: 3},
        links=[
            LinkUse(
                rank=0,
                peer="x",
                step=step,
                seconds=0.0,
                busy_s=0.0,
                sent_bytes=0,
                rtt_s=0,
                retransmits=0,
            )
            for step in range(3)
        ],
        addresses={"x": "host9"},
    )


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("block", range(8))
def test_the_judge_answers_whatever_it_gets(block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        table = rubbish(seed)
        judged = judge(table, world_size=len(table.hosts) + 1)
        json.dumps(to_json(judged.watched), allow_nan=False)
        assert any(one.id == "WATCH-014" for one in judged.findings)
        assert not any("nan" in one.saw + one.costs for one in judged.findings)
