"""Every data fault, in every operation that it applies to, is caught; and nothing else is."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.rank.faulty_engine import DATA_FAULTS, applies

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "programs" / "mutants.py"
RANKS = 3
FAULTY = 1
BOUND_S = 150.0

Result = dict[str, Any]

COPIES = {name for name, op in CATALOGUE.items() if op.has_data and not op.reduces}
REDUCTIONS = {name for name, op in CATALOGUE.items() if op.reduces}
ROOTED = {name for name, op in CATALOGUE.items() if op.rooted}

EXPECTED = {
    "swap": COPIES | REDUCTIONS,
    "last": COPIES | REDUCTIONS,
    "stale": COPIES | REDUCTIONS,
    "flip": COPIES | REDUCTIONS,
    "root": ROOTED,
    "max": REDUCTIONS,
    "twice": REDUCTIONS,
    "nowait": {"barrier"},
}
"""In which operations each fault must have been acted out and caught; from the issue, by hand."""


@pytest.fixture(scope="module")
def results(world: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    given = {"store": str(tmp_path_factory.mktemp("mutants") / "store"), "faulty_rank": FAULTY}
    options = {"ranks": RANKS, "arguments": given, "timeout": BOUND_S, "group": False}
    found: list[Result] = world("mutants", file=PROGRAM, **options)[0]
    return found


def label(result: Result) -> tuple[str, str, str, bool]:
    return result["op"], result["dtype"], result["redop"], result["in_place"]


def faulty(results: list[Result], *kinds: str) -> list[Result]:
    """Those with such a fault that could be checked at all."""
    return [r for r in results if r["fault"] in kinds and not r["reason"]]


def test_every_fault_that_applies_is_caught(results: list[Result]) -> None:
    acted_out = faulty(results, *DATA_FAULTS)
    assert [(r["fault"], label(r)) for r in acted_out if not r["wrong"]] == []
    # 132 configurations with data and an answer; each is hit by swap, last, stale and flip.
    counts = Counter(r["fault"] for r in acted_out)
    assert [counts[kind] for kind in ("swap", "last", "stale", "flip")] == [132] * 4
    assert counts["nowait"] == 4


@pytest.mark.parametrize("kind", DATA_FAULTS)
def test_the_fault_was_acted_out_in_every_operation(results: list[Result], kind: str) -> None:
    caught = {r["op"] for r in faulty(results, kind) if r["wrong"]}
    assert caught == EXPECTED[kind]
    for collective in CATALOGUE.values():
        redops = ("sum", "max") if collective.reduces else ("none",)
        assert (collective.name in caught) == any(
            applies(kind, collective, redop) for redop in redops
        )


@pytest.mark.parametrize("op", CATALOGUE)
def test_each_operation_was_hit_by_each_fault_that_applies(results: list[Result], op: str) -> None:
    caught = {r["fault"] for r in faulty(results, *DATA_FAULTS) if r["op"] == op and r["wrong"]}
    assert caught == {kind for kind, ops in EXPECTED.items() if op in ops}


def test_without_a_fault_nothing_is_wrong(results: list[Result]) -> None:
    clean = [r for r in results if not r["fault"] and not r["reason"]]
    assert {r["op"] for r in clean} == set(CATALOGUE)
    assert [label(r) for r in clean if r["wrong"] != 0 or r["errors"]] == []


def test_what_was_not_checked_has_a_known_reason(results: list[Result]) -> None:
    unchecked = [r for r in results if r["reason"] or r["wrong"] is None]
    known = {
        *(f"an average of {dtype} is not defined in torch.distributed" for dtype in INTEGERS),
        *(f"{op} has no in-place form in torch.distributed" for op in NOT_IN_PLACE),
    }
    assert {r["reason"] for r in unchecked} == known
    for result in unchecked:
        averaged = result["redop"] == "avg" and result["dtype"] in INTEGERS
        assert averaged or (result["in_place"] and result["op"] in NOT_IN_PLACE)


INTEGERS = ("int32", "uint8")
NOT_IN_PLACE = ("all_to_all", "all_to_all_v", "send_recv", "pair_exchange", "barrier")


def test_the_rank_with_the_wrong_data_is_named(results: list[Result]) -> None:
    for result in faulty(results, "swap", "last", "stale", "flip"):
        assert [error["rank"] for error in result["errors"]] == [result["culprit"]], label(result)
        (error,) = result["errors"]
        assert 0 <= error["first_byte"] <= error["last_byte"]
        assert error["chunk"], label(result)


def test_a_bit_flip_is_one_element_and_called_so(results: list[Result]) -> None:
    for result in faulty(results, "flip"):
        assert result["wrong"] == 1, label(result)
        assert result["errors"][0]["guess"] == "bit flip", label(result)


def test_the_last_element_is_where_the_bytes_say(results: list[Result]) -> None:
    for result in faulty(results, "last"):
        (error,) = result["errors"]
        width = {"float32": 4, "int32": 4, "bfloat16": 2, "uint8": 1}[result["dtype"]]
        assert result["wrong"] == 1, label(result)
        assert error["last_byte"] == error["elements"] * width - 1, label(result)


def test_who_contributes_twice_is_named(results: list[Result]) -> None:
    for result in faulty(results, "twice"):
        for error in result["errors"]:
            assert error["guess"] == f"rank {FAULTY} contributes twice", label(result)
            assert error["suspect"] == FAULTY


def test_the_wrong_reduction_is_named(results: list[Result]) -> None:
    for result in faulty(results, "max"):
        guesses = {error["guess"] for error in result["errors"]}
        assert guesses == {f"max instead of {result['redop']}"}, label(result)


def test_stale_output_is_called_so(results: list[Result]) -> None:
    for result in faulty(results, "stale"):
        assert result["errors"][0]["guess"].startswith("stale: "), label(result)


def test_the_wrong_root_is_named_where_it_can_be_told(results: list[Result]) -> None:
    for result in faulty(results, "root"):
        if result["op"] == "broadcast":
            guesses = {e["guess"] for e in result["errors"] if e["rank"] != FAULTY}
            assert guesses == {"wrong root: data of rank 1"}, label(result)
