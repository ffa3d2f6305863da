"""The groups of a small mixture of experts on real ranks: what they tell, the same on each."""

from typing import Any

import pytest

from wirespeed.model.bench_records import Shape
from wirespeed.model.codec import from_json
from wirespeed.model.training_records import LoadFigures
from wirespeed.plan import Case, Measure, Plan, ShapePlan, Step
from wirespeed.training.models.shapes import SHAPES, Degrees, shape_of

HOW = Measure(warmup=1, iterations=2)


def shape_plan(*, dtype: str = "bfloat16") -> Plan:
    """Experts are cut as data parallel groups are, and share no process group with them."""
    job, model = Degrees(tensor=8 // 4, pipeline=1, data=8, expert=8), SHAPES["tiny-moe"]
    shape = shape_of(model, job, 4, dtype=dtype, itemsize=2, most_bytes=8192)
    steps = [
        Step(
            case=Case(
                op=op,
                dtype=dtype,
                redop="sum" if op == "reduce_scatter" else "none",
                groups=group.groups,
                size_bytes=group.size_bytes,
            ),
            measure=HOW,
        )
        for group in shape.groups
        for op in group.ops
    ]
    return Plan(command="bench", steps=tuple(steps), shape=ShapePlan(shape=shape))


def compared(rank: int, ranks: int) -> Any:
    """(labels that this rank entered, what it told)."""
    from places import place_of
    from wirespeed.rank.shape import run_shape
    from wirespeed.rank.time_limit import TimeLimit

    entered: list[str] = []
    told: list[Any] = []
    ticks: list[int] = []

    class Reporter:
        def enter(self, label: str) -> None:
            entered.append(label)

        def record(self, kind: str, data: dict[str, Any]) -> None:
            told.append([kind, data])

    place = place_of(rank, ranks, tick=lambda: ticks.append(1))
    plan = shape_plan()
    if plan.shape is not None:
        run_shape(place, plan, plan.shape, Reporter(), TimeLimit(place, None))
    return [entered, told, len(ticks) > 100]


@pytest.mark.slow
def test_each_kind_beside_a_product_then_all_at_once_then_uneven(world: Any) -> None:
    by_rank = world("compared", ranks=4)
    labels = [
        "groups of each kind",
        "uneven shares for the experts",
        *(f"{kind} groups beside a matrix product" for kind in ("tensor", "data", "expert")),
        "all kinds of groups at once",
        "uneven shares for the experts",
    ]
    assert all(entered == labels and ticked for entered, _, ticked in by_rank)
    told = by_rank[0][1]
    assert not any(told for _, told, _ in by_rank[1:]), "rank 0 tells"
    (shape,) = [from_json(Shape, data) for kind, data in told if kind == "shape"]
    assert [(g.kind, g.groups) for g in shape.groups] == [
        ("tensor", "of-2"),
        ("data", "every-2"),
        ("expert", "every-2"),
    ]
    load = [from_json(LoadFigures, data) for kind, data in told if kind == "under_load"]
    pairs = [(one.name, one.beside) for one in load]
    product, tensor, data = "GEMM 32 × 128 × 32", "tensor 8 KiB", "data 7395 B"
    experts = "expert 8 KiB (80% to one)"
    checked = [data for kind, data in told if kind == "verification"]
    assert [(one["op"], one["wrong"]) for one in checked] == [("all_to_all_v", 0)]
    assert set(pairs) >= {
        (product, tensor),
        (tensor, product),
        (experts, f"{tensor}, {data}"),
        ("all_to_all_v 8 KiB, 80% to one expert", "even shares"),
    }
    assert all(one.alone_interval and one.together_interval for one in load)
    assert [one.gain is None for one in load] == [False] * 9 + [True]
    assert told[-1] == ["shape_told", {}]


def test_a_plan_crosses_to_the_ranks_as_it_is() -> None:
    plan = shape_plan()
    assert Plan.from_json(plan.to_json()) == plan
