"""`--ranks 2,4`, `--backend gloo,nccl`, `--batch 16,32`, `--sizes`: a grid, and what is refused."""

import click
import pytest

from wirespeed.cli.options import Listed
from wirespeed.cli.run_options import RunOptions
from wirespeed.cli.several import grid_of
from wirespeed.errors import UsageError
from wirespeed.node import limits
from wirespeed.plan import Plan

PLAN = Plan(command="bench", steps=())
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(limits, "count_gpus", lambda: 2)


def options(**values):
    given = {
        "color": "auto", "quiet": True, "verbose": False, "ranks": None, "backend": "auto",
        "engine": "torch", "seed": 1, "timeout": 30.0, "startup_timeout": 120.0, "inject": (),
        "fail_on": "fail", "allow": None,
    }  # fmt: skip
    from wirespeed.cli.run_options import Placement

    original, Placement.take = Placement.take, staticmethod(lambda _: None)
    try:
        return RunOptions.take({**given, **values}, "table", several=("ranks", "backend"))
    finally:
        Placement.take = original


def test_one_value_is_itself_and_several_are_a_tuple() -> None:
    ranks = Listed(click.IntRange(1, 9))
    assert ranks.convert("2", None, None) == 2
    assert ranks.convert(2, None, None) == 2
    assert ranks.convert("2,4,2", None, None) == (2, 4)
    for wrong in ("2,x", "2,,4", "10", "0,1"):
        with pytest.raises(click.BadParameter):
            ranks.convert(wrong, None, None)


def test_every_combination_is_a_world_in_the_order_asked_for() -> None:
    found = grid_of(options(ranks=(4, 2), backend=("gloo", "nccl")), lambda point: PLAN)
    assert [(w.point.backend, w.point.ranks, bool(w.plan)) for w in found] == [
        ("gloo", 4, True), ("gloo", 2, True), ("nccl", 4, False), ("nccl", 2, True),
    ]  # fmt: skip
    assert found[2].point.reason == "nccl needs a GPU a rank: 2 GPUs here"


def test_without_several_values_there_is_no_grid() -> None:
    assert grid_of(options(ranks=2), lambda point: PLAN) == []
    assert grid_of(options(ranks=2), lambda point: PLAN, batches=(16,)) == []


def test_a_batch_that_cannot_be_shared_is_a_row_unless_all_are() -> None:
    def plan_for(point):
        if point.batch % point.ranks:
            raise UsageError(f"{point.batch} by {point.ranks}", expected="a multiple")
        return PLAN

    found = grid_of(options(ranks=(1, 4)), plan_for, batches=(2, 4))
    assert [w.point.reason for w in found] == ["", "", "2 by 4", ""]
    with pytest.raises(UsageError, match="3 by 2"):
        grid_of(options(ranks=(2, 4)), plan_for, batches=(3,))


def test_too_many_ranks_for_the_memory_say_so(monkeypatch) -> None:
    monkeypatch.setattr(limits, "memory_available_bytes", lambda: 1 << 30)
    found = grid_of(options(ranks=(2, 100)), lambda point: PLAN)
    assert not found[0].point.reason
    assert "of memory before the first operation" in found[1].point.reason


def test_inside_of_a_launcher_there_is_no_grid(monkeypatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(UsageError, match="on this machine only"):
        grid_of(options(ranks=(1, 2)), lambda point: PLAN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check --ranks 2,4", "--ranks with several values"),
        ("locate --backend gloo,nccl", "--backend with several values"),
        ("train --backend gloo,nccl", "--backend with several values"),
        ("train --ranks 1,2 --scaling 1,2", "--scaling on a grid"),
        ("train --batch 4,8 --for 30s", "--for on a grid"),
        ("train --batch 4,8 --trace a.json", "--trace on a grid"),
        ("bench all_reduce --ranks 1,2 --env A=1", "--env on a grid"),
        ("bench all_reduce --sizes 1M -b 2M", "--sizes beside -b"),
        ("bench all_reduce --sizes ,", "--sizes"),
        ("bench all_reduce --sizes 0", "--sizes"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: str, said: str, capsys, tmp_path, monkeypatch
) -> None:
    from wirespeed.cli import run

    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == 2
    assert said in capsys.readouterr().err


def test_sizes_are_those_that_were_listed() -> None:
    from wirespeed.cli.bench import _listed_sizes

    assert _listed_sizes("10M,1M,1M") == [1 << 20, 10 << 20]
