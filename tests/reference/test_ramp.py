"""Latency and bandwidth, fitted on the published curves: it describes them, and says how well."""

from dataclasses import replace

import pytest

from wirespeed.reference.figures import Figure, shipped_figures
from wirespeed.reference.ramp import SPREAD, fitted, start_of, tables
from wirespeed.reference.shape import shape_told

CURVES = tables(shipped_figures())


def test_there_are_curves_of_both_kinds() -> None:
    assert sum(table[0].nodes == 1 for table in CURVES) >= 4
    assert sum((table[0].nodes or 1) > 1 for table in CURVES) >= 6


def test_nine_of_ten_curves_start_within_the_spread() -> None:
    ramp = fitted(shipped_figures())
    within = []
    for table in CURVES:
        nodes, per_node = table[0].nodes or 1, table[0].gpus_per_node or 1
        seconds = start_of(table)
        assert seconds is not None
        ratio = seconds / ramp.start_s(nodes, nodes * per_node)
        within.append(1 / SPREAD <= ratio <= SPREAD)
    assert sum(within) >= 0.9 * len(within)


@pytest.mark.parametrize("table", CURVES, ids=lambda table: table[0].system)
def test_a_curve_is_foretold_by_the_others(table: list[Figure]) -> None:
    """Each size of a curve lies between the least and the most that the other curves lead to."""
    others = tuple(one for one in shipped_figures() if one.source != table[0].source)
    ramp, one = fitted(others), table[0]
    shape = shape_told(one.gpu, per_node=one.gpus_per_node or 8, nodes=one.nodes or 1)
    full = 1.04 * max(figure.busbw or 0.0 for figure in table)
    steps = 2 * (shape.ranks - 1) / shape.ranks
    inside = []
    for figure in table:
        _, least, most = ramp.reached(shape, figure.size_bytes or 0, full / steps)
        inside.append(0.9 * least <= (figure.busbw or 0.0) / full <= 1.1 * most)
    assert sum(inside) >= 0.75 * len(inside)


def test_more_bytes_reach_more_and_more_ranks_less() -> None:
    ramp = fitted(shipped_figures())
    eight, many = (shape_told("H100", per_node=8, nodes=nodes) for nodes in (2, 64))
    shares = [ramp.reached(eight, size, 200e9)[0] for size in (2**10, 2**20, 2**27, 2**33)]
    assert shares == sorted(shares) and shares[-1] > 0.95 and shares[0] < 0.01
    assert ramp.reached(many, 2**27, 200e9)[0] < ramp.reached(eight, 2**27, 200e9)[0]
    usual, least, most = ramp.reached(eight, 2**27, 200e9)
    assert least < usual < most < 1


def test_without_curves_there_is_a_usual_start() -> None:
    peak = replace(shipped_figures()[0], size_bytes=None)
    assert fitted((peak,)).start_s(1, 8) == fitted(()).start_s(1, 8) > 0
