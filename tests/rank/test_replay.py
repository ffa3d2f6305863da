"""A sequence on real ranks: who calls what, in which order, and how long the step takes."""

from typing import Any

from wirespeed.model.bench_records import Replay
from wirespeed.model.codec import from_json
from wirespeed.plan import Case, InJob, Measure, Plan, ReplayCall, ReplayPlan, Step

GAP_S = 0.03
HOW = Measure(warmup=1, iterations=3)
CASES = (
    Case(op="all_reduce", redop="sum", size_bytes=4096, groups="of-2"),
    Case(op="all_gather", size_bytes=4096, groups="every-2"),
    Case(op="broadcast", root=0, size_bytes=64, groups="ranks-1-2"),
    Case(op="barrier"),
)
ORDER = ((0, GAP_S, False), (0, 0.0, True), (1, 0.0, True), (2, GAP_S, True), (3, 0.0, False))


def replay_plan() -> Plan:
    calls = tuple(ReplayCall(step=step, gap_s=gap, waited=waited) for step, gap, waited in ORDER)
    return Plan(
        command="bench",
        steps=tuple(Step(case=case, measure=HOW) for case in CASES),
        replay=ReplayPlan(
            source="traces",
            job_ranks=4,
            job_steps=9,
            job_step=None,
            calls=calls,
            in_job=tuple(InJob(calls=many) for many in (2, 1, 1, 1)),
        ),
    )


def replayed(rank: int, ranks: int) -> Any:
    """(what this rank issued in the order it did, what it told)."""
    import torch

    from places import place_of
    from wirespeed.collectives.engines.torch_engine import TorchEngine
    from wirespeed.rank.replay import run_replay
    from wirespeed.rank.time_limit import TimeLimit

    issued: list[str] = []
    told: dict[str, Any] = {}

    class Engine(TorchEngine):
        def bind(self, call: Any) -> Any:
            bound = super().bind(call)

            def issue() -> Any:
                issued.append(call.collective.name)
                return bound()

            return issue

    class Reporter:
        def enter(self, label: str) -> None:
            issued.append(label)

        def record(self, kind: str, data: dict[str, Any]) -> None:
            told[kind] = data

    place = place_of(rank, ranks, engine=Engine("gloo", torch.device("cpu")))
    plan = replay_plan()
    if plan.replay is not None:
        run_replay(place, plan, plan.replay, Reporter(), TimeLimit(place, None))
    return [issued, told]


def test_each_rank_makes_its_own_calls_in_order_with_and_without_gaps(world: Any) -> None:
    by_rank = world("replayed", ranks=4)
    outside = ["all_reduce", "all_reduce", "all_gather", "barrier"]
    inside = ["all_reduce", "all_reduce", "all_gather", "broadcast", "barrier"]
    for rank, (issued, told) in enumerate(by_rank):
        step = inside if rank in (1, 2) else outside
        first, second = "the sequence of a step", "the sequence of a step with its gaps"
        assert issued == [first, *step * 4, second, *step * 4], "one to warm up, three to time"
        assert bool(told) == (rank == 0)
    replay = from_json(Replay, by_rank[0][1]["replay"])
    assert (replay.unbroken.samples, replay.paced.samples) == (3, 3)
    assert replay.own == 2 * GAP_S, "of the ranks that have both gaps"
    assert replay.paced.low >= 2 * GAP_S
    assert [(one.op, one.calls, one.groups) for one in replay.calls] == [
        ("all_reduce", 2, "of-2"),
        ("all_gather", 1, "every-2"),
        ("broadcast", 1, "ranks-1-2"),
        ("barrier", 1, "all"),
    ]


def test_a_plan_crosses_to_the_ranks_as_it_is() -> None:
    plan = replay_plan()
    assert Plan.from_json(plan.to_json()) == plan
