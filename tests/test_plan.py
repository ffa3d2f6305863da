"""A plan crosses to the ranks as JSON and comes back the same."""

import json
from dataclasses import replace

from wirespeed.plan import Case, Measure, PairPlan, Plan, Step


def test_round_trip_through_json():
    plan = Plan(
        command="bench",
        steps=(
            Step(case=Case(op="all_reduce", redop="sum", size_bytes=1024), measure=Measure()),
            Step(case=Case(op="barrier"), verify=False),
            Step(
                case=Case(op="gather", root=1, in_place=True, groups="pairs", max_fit=True),
                measure=Measure(
                    timing="batch", blocking=False, in_flight=3, warmup=2, iterations=5
                ),
                expect_unsupported=True,
            ),
        ),
        seed=9,
        faults=("flip:rank=1",),
    )
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_labels_tell_steps_apart():
    cases = [
        Case(op="all_reduce", redop="sum", size_bytes=1024),
        Case(op="all_reduce", redop="max", size_bytes=1024),
        Case(op="all_reduce", redop="sum", size_bytes=4096),
        Case(op="all_reduce", redop="sum", size_bytes=1024, in_place=True),
        Case(op="all_reduce", redop="sum", size_bytes=1024, dtype="bfloat16"),
        Case(op="all_reduce", redop="sum", size_bytes=1024, groups="pairs"),
        Case(op="broadcast", root=1, size_bytes=1024),
        Case(op="broadcast", root=0, size_bytes=1024),
    ]
    labels = [Step(case=case).label for case in cases]
    assert len(set(labels)) == len(labels)
    assert all(label.startswith(case.op) for label, case in zip(labels, cases, strict=True))


def test_digests_name_the_part_that_differs():
    one = Plan(command="bench", steps=(Step(case=Case(op="barrier")),), pairs=PairPlan())
    crossed = Plan.from_json(json.loads(json.dumps(one.to_json())))
    assert crossed.digests() == one.digests()
    for name, other in {
        "seed": replace(one, seed=2),
        "steps": replace(one, steps=()),
        "pairs.threshold": replace(one, pairs=PairPlan(threshold=2.0)),
    }.items():
        theirs = other.digests()
        assert [part for part, digest in one.digests().items() if theirs[part] != digest] == [name]
    assert "bench" not in "".join(one.digests().values())
