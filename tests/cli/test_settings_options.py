"""What --env, --rounds and --search mean, and what they refuse."""

import click
import pytest

from wirespeed.cli import bench as module
from wirespeed.cli.execute import replaced_choices
from wirespeed.cli.several import parse_variables
from wirespeed.errors import UsageError


def asked_of(monkeypatch, *arguments):
    taken = []
    monkeypatch.setattr(
        "wirespeed.cli.execute.execute",
        lambda ctx, plan, options, settings=None, **_: taken.append((plan, settings)) or 0,
    )
    module.bench.main(["all_reduce", "-e", "4K", *arguments], standalone_mode=False)
    return taken[0]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("A=Ring,Tree", ["Ring", "Tree"]),
        ("A=0", ["0"]),
        ("A=1,unset,1", ["1", None]),
        ("A=", [""]),
        (r"A=mlx5_0\,mlx5_1,mlx5_2", ["mlx5_0,mlx5_1", "mlx5_2"]),
        (r"A=\unset,a\\b", ["unset", r"a\b"]),
        ("A=^lo,x=y", ["^lo", "x=y"]),
    ],
)
def test_values(word, values):
    assert parse_variables([word]) == {"A": values}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["A"], "names no variable"),
        (["=1"], "names no variable"),
        (["1A=1"], "names no variable"),
        (["A=1", "A=2"], "twice"),
        (["A=1,,2"], "an empty value"),
        (["A=,2"], "an empty value"),
        (["A=1,"], "an empty value"),
        (["A=a\0b"], "NUL"),
        (["HF_TOKEN=x"], "secret"),
        (["WANDB_API_KEY"], "secret"),
        (["A=http://me:pw@proxy"], "password"),
        (["RANK=1"], "its place"),
        (["WIRESPEED_HOME=/tmp"], "its place"),
    ],
)
def test_refused(words, told):
    with pytest.raises(UsageError, match=told):
        parse_variables(words)


def test_a_comparison_from_the_command_line(monkeypatch):
    words = ("--env", "NCCL_ALGO=Ring,Tree", "--env", "OMP_NUM_THREADS=2,unset", "--seed", "5")
    plan, asked = asked_of(monkeypatch, *words)
    names = [one.name for one in asked.combinations]
    assert names == ["default", "NCCL_ALGO=Ring OMP_NUM_THREADS=2", "NCCL_ALGO=Ring",
                     "NCCL_ALGO=Tree OMP_NUM_THREADS=2", "NCCL_ALGO=Tree"]  # fmt: skip
    assert (asked.rounds, asked.search, asked.seed) == (11, False, 5)
    assert {step.measure.max_time_s for step in plan.steps} == {0.5}
    plan, asked = asked_of(
        monkeypatch, *words, "--rounds", "20", "--search", "--time-per-size", "2"
    )
    assert (asked.rounds, asked.search, asked.finalists) == (20, True, 3)
    assert {step.measure.max_time_s for step in plan.steps} == {2.0}


def test_without_env_all_is_as_ever(monkeypatch):
    plan, asked = asked_of(monkeypatch)
    assert asked is None
    assert {step.measure.max_time_s for step in plan.steps} == {2.0}
    for words in (("--rounds", "5"), ("--search",)):
        with pytest.raises(UsageError, match="nothing without --env"):
            asked_of(monkeypatch, *words)
    with pytest.raises(click.BadParameter):
        asked_of(monkeypatch, "--env", "A=1", "--rounds", "0")


def test_a_variable_that_is_passed_on_is_not_compared(monkeypatch):
    with pytest.raises(UsageError, match="-x A=1 and --env"):
        asked_of(monkeypatch, "--env", "A=1", "--on", "local", "-x", "A=1")


def test_a_size_that_differs_from_world_to_world_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="--max-fit"):
        asked_of(monkeypatch, "--env", "A=1", "--max-fit")


def test_what_the_environment_sets_is_named_where_it_is_not_used(monkeypatch):
    _, asked = asked_of(monkeypatch, "--env", "A=1", "--env", "B=2")
    (choice,) = replaced_choices(asked, {"B": "3", "C": "4"})
    assert choice.name == "B"
    assert "not used" in choice.reason
    assert replaced_choices(None, {"B": "3"}) == ()
