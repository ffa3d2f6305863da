"""Known answers, and by simulation what the intervals and verdicts promise."""

import math
import random

import pytest

from wirespeed.compare.estimate import (
    Estimate,
    Figure,
    Floor,
    benjamini_hochberg,
    estimate,
    quantile,
    runs_needed,
    two_sided_p,
)


def figures(*logs: float, within: float | None = None) -> list[Figure]:
    return [Figure(log=log, within=within) for log in logs]


def test_welch_known_answer() -> None:
    """Means 3 and 6, variances 2.5 and 10, five each: t = 3 / sqrt(2.5), 5.88 degrees of freedom."""
    one = estimate(figures(1, 2, 3, 4, 5), figures(2, 4, 6, 8, 10))
    assert one.change == pytest.approx(3)
    assert one.error == pytest.approx(math.sqrt(2.5))
    assert one.freedom == pytest.approx(2.5**2 / (0.5**2 / 4 + 2**2 / 4))
    assert one.p == pytest.approx(0.1075, abs=1e-4)
    assert one.source == "repeats"


def test_one_noise_for_both_sides_stands_beside_it() -> None:
    """Three runs that agree by luck against seven that do not: the larger p, the wider interval."""
    one = estimate(figures(-3, -2, -1, 0, 1, 2, 3), figures(3, 3.1, 3.2))
    assert one.alike is not None
    error, freedom = one.alike
    assert freedom == 8
    assert error == pytest.approx(math.sqrt((28 + 0.02) / 8 * (1 / 7 + 1 / 3)))
    assert one.p == pytest.approx(two_sided_p(3.1 / error, 8))
    assert one.p > 3 * two_sided_p(3.1 / one.error, one.freedom)
    assert one.reach(0.95) == pytest.approx(quantile(0.95, 8) * error)


def test_pooled_known_answer() -> None:
    """One noise for both sides while one of them has fewer than three runs."""
    one = estimate(figures(1, 3), figures(5, 7, 9))
    assert one.freedom == 3
    assert one.spread == pytest.approx(math.sqrt((2 + 8) / 3))
    assert one.error == pytest.approx(one.spread * math.sqrt(1 / 2 + 1 / 3))


def test_one_run_a_side_knows_no_noise() -> None:
    one = estimate(figures(0.0, within=0.001), figures(5.0, within=0.001))
    assert (one.source, one.p, one.reach(0.95)) == ("unknown", 1.0, math.inf)
    assert not one.same_within(10)
    assert runs_needed(one, 0.05) == 0


def test_stored_repeats_tell_the_noise() -> None:
    one = estimate(figures(0.0), figures(0.1), Floor(0.01**2, 8, "history"))
    assert (one.source, one.freedom) == ("history", 8)
    assert one.error == pytest.approx(0.01 * math.sqrt(2))
    together = estimate(figures(0.0, 0.02), figures(0.1), Floor(0.01**2, 8, "history"))
    assert together.freedom == 9
    assert together.spread == pytest.approx(math.sqrt((0.0002 + 8 * 0.0001) / 9))


def test_stated_noise_comes_on_top_of_the_runs_own() -> None:
    one = estimate(
        figures(0.0, within=0.03), figures(0.1, within=0.03), Floor(0.04**2, math.inf, "stated")
    )
    assert one.spread == pytest.approx(0.05)
    assert one.source == "stated"


def test_repeats_that_agree_by_luck_are_no_proof() -> None:
    """What each run says of itself is the least noise that there can be."""
    wide, narrow = figures(1, 1, 1, within=0.1), figures(1, 1, 1, within=None)
    assert estimate(wide, wide).spread == pytest.approx(0.1)
    assert not estimate(wide, wide).same_within(0.05)
    assert estimate(narrow, narrow).same_within(0.05)
    assert estimate(narrow, narrow).p == 1


def test_same_needs_the_whole_interval_inside() -> None:
    def of(change: float) -> Estimate:
        return Estimate(change=change, error=0.01, freedom=math.inf, spread=0.01, source="repeats")

    margin = math.log(1.05)
    edge = margin - 1.6449 * 0.01
    assert of(edge - 1e-4).same_within(margin)
    assert of(1e-4 - edge).same_within(margin)
    assert not of(edge + 1e-4).same_within(margin)


def test_runs_needed_is_the_least_that_reach_it() -> None:
    one = Estimate(change=0, error=1, freedom=4, spread=0.03, source="repeats")
    needed = runs_needed(one, 0.05)
    assert needed == 5  # 2.306 * 0.03 * sqrt(2/5) = 0.0438; with 4 runs 0.0519 > log 1.05
    assert runs_needed(one, 0.5) == 3
    assert runs_needed(one, 0.001) == 100


@pytest.mark.parametrize("sides", [(3, 3), (5, 3), (2, 2), (4, 1)])
def test_interval_holds_the_truth(sides: tuple[int, int]) -> None:
    rng, held, times = random.Random(sum(sides)), 0, 1500
    for _ in range(times):
        before = figures(*(rng.gauss(0, 0.05) for _ in range(sides[0])))
        after = figures(*(rng.gauss(0.1, 0.05) for _ in range(sides[1])))
        one = estimate(before, after)
        held += abs(one.change - 0.1) <= one.reach(0.95)
    assert 0.93 < held / times < 0.98


def test_unequal_noise_does_not_fool_it() -> None:
    """The side with fewer runs is the noisier one: pooled, luck would pass for change."""
    rng, called = random.Random(3), 0
    for _ in range(1500):
        before = figures(*(rng.gauss(0, 0.01) for _ in range(12)))
        after = figures(*(rng.gauss(0, 0.05) for _ in range(3)))
        called += estimate(before, after).p < 0.05
    assert called / 1500 < 0.08


@pytest.mark.parametrize("sides", [(20, 3), (3, 20), (10, 3)])
def test_unequal_numbers_do_not_fool_it(sides: tuple[int, int]) -> None:
    """Three runs in ten got the slower path, and three alike say nothing of twenty."""
    rng, called, times = random.Random(5), 0, 600

    def run() -> float:
        return rng.gauss(0.14 if rng.random() < 0.3 else 0.0, 0.01)

    for _ in range(times):
        before = figures(*(run() for _ in range(sides[0])))
        after = figures(*(run() for _ in range(sides[1])))
        called += estimate(before, after).p < 0.05
    assert called / times < 0.08


# Against printed tables of Student's t and a paper's worked example, and against themselves.


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
