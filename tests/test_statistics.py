"""Order statistics: exact small cases, coverage, and what the helpers say."""

import math
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.statistics import (
    drift,
    median_interval,
    percentile,
    relative_half_width,
    robust_scores,
    time_stats,
)

times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=200)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 9, 12, 15])
def test_ranks_and_coverage_by_enumeration(n):
    """Each sample lies below the median with probability 1/2: count the sign patterns that miss."""
    interval = median_interval(list(range(1, n + 1)))
    k = int(interval.low)
    assert interval.high == n + 1 - k
    covered = sum(k <= sum(signs) <= n - k for signs in product((0, 1), repeat=n)) / 2**n
    assert interval.coverage == pytest.approx(covered)
    if n >= 6:
        assert covered >= 0.95
        wider = sum(k + 1 <= sum(signs) <= n - k - 1 for signs in product((0, 1), repeat=n)) / 2**n
        assert wider < 0.95


def test_large_counts_agree_with_the_normal_approximation():
    for n in (1_000, 20_000, 100_000):
        k = median_interval(list(range(1, n + 1))).low
        assert k == pytest.approx(n / 2 - 1.96 * math.sqrt(n) / 2, abs=2)


@given(times)
def test_the_interval_holds_the_median_and_order_does_not_matter(samples):
    stats = time_stats(samples)
    assert stats.min <= stats.low <= stats.median <= stats.high <= stats.max
    assert stats.median <= stats.p95 <= stats.p99 <= stats.max
    assert time_stats(samples[::-1]) == stats
    assert relative_half_width(stats) >= 0


@given(times)
def test_more_confidence_is_never_narrower(samples):
    loose, tight = median_interval(samples, 0.8), median_interval(samples, 0.99)
    assert tight.low <= loose.low and loose.high <= tight.high


def test_coverage_on_a_skewed_distribution():
    generator = random.Random(3)
    true, hits = math.exp(0), 0
    for _ in range(2000):
        interval = median_interval([generator.lognormvariate(0, 1) for _ in range(25)])
        hits += interval.low <= true <= interval.high
    assert 0.945 < hits / 2000 < 0.985


def test_percentile_is_the_nearest_rank():
    samples = list(range(1, 101))
    assert [percentile(samples, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]


def test_robust_scores_see_one_outlier_among_equals_and_among_noise():
    assert robust_scores([1, 1, 1, 5]) == [0, 0, 0, math.inf]
    scores = robust_scores([1.0, 1.1, 0.9, 1.05, 0.95, 3.0])
    assert scores[-1] > 10 and max(map(abs, scores[:-1])) < 3


def test_drift_is_told_only_beyond_the_noise():
    generator = random.Random(2)
    steady = [generator.gauss(1, 0.05) for _ in range(200)]
    moved = [value + (0.3 if i >= 100 else 0) for i, value in enumerate(steady)]
    assert drift(steady) == 0.0
    assert drift(moved) == pytest.approx(0.3, abs=0.05)
    assert drift([1.0, 2.0]) == 0.0
