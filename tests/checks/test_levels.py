"""What each level runs: quick everything once, the others a superset, and no more than was asked."""

import pytest

from wirespeed.checks.levels import LEVELS, steps_for
from wirespeed.checks.registry import check_id, select
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import NothingRan
from wirespeed.plan import Step

EVERYTHING: frozenset[str] = frozenset()


def cases(steps: tuple[Step, ...], *, verified: bool) -> list[Step]:
    return [step for step in steps if step.verify == verified]


@pytest.mark.parametrize("level", LEVELS)
def test_every_operation_is_checked_and_timed(level: str) -> None:
    steps = steps_for(level, EVERYTHING, gpus=False)
    assert {step.case.op for step in steps if step.verify} == set(CATALOGUE)
    assert {step.case.op for step in steps if step.measure} == set(CATALOGUE)
    assert not [step for step in steps if step.verify and step.measure], "checked or timed"


def test_quick_checks_each_operation_once() -> None:
    checked = cases(steps_for("quick", EVERYTHING, gpus=False), verified=True)
    assert len(checked) == len(CATALOGUE)


def test_each_level_checks_what_the_one_before_does() -> None:
    levels = [steps_for(level, EVERYTHING, gpus=False) for level in ("quick", "medium", "long")]
    checked = [{step.case for step in steps if step.verify} for steps in levels]
    assert checked[0] < checked[1] < checked[2]


def test_no_step_is_there_twice() -> None:
    for level in LEVELS:
        steps = steps_for(level, EVERYTHING, gpus=False)
        assert len(set(steps)) == len(steps)


def test_medium_has_dtypes_reductions_in_place_and_roots() -> None:
    steps = steps_for("medium", frozenset({"COL-001", "COL-006"}), gpus=False)
    checked = [step.case for step in steps]
    reduce = [case for case in checked if case.op == "all_reduce"]
    assert {case.redop for case in reduce} >= {"sum", "prod", "min", "max"}
    assert len({case.dtype for case in reduce}) == 9
    assert any(case.in_place for case in reduce)
    broadcast = [case for case in checked if case.op == "broadcast"]
    assert {case.root for case in broadcast} == {0, 1}
    assert {case.redop for case in broadcast} == {"none"}


def test_gpus_take_larger_sizes_for_bandwidth_only() -> None:
    cpu, gpu = (steps_for("quick", EVERYTHING, gpus=gpus) for gpus in (False, True))
    largest = [max(step.case.size_bytes for step in steps) for steps in (cpu, gpu)]
    assert largest[1] == 64 * largest[0]
    smallest = [min(s.case.size_bytes for s in steps if s.case.size_bytes) for steps in (cpu, gpu)]
    assert smallest[0] == smallest[1]


def test_only_what_was_asked_for_runs() -> None:
    chosen = frozenset({check_id("BW", "gather"), check_id("COL", "barrier")})
    first, second = steps_for("quick", chosen, gpus=False)
    assert (first.case.op, first.verify, first.measure is None) == ("gather", False, False)
    assert (second.case.op, second.verify) == ("barrier", True)


def test_stragglers_need_timings_of_operations_that_synchronise() -> None:
    steps = steps_for("quick", frozenset(select("SKEW-001")), gpus=False)
    assert {step.case.op for step in steps} == {"all_reduce", "all_gather"}
    assert all(step.measure for step in steps)


def test_nodes_alone_need_no_step_and_data_of_nothing_is_nothing() -> None:
    assert steps_for("quick", frozenset({"NODE-001"}), gpus=False) == ()
    with pytest.raises(NothingRan):
        steps_for("quick", frozenset({"MEM-001"}), gpus=False)
