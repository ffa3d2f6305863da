"""Against printed tables of Student's t, and against itself."""

import math

import pytest

from wirespeed.compare.estimate import quantile, two_sided_p


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [
        (12.7062, 1, 0.05),
        (4.3027, 2, 0.05),
        (2.7764, 4, 0.05),
        (4.6041, 4, 0.01),
        (2.2281, 10, 0.05),
        (2.0423, 30, 0.05),
        (1.959964, math.inf, 0.05),
        (636.619, 1, 0.001),
    ],
)
def test_tabulated(t: float, freedom: float, p: float) -> None:
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=2e-4)
    assert two_sided_p(-t, freedom) == two_sided_p(t, freedom)


def test_closed_forms() -> None:
    for t in (0.1, 1.0, 7.0, 400.0):
        assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9)
        assert two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-7)


def test_ends() -> None:
    assert two_sided_p(0, 3.7) == pytest.approx(1)
    assert two_sided_p(math.inf, 3) == 0
    assert 0 <= two_sided_p(1e8, 2.5) < 1e-15


@pytest.mark.parametrize("freedom", [1.0, 1.7, 2.0, 3.3, 12.0, 500.0, math.inf])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_quantile_undoes_p(freedom: float, confidence: float) -> None:
    assert two_sided_p(quantile(confidence, freedom), freedom) == pytest.approx(
        1 - confidence, abs=2e-3
    )
