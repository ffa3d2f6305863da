"""The worked example of the paper, and what the correction promises."""

import random

import pytest

from wirespeed.compare.estimate import benjamini_hochberg

PAPER = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
PAPER += [0.4262, 0.5719, 0.6528, 0.7590, 1.0]
"""Y. Benjamini and Y. Hochberg, 1995, section 3.3: their method calls the first four."""


def test_papers_example() -> None:
    assert sum(p < 0.05 for p in benjamini_hochberg(PAPER)) == 4
    assert benjamini_hochberg(PAPER)[3] == pytest.approx(0.0095 * 15 / 4)


def test_order_and_bounds() -> None:
    shuffled = random.Random(1).sample(PAPER, len(PAPER))
    by_value = dict(zip(PAPER, benjamini_hochberg(PAPER), strict=True))
    assert benjamini_hochberg(shuffled) == [by_value[p] for p in shuffled]
    assert all(p <= q <= 1 for p, q in by_value.items())
    assert benjamini_hochberg([]) == []
    assert benjamini_hochberg([0.03]) == [0.03]


def test_nothing_there_is_rarely_called() -> None:
    rng = random.Random(2)
    calls = sum(
        min(benjamini_hochberg([rng.random() for _ in range(20)])) < 0.05 for _ in range(2000)
    )
    assert 0.035 < calls / 2000 < 0.065
