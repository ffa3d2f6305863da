"""Every published figure is asked about with its own facts: no good one is bad, no bad one good.

The figure itself and all others of its source are left out, so that nothing is compared with itself.
"""

import pytest

from wirespeed.reference.ask import Answer, Asked, ask, expected_of
from wirespeed.reference.figures import Figure, shipped_figures
from wirespeed.reference.shape import CPU, Shape, shape_told

GIB = 2**30
NODES = 4
"""Of a figure that holds for any number of nodes."""

MEASURED = [one for one in shipped_figures() if one.kind == "measured" and one.gpu != CPU]
BAD = [one for one in shipped_figures() if one.kind == "untuned"]


def shape_of_figure(one: Figure) -> Shape:
    return shape_told(
        one.gpu,
        per_node=one.gpus_per_node or 8,
        nodes=one.nodes or NODES,
        interconnect=one.interconnect,
        nics=one.nics,
        nic_Gbitps=one.nic_Gbitps,
        switch=one.switch,
    )


def own_source(one: Figure) -> str:
    """Return the repository, or the page, that a figure comes from."""
    first = one.source.split(",")[0].split(" ")[0]
    return first.split("#")[0]


def answer(one: Figure, **changes: str) -> Answer:
    others = [other for other in shipped_figures() if own_source(other) != own_source(one)]
    shape, size = shape_of_figure(one), one.size_bytes or 8 * GIB
    assert one.busbw is not None
    expectation = expected_of(shape, one.collective, size, (), others)
    return ask(shape, one.collective, Asked(size, one.busbw), expectation, shipped=others)


def named(one: Figure) -> str:
    return f"{one.system} {one.collective} {one.size_bytes} {one.busbw and one.busbw / 1e9:.4g}"


@pytest.mark.parametrize("one", MEASURED, ids=named)
def test_a_measured_figure_is_never_called_bad(one: Figure) -> None:
    assert answer(one).place in ("normal", "high", "unknown")


@pytest.mark.parametrize("one", BAD, ids=named)
def test_a_figure_of_a_known_bad_world_is_never_called_good(one: Figure) -> None:
    assert answer(one).place in ("low", "impossible", "unknown")


def test_most_of_the_measured_figures_are_normal() -> None:
    """A product that could tell nothing would pass the walk."""
    places = [answer(one).place for one in MEASURED]
    assert places.count("normal") >= 0.7 * len(places)


def test_a_half_of_each_figure_is_hardly_ever_normal() -> None:
    """A product that called everything normal would pass the walk, too."""
    halves = [halved(one) for one in MEASURED if (one.size_bytes or 8 * GIB) >= GIB]
    assert halves.count("normal") <= 0.15 * len(halves)


def halved(one: Figure) -> str:
    shape, size = shape_of_figure(one), one.size_bytes or 8 * GIB
    expectation = expected_of(shape, one.collective, size)
    return ask(shape, one.collective, Asked(size, 0.45 * (one.busbw or 0.0)), expectation).place


@pytest.mark.parametrize("one", MEASURED, ids=named)
def test_a_figure_told_eightfold_is_impossible_or_at_least_not_normal(one: Figure) -> None:
    """Gbit/s taken for GB/s."""
    shape, size = shape_of_figure(one), one.size_bytes or 8 * GIB
    expectation = expected_of(shape, one.collective, size)
    place = ask(shape, one.collective, Asked(size, 8 * (one.busbw or 0.0)), expectation).place
    links_known = shape.nodes == 1 or shape.interconnect == "mnnvl" or shape.nics
    certain = links_known and size >= GIB
    assert place in (("impossible",) if certain else ("impossible", "high", "unknown"))


def test_the_table_has_both_kinds() -> None:
    assert len(MEASURED) >= 60 and len(BAD) >= 2
