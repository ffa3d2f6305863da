"""The worked example of the paper, and what each correction promises."""

import random

import pytest

from wirespeed.compare.estimate import benjamini_hochberg, holm

PAPER = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
PAPER += [0.4262, 0.5719, 0.6528, 0.7590, 1.0]
"""Y. Benjamini and Y. Hochberg, 1995, section 3.3: their method calls the first four."""


def test_papers_example() -> None:
    assert sum(p < 0.05 for p in benjamini_hochberg(PAPER)) == 4
    assert sum(p < 0.05 for p in holm(PAPER)) == 3
    assert benjamini_hochberg(PAPER)[3] == pytest.approx(0.0095 * 15 / 4)
    assert holm(PAPER)[2] == pytest.approx(0.0019 * 13)


@pytest.mark.parametrize("correct", [benjamini_hochberg, holm])
def test_order_and_bounds(correct) -> None:  # type: ignore[no-untyped-def]
    shuffled = random.Random(1).sample(PAPER, len(PAPER))
    by_value = dict(zip(PAPER, correct(PAPER), strict=True))
    assert correct(shuffled) == [by_value[p] for p in shuffled]
    assert all(p <= q <= 1 for p, q in by_value.items())
    assert correct([]) == []
    assert correct([0.03]) == [0.03]


@pytest.mark.parametrize("correct", [benjamini_hochberg, holm])
def test_nothing_there_is_rarely_called(correct) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(2)
    calls = sum(min(correct([rng.random() for _ in range(20)])) < 0.05 for _ in range(2000))
    assert 0.035 < calls / 2000 < 0.065
