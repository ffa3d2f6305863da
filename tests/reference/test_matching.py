"""Which figures hold: the same world and a comparable size; nothing in between is made up."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.reference.figures import shipped_figures
from wirespeed.reference.known import Match, find
from wirespeed.reference.shape import Shape, shape_told

G, M = 1 << 30, 1 << 20


def h100(nodes: int = 1, **more: Any) -> Shape:
    return shape_told("H100", per_node=8, nodes=nodes, **more)


def found(shape: Shape, size: int, op: str = "all_reduce") -> Match | None:
    return find(shipped_figures(), shape, op, size)


NDR = {"interconnect": "ib", "nics": 8, "nic_Gbitps": 400.0}


@pytest.mark.parametrize(
    ("size", "expected"),
    [(16 * G, 479.435), (8 * G, 479.435), (4 * G, 479.435)],
)
def test_a_figure_holds_from_half_of_its_size_on(size: int, expected: float) -> None:
    match = found(h100(), size)
    assert match is not None and match.exact and not match.rough
    told = match.expectation("reference")
    assert told.busbw == pytest.approx(expected * 1e9)
    assert told.may_fail
    assert told.gate is None, "what Azure asks of its own"
    at_azure = found(replace(h100(), site="azure"), size)
    assert at_azure is not None
    assert at_azure.expectation("reference").gate == 460e9
    assert ("taken for" in " ".join(told.notes)) == (size == 16 * G)


def test_far_below_its_size_a_figure_is_scaled_by_the_curves_and_never_fails() -> None:
    four = shape_told("H100", per_node=4, nodes=1)
    match = found(four, 256 * M)
    assert match is not None and match.rough
    told = match.expectation("reference")
    assert (told.may_fail, told.gate) == (False, None)
    assert told.warn_below is not None and 0.3 < told.warn_below <= 0.5
    assert told.busbw is not None and 250e9 < told.busbw < 370e9
    small = found(four, 4 * M)
    assert small is not None
    asked = small.expectation("reference")
    assert asked.busbw is not None and asked.warn_below is not None
    assert asked.busbw < told.busbw / 2
    assert asked.warn_below < told.warn_below, "the less certain, the smaller the size"
    assert found(four, 64 * 1024) is None


def test_a_short_operation_of_others_warns_and_fails_nobody() -> None:
    """A program's call takes longer than nccl-tests', and versions differ by half."""
    match = found(h100(), 1 * M)
    assert match is not None and match.exact and not match.rough
    told = match.expectation("reference")
    assert (told.busbw, told.warn_below, told.may_fail) == (43.7e9, 0.5, False)
    assert told.same_world
    assert match.expectation("own").may_fail, "the user's own figures are of the same program"


def test_the_size_that_was_measured_is_taken_before_a_larger_one() -> None:
    efa = h100(2, interconnect="efa", nics=32, nic_Gbitps=100.0)
    small, large = found(efa, 256 * M), found(efa, 16 * G)
    assert small is not None and large is not None
    assert [one.busbw for one in small.figures] == [289e9]
    assert [one.busbw for one in large.figures] == [487.1e9]


def test_another_number_of_nodes_is_said_and_fails_nobody() -> None:
    match = found(shape_told("H200", per_node=8, nodes=4, **NDR), 8 * G)
    assert match is not None and not match.exact
    told = match.expectation("reference")
    assert not told.may_fail
    assert any(note.startswith("figures are of ") for note in told.notes)


def test_what_is_not_told_on_both_sides_fails_nobody() -> None:
    match = found(h100(2, interconnect="ib"), 8 * G)
    assert match is not None
    assert not match.expectation("reference").may_fail


@pytest.mark.parametrize(
    "shape",
    [
        h100(2, interconnect="roce", nics=8, nic_Gbitps=200.0),
        h100(2, interconnect="roce"),
        h100(2, interconnect="ib", nics=8, nic_Gbitps=200.0),
        h100(2, interconnect="ib", nics=4, nic_Gbitps=400.0),
        h100(2, interconnect="tcp"),
        h100(2),
        shape_told("H100 PCIe", per_node=8, nodes=1, interconnect="pcie"),
        shape_told("H100", per_node=3, nodes=1),
    ],
)
def test_another_world_has_no_figure(shape: Shape) -> None:
    """The last of TCP: 4 GB/s untuned is no expectation."""
    assert found(shape, 8 * G) is None


def test_figures_without_nvls_are_for_worlds_without_it() -> None:
    shape = shape_told("H200", per_node=8, nodes=1)
    on, off = found(shape, 16 * G), found(replace(shape, switch="nvls off"), 16 * G)
    assert on is not None and off is not None
    assert off.expectation("reference").busbw == pytest.approx(366.6e9)
    assert (on.expectation("reference").busbw or 0) > 470e9
    gather = found(shape, 16 * G, "all_gather")
    assert gather is not None and gather.figures[0].switch == "nvls off"


def test_a_rule_of_thumb_stands_where_nothing_was_measured() -> None:
    a100 = shape_told("A100", per_node=8, nodes=6, interconnect="ib", nics=4, nic_Gbitps=200.0)
    match = found(a100, 8 * G)
    assert match is not None
    told = match.expectation("reference")
    assert told.busbw == 96e9
    assert not told.may_fail
    assert "#119" in told.source


def test_a_gate_of_a_site_holds_for_any_number_of_its_nodes() -> None:
    elsewhere = found(h100(2, **NDR), 8 * G)
    assert elsewhere is not None
    assert elsewhere.expectation("reference").gate is None
    assert elsewhere.expectation("reference").busbw_range == (440.58e9, 445e9)
    match = found(replace(h100(2, **NDR), site="azure"), 8 * G)
    assert match is not None and match.exact
    told = match.expectation("reference")
    assert (told.busbw, told.gate, told.busbw_range) == (442.79e9, 400e9, (400e9, 445e9))
    assert told.may_fail
    of_four = found(h100(4, **NDR), 8 * G)
    assert of_four is not None and not of_four.exact, "nobody tells of how many nodes 450 GB/s are"
    assert any("SHARP" in note for note in of_four.notes)


def test_what_cards_carry_stands_where_nobody_measured_such_a_gpu() -> None:
    match = found(h100(2, interconnect="roce", nics=8, nic_Gbitps=400.0), 8 * G)
    assert match is not None
    told = match.expectation("reference")
    assert (told.busbw, told.busbw_range, told.may_fail) == (376e9, (368e9, 384e9), False)


def test_what_one_card_carries_is_no_figure_of_a_known_gpu() -> None:
    """Also where nobody tells how many cards there are: 12 GB/s would make any figure look normal."""
    match = found(h100(2, interconnect="ib", nics=None, nic_Gbitps=None), 8 * 2**30)
    assert match is not None
    assert all(one.gpu for one in match.figures)
    low, _ = match.expectation("reference").busbw_range or (0.0, 0.0)
    assert low >= 400e9
