"""Order statistics: exact small cases, coverage, and what the helpers say."""

import math
import random
from itertools import product
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.statistics import (
    LEAST_SAMPLES,
    drift,
    has_interval,
    lacks_samples,
    mean_interval,
    median_absolute_deviation,
    median_interval,
    paired_ratio,
    percentile,
    reach_of_ends,
    relative_half_width,
    student_t,
    sure_interval,
    time_stats,
)

times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=200)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 9, 12, 15])
def test_ranks_and_coverage_by_enumeration(n):
    """Each sample lies below the median with probability 1/2: count the sign patterns that miss."""
    interval = sure_interval(list(range(1, n + 1)))
    k = int(interval.low)
    assert interval.high == n + 1 - k
    covered = sum(k <= sum(signs) <= n - k for signs in product((0, 1), repeat=n)) / 2**n
    assert interval.coverage == pytest.approx(covered)
    if n >= 6:
        assert covered >= 0.95
        wider = sum(k + 1 <= sum(signs) <= n - k - 1 for signs in product((0, 1), repeat=n)) / 2**n
        assert wider < 0.95


def exact_rank(n, confidence):
    """(k, coverage) in whole numbers: 2^n times the tail against 2^n times what is allowed."""
    numerator, denominator = ((1 - confidence) / 2).as_integer_ratio()
    allowed = 2**n * numerator // denominator
    tail, term, k = 0, 1, 0
    while k < n // 2 and tail + term <= allowed:
        tail, k = tail + term, k + 1
        term = term * (n - k + 1) // k
    return (k, 1 - 2 * (tail / 2**n)) if k else (1, 1 - 2 * 0.5**n)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99, 0.999])
def test_ranks_are_those_of_whole_number_arithmetic(confidence):
    for n in (*range(1, 120), 300, 999, 1000, 5000):
        interval = sure_interval(list(range(1, n + 1)), confidence)
        k, coverage = exact_rank(n, confidence)
        assert (interval.low, interval.high) == (k, n + 1 - k), n
        assert interval.coverage == pytest.approx(max(coverage, 0), abs=1e-9), n


def test_large_counts_agree_with_the_normal_approximation():
    for n in (1_000, 20_000, 100_000):
        k = sure_interval(list(range(1, n + 1))).low
        assert k == pytest.approx(n / 2 - 1.96 * math.sqrt(n) / 2, abs=2)


def test_the_least_count_for_95_percent_is_the_least():
    assert median_interval([1.0] * LEAST_SAMPLES).coverage >= 0.95
    assert median_interval([1.0] * (LEAST_SAMPLES - 1)).coverage < 0.95
    assert [has_interval(n) for n in (0, 5, 6)] == [False, False, True]
    assert [lacks_samples(n) for n in (0, 1, 5, 6)] == [False, True, True, False]


def test_the_range_of_few_samples_stands_for_fewer_standard_errors():
    """Two samples hold the median half of the time: 0.674 standard errors of a normal estimate."""
    assert reach_of_ends(2) == pytest.approx(0.6745, abs=1e-3)
    assert reach_of_ends(6) == reach_of_ends(100) == pytest.approx(1.96, abs=1e-2)
    assert reach_of_ends(2) < reach_of_ends(3) < reach_of_ends(5) < reach_of_ends(6)


@given(times)
def test_the_interval_holds_the_median_and_order_does_not_matter(samples):
    stats = time_stats(samples)
    assert stats.min <= stats.low <= stats.median <= stats.high <= stats.max
    assert stats.median <= stats.p95 <= stats.p99 <= stats.max
    assert stats.median == pytest.approx(median(samples))
    assert time_stats(samples[::-1]) == stats
    assert relative_half_width(samples) >= 0


def drawn_in(n, confidence=0.95):
    """(rank of the low end, coverage) where whole order statistics are not what is reported."""
    samples = list(range(1, n + 1))
    interval = median_interval(samples, confidence)
    assert interval.high == pytest.approx(n + 1 - interval.low), "both ends alike"
    whole = interval.low == sure_interval(samples, confidence).low
    return None if whole else (interval.low, interval.coverage)


def test_intervals_that_would_be_too_sure_are_drawn_in_to_what_was_asked():
    inside = {n: found for n in range(1, 200) if (found := drawn_in(n))}
    assert list(inside) == [7, 8, 10, 11, 14, 16, 19, 22, 27, 32]
    for n in set(range(LEAST_SAMPLES, 200)) - set(inside):
        assert 0.95 <= median_interval(list(range(n))).coverage <= 0.978, n
    assert all(0.95 <= coverage < 0.97 for _, coverage in inside.values())
    # By hand: 1 - 2/2^8 = 99.22 % less 67.5 % of 2 * 8/2^8; 7 * 0.675 / (1 + 6 * 0.675) = 0.9356.
    assert inside[8] == (pytest.approx(1.9356, abs=1e-4), pytest.approx(0.95))
    # The next pair holds the median with 87.5 % only, so half of the way: a seventh of that step.
    assert inside[7] == (1.5, pytest.approx(1 - 2 / 2**7 - 14 / 2**7 / 7))


def test_the_share_is_exact_for_a_distribution_of_exponential_sides():
    """And next to it for a normal one, and for one that is skewed."""
    generator, hits = random.Random(6), [0, 0, 0]
    for _ in range(4000):
        draws = (
            [generator.expovariate(1) * generator.choice((-1, 1)) for _ in range(8)],
            [generator.gauss(0, 1) for _ in range(8)],
            [generator.lognormvariate(0, 1) - 1 for _ in range(8)],
        )
        for kind, samples in enumerate(draws):
            interval = median_interval(samples)
            hits[kind] += interval.low <= 0 <= interval.high
    # One sigma of 4,000 is 0.35 %; the whole range holds it in 99.2 %, the next pair in 93.0 %.
    assert [hit / 4000 for hit in hits] == pytest.approx([0.950, 0.9455, 0.947], abs=0.011)


@pytest.mark.parametrize("share_above", [0.5, 0.499])
@pytest.mark.parametrize("n", [7, 8, 10, 16])
def test_no_distribution_is_missed_half_as_often_again_as_was_allowed(n, share_above):
    """The worst ones: the median in the middle of a gap, and at the edge of one."""
    generator, hits = random.Random(n), 0
    truth = 0.5 if share_above == 0.5 else 0.001
    for _ in range(4000):
        samples = [
            (1 if generator.random() < share_above else 0) + generator.uniform(-0.001, 0.001)
            for _ in range(n)
        ]
        interval = median_interval(samples)
        hits += interval.low <= truth <= interval.high
    assert hits / 4000 > 0.925 - 0.013


@given(times, st.floats(0.3, 0.9999), st.floats(0.3, 0.9999))
def test_more_confidence_is_never_narrower(samples, one, other):
    loose, tight = (median_interval(samples, level) for level in sorted((one, other)))
    assert tight.low <= loose.low and loose.high <= tight.high
    assert loose.coverage <= tight.coverage + 1e-12


@given(times, st.floats(0.3, 0.9999))
def test_the_sure_interval_holds_the_other_and_both_hold_the_median(samples, confidence):
    sure, inner = sure_interval(samples, confidence), median_interval(samples, confidence)
    assert sure.low <= inner.low <= median(samples) <= inner.high <= sure.high
    assert inner.coverage <= sure.coverage
    assert (inner.coverage < confidence) == (sure.coverage < confidence)


def test_a_sample_without_end_does_not_make_a_whole_interval_infinite():
    samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, math.inf]
    assert median_interval(samples).low == pytest.approx(1.9356, abs=1e-4)
    assert median_interval(samples).high == math.inf
    assert median_interval([-value for value in samples]).low == -math.inf


@given(times, st.floats(0.5, 2))
def test_the_interval_scales_with_the_unit(samples, factor):
    before = median_interval(samples)
    after = median_interval([sample * factor for sample in samples])
    assert (after.low, after.high) == pytest.approx((before.low * factor, before.high * factor))


def test_many_samples_are_sorted_by_numpy_to_the_same_figures():
    generator = random.Random(1)
    samples = [generator.lognormvariate(0, 1) for _ in range(2001)]
    ordered, stats = sorted(samples), time_stats(samples)
    assert (stats.min, stats.median, stats.max) == (ordered[0], ordered[1000], ordered[-1])
    assert (stats.p95, stats.p99) == (ordered[1900], ordered[1980])
    assert {type(getattr(stats, name)) for name in ("low", "median", "high", "p99")} == {float}


def test_coverage_on_a_skewed_distribution():
    generator = random.Random(3)
    true, hits = math.exp(0), 0
    for _ in range(2000):
        interval = median_interval([generator.lognormvariate(0, 1) for _ in range(25)])
        hits += interval.low <= true <= interval.high
    assert 0.945 < hits / 2000 < 0.985


def test_half_width_of_a_clock_too_coarse_is_not_perfect():
    assert relative_half_width([0.0] * 8) == 0
    assert relative_half_width([0.0] * 5 + [1e-6] * 3) == math.inf


def test_the_half_width_is_that_of_the_sure_interval():
    samples = [0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.3]
    assert relative_half_width(samples) == pytest.approx(0.3)
    assert time_stats(samples).high == pytest.approx(1.0193, abs=1e-4)


def test_percentile_is_the_nearest_rank():
    samples = list(range(100, 0, -1))
    assert [percentile(samples, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert [percentile(samples, share) for share in (0.0, 0.07, 0.29)] == [1, 7, 29]
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_median_absolute_deviation_ignores_one_outlier_and_estimates_sigma():
    assert median_absolute_deviation([1, 2, 3, 4, 1000]) == 1
    generator = random.Random(5)
    normal = [generator.gauss(10, 2) for _ in range(4001)]
    assert 1.4826 * median_absolute_deviation(normal) == pytest.approx(2, rel=0.06)


def test_drift_is_told_only_beyond_the_noise():
    generator = random.Random(2)
    steady = [generator.gauss(1, 0.05) for _ in range(200)]
    moved = [value + (0.3 if i >= 100 else 0) for i, value in enumerate(steady)]
    assert drift(steady) == 0.0
    assert drift(moved) == pytest.approx(0.3, abs=0.05)
    assert drift(moved[::-1]) == pytest.approx(-0.3 / 1.3, abs=0.05)
    assert drift([1.0, 2.0]) == 0.0


def test_drift_is_rarely_told_of_noise_alone():
    generator = random.Random(8)
    for n in (12, 16, 40, 101):
        told = sum(drift([generator.gauss(1, 0.1) for _ in range(n)]) != 0 for _ in range(2000))
        assert told <= 20, n


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [  # from the table of M. Abramowitz and I. A. Stegun, 1964, table 26.10
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.95, 30, 2.042),
        (0.95, 120, 1.980),
        (0.99, 1, 63.657),
        (0.99, 5, 4.032),
        (0.99, 10, 3.169),
        (0.995, 7, 4.029),
        (0.95, 100_000, 1.960),
    ],
)
def test_student_t_is_that_of_the_table(confidence: float, freedom: int, quantile: float) -> None:
    assert student_t(confidence, freedom) == pytest.approx(quantile, abs=6e-4)


def test_the_interval_of_the_mean_holds_the_true_mean_as_often_as_it_says() -> None:
    source = random.Random(7)
    inside = 0
    for _ in range(2000):
        interval = mean_interval([source.gauss(3.0, 0.5) for _ in range(8)])
        inside += interval.low <= 3.0 <= interval.high
    assert 0.93 < inside / 2000 < 0.97


def test_one_sample_has_no_interval_of_its_mean() -> None:
    assert mean_interval([1.0]).coverage == 0.0
    assert mean_interval([1.0]).high == math.inf


def test_a_paired_ratio_does_not_see_the_drift_that_both_share() -> None:
    mood = [1.0, 1.3, 2.0, 1.1, 5.0, 1.2, 1.0, 1.7, 1.4, 1.1]
    value, interval = paired_ratio([1.2 * m for m in mood], mood)
    assert value == pytest.approx(1.2)
    assert interval.low == pytest.approx(1.2)
    assert interval.high == pytest.approx(1.2)
