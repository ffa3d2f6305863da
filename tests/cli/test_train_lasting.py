"""`wirespeed train --for`: what is asked for becomes a plan, or is refused with what would do."""

import pytest

from wirespeed.cli.options import parse_duration
from wirespeed.cli.train_plan import Asked, lasting_case, lasting_of
from wirespeed.errors import UsageError
from wirespeed.plan import Plan, TrainPlan
from wirespeed.rank.training.lasting import seconds_left

NOTHING = dict.fromkeys(
    ("for_", "checkpoint_every", "checkpoint_dir", "scaling", "rounds", "trace"), None
)
NOTHING |= dict.fromkeys(("resume", "memory", "fit", "load"), False)


def lasting(launched=False, elsewhere=False, **values):
    return lasting_of(NOTHING | values, launched=launched, elsewhere=elsewhere)


def asked(*names, buckets=()):
    return Asked(
        strategies=names, buckets=buckets, world=2, batch=8, micro_batches=1, worlds=(), kinds=()
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30)]
)
def test_lengths_of_time(text, seconds):
    assert parse_duration(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "30", "0s", "-5m", "3y", "m", "1m x", "999999h", "nan s"])
def test_no_lengths_of_time(text):
    with pytest.raises(UsageError, match="--for"):
        parse_duration(text, "--for")


def test_what_is_asked_for():
    assert lasting() is None
    one = lasting(for_="30m")
    assert (one.for_s, one.checkpoint_s, one.checkpoint_steps) == (1800, 60, None)
    assert one.folder == "" and not one.resume
    one = lasting(for_="1h", checkpoint_every="100steps", checkpoint_dir="/data/x", resume=True)
    assert (one.checkpoint_s, one.checkpoint_steps, one.folder) == (None, 100, "/data/x")
    assert one.resume


def test_a_launcher_that_starts_again_wants_to_go_on(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert lasting(for_="1h", checkpoint_dir="/d", launched=True).resume
    assert not lasting(for_="1h", checkpoint_dir="/d").resume


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"checkpoint_every": "5m"}, "--checkpoint-every without --for"),
        ({"resume": True}, "--resume without --for"),
        ({"for_": "1h", "scaling": "1,2"}, "--for and --scaling"),
        ({"for_": "1h", "memory": True}, "--for and --memory"),
        ({"for_": "1h", "fit": True}, "--for and --fit"),
        ({"for_": "1h", "trace": "x.json"}, "--for and --trace"),
        ({"for_": "1h", "load": True}, "--for and --load"),
        ({"for_": "1h", "rounds": 3}, "--for and --rounds"),
        ({"for_": "1h", "resume": True}, "needs --checkpoint-dir"),
        ({"for_": "1h", "launched": True}, "needs --checkpoint-dir"),
        ({"for_": "1h", "elsewhere": True}, "--on needs --checkpoint-dir"),
        ({"for_": "1h", "checkpoint_every": "5"}, "--checkpoint-every '5'"),
        ({"for_": "1h", "checkpoint_every": "0steps"}, "no number of steps"),
    ],
)
def test_what_cannot_be(values, says):
    with pytest.raises(UsageError, match=says):
        lasting(**values)


def test_one_strategy_with_checkpoints():
    assert lasting_case(asked("fsdp2")).strategy == "fsdp2"
    assert lasting_case(asked("none")).strategy == "none"
    with pytest.raises(UsageError, match="several strategies"):
        lasting_case(asked("ddp", "fsdp2"))
    with pytest.raises(UsageError, match="several bucket sizes"):
        lasting_case(asked("ddp", buckets=(1.0, 10.0)))
    with pytest.raises(UsageError, match="deepspeed-zero2: its checkpoints"):
        lasting_case(asked("deepspeed-zero2"))


def test_the_plan_crosses_to_the_ranks_whole():
    training = TrainPlan(
        model="tiny",
        model_options={},
        cases=(lasting_case(asked("ddp")),),
        lasting=lasting(for_="10m"),
    )
    plan = Plan(command="train", steps=(), training=training)
    assert Plan.from_json(plan.to_json()) == plan


def test_the_clock_that_counts():
    one = lasting(for_="100s")
    from dataclasses import replace

    assert seconds_left(replace(one, until=1060.0), now=1000.0) == 60.0
    assert seconds_left(replace(one, until=1060.0), now=1070.0) == -10.0  # the start took too long
    assert seconds_left(replace(one, until=9060.0), now=1000.0) == 100.0  # another clock
    assert seconds_left(replace(one, until=1060.0), now=9000.0) == 100.0
