"""What the options of `bench` mean: the plan that they make."""

import click
import pytest

from wirespeed.cli import bench as module
from wirespeed.cli.bench import split_output
from wirespeed.errors import CannotMeasure, UsageError


def plan_of(monkeypatch, *arguments):
    taken = []
    monkeypatch.setattr(
        "wirespeed.cli.execute.execute", lambda ctx, plan, options, **_: taken.append(plan) or 0
    )
    module.bench.main(list(arguments), standalone_mode=False)
    return taken[0]


def sizes(plan):
    return [step.case.size_bytes for step in plan.steps]


def test_sizes_by_factor_step_and_alone(monkeypatch):
    assert sizes(plan_of(monkeypatch, "all_reduce", "-b", "1K", "-e", "100K", "-f", "4")) == [
        1024,
        4096,
        16384,
        65536,
    ]
    by_step = plan_of(monkeypatch, "all_reduce", "-b", "1000", "-e", "3000", "-i", "1000")
    assert sizes(by_step) == [1000, 2000, 3000]
    assert sizes(plan_of(monkeypatch, "all_reduce", "-b", "64M")) == [64 << 20]
    assert sizes(plan_of(monkeypatch, "all_reduce", "--max-fit")) == [0]


def test_letters_of_nccl_tests(monkeypatch):
    plan = plan_of(
        monkeypatch, "reduce", "-b", "8", "-e", "8", "-w", "3", "-n", "7", "-d", "half,int8",
        "-o", "max", "-r", "2", "-c", "0", "-m", "4",
    )  # fmt: skip
    assert [(s.case.dtype, s.case.redop, s.case.root) for s in plan.steps] == [
        ("float16", "max", 2),
        ("int8", "max", 2),
    ]
    step = plan.steps[0]
    assert not step.verify
    assert (step.measure.warmup, step.measure.iterations) == (3, 7)
    assert (step.measure.in_flight, step.measure.blocking) == (4, False)


def test_the_nccl_tests_view_measures_both_sides_where_there_are_two(monkeypatch):
    plan = plan_of(monkeypatch, "all_reduce", "all_to_all", "-e", "1K", "-o", "nccl-tests")
    assert [(s.case.op, s.case.in_place) for s in plan.steps] == [
        ("all_reduce", False),
        ("all_reduce", True),
        ("all_to_all", False),
    ]
    plan = plan_of(monkeypatch, "all_reduce", "-e", "1K")
    assert [s.case.in_place for s in plan.steps] == [False]


def test_a_barrier_has_no_sizes_and_a_moving_operation_no_reduction(monkeypatch):
    plan = plan_of(monkeypatch, "all", "-b", "1K", "-e", "4K")
    by_op = {}
    for step in plan.steps:
        by_op.setdefault(step.case.op, []).append(step.case)
    assert len(by_op) == 12 and len(by_op["barrier"]) == 1 and len(by_op["gather"]) == 2
    assert {case.redop for case in by_op["all_gather"]} == {"none"}
    assert {case.redop for case in by_op["all_reduce"]} == {"sum"}
    assert {case.root for case in by_op["all_reduce"]} == {-1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_reduce", "-b", "1Q"], "'1Q' is not a size"),
        (["all_reduce", "-b", "1M", "-e", "1K"], "-e 1K is below -b 1M"),
        (["all_reduce", "-b", "0"], "not above 0"),
        (["all_reduce", "-f", "2", "-i", "1K"], "both -f and -i"),
        (["all_reduce", "-b", "1", "-e", "1G", "-i", "1"], "more than 10,000 sizes"),
        (["all_redcue"], "unknown operation"),
        (["gem"], "or of devices gemm, memory, copy"),
        (["all_reduce", "-d", "float33"], "unknown dtype"),
        (["all_reduce", "-o", "yaml"], "neither an output format nor a reduction"),
        (["all_reduce", "--groups", "racks"], "unknown groups"),
        (["all_reduce", "--inject", "melt:rank=1"], "cannot inject"),
        ([], "no operation given"),
    ],
)
def test_mistakes_are_explained(monkeypatch, arguments, message):
    with pytest.raises(UsageError, match=message):
        plan_of(monkeypatch, *arguments)


@pytest.mark.parametrize("arguments", [["-f", "1"], ["--ranks", "0"], ["-n", "0"], ["-r", "-1"]])
def test_values_out_of_range_are_refused_by_the_parser(monkeypatch, arguments):
    with pytest.raises(click.BadParameter):
        plan_of(monkeypatch, "all_reduce", *arguments)


def test_graph_timing_needs_a_gpu(monkeypatch):
    monkeypatch.setattr("wirespeed.node.limits.count_gpus", lambda: 0)
    with pytest.raises(CannotMeasure, match="no GPU"):
        plan_of(monkeypatch, "all_reduce", "--timing", "graph")


def test_a_graph_holds_no_barrier(monkeypatch):
    monkeypatch.setattr("wirespeed.node.limits.count_gpus", lambda: 1)
    with pytest.raises(UsageError, match="waits on the host"):
        plan_of(monkeypatch, "barrier", "--timing", "graph")
    plan = plan_of(monkeypatch, "all", "--timing", "graph")
    assert "barrier" not in {step.case.op for step in plan.steps}


def test_o_is_a_format_or_a_reduction():
    assert split_output(("json",)) == ((), "json")
    assert split_output(("max,min", "md")) == (("max", "min"), "md")
    assert split_output(()) == ((), "table")
    with pytest.raises(UsageError, match="two output formats"):
        split_output(("json", "md"))
