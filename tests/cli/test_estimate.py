"""What is said before long work starts."""

from dataclasses import replace

import pytest

from wirespeed.cli.estimate import estimate
from wirespeed.plan import Case, Measure, PairPlan, Plan, Step, TrainCase, TrainPlan


def plan_of(ops: int, sizes: int, how: Measure, max_time_s: float | None = None) -> Plan:
    names = ("all_reduce", "all_gather", "broadcast")[:ops]
    steps = tuple(
        Step(case=Case(op=op, size_bytes=1024 << number), measure=how)
        for op in names
        for number in range(sizes)
    )
    return Plan(command="bench", steps=steps, max_time_s=max_time_s)


def test_operations_and_sizes_with_the_bound_of_each() -> None:
    text = estimate(plan_of(3, 5, Measure(max_time_s=2.0)))
    assert text.startswith("about 45 s at most")
    assert text.endswith("3 operations × 5 sizes, at most 3 s each")


@pytest.mark.parametrize(
    "plan",
    [
        plan_of(1, 2, Measure(max_time_s=0.1)),  # short
        plan_of(3, 5, Measure(iterations=1000)),  # nobody knows how long a call takes
        replace(plan_of(3, 5, Measure(max_time_s=2.0)), pairs=PairPlan()),  # not all is known
        Plan(command="topo", steps=(), facts_only=True),
        Plan(command="check", steps=(Step(case=Case(op="all_reduce")),)),
    ],
)
def test_nothing_is_said_of_short_or_unknown_times(plan: Plan) -> None:
    assert estimate(plan) == ""


def test_the_bound_of_the_whole() -> None:
    text = estimate(plan_of(3, 5, Measure(max_time_s=20.0), max_time_s=20.0))
    assert text.startswith("about 20 s at most")
    assert "--max-time" in text


def test_training() -> None:
    case = TrainCase(strategy="ddp", ranks=2, samples=8)
    training = TrainPlan(model="tiny", model_options={}, cases=(case,), max_time_s=30.0)
    assert estimate(Plan(command="train", steps=(), training=training)).startswith("about 90 s")
    assert "20 s at most" in estimate(
        Plan(command="train", steps=(), training=training, max_time_s=20.0)
    )
