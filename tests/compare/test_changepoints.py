"""Levels that change are found where they change; noise and outliers are no level."""

import numpy as np
import pytest

from wirespeed.compare.estimate import LEAST, cuts


def steps(rng: np.random.Generator, *levels: tuple[int, float], sigma: float = 0.02) -> list[float]:
    return [value for count, level in levels for value in rng.normal(level, sigma, count)]


@pytest.mark.parametrize("seed", range(5))
def test_two_steps(seed: int) -> None:
    series = steps(np.random.default_rng(seed), (12, 0.0), (15, 0.2), (10, 0.1))
    assert [cut.at for cut in cuts(series)] == [12, 27]


def test_one_outlier_is_no_level() -> None:
    series = steps(np.random.default_rng(1), (30, 0.0))
    series[14] = 5.0
    assert cuts(series) == []


def test_two_far_runs_are_no_level() -> None:
    """They may be one bad day; three are a level."""
    base = steps(np.random.default_rng(2), (20, 0.0))
    assert cuts([*base, 1.0, 1.0]) == [] or cuts([*base, 1.0, 1.0])[0].at < 20
    assert [cut.at for cut in cuts([*base, 1.0, 1.1, 1.2])] == [20]


def test_too_short_or_constant() -> None:
    assert cuts([0.0] * 3 + [1.0] * (LEAST - 4)) == []
    assert cuts([2.0] * 50) == []
    assert cuts([]) == []


def test_deterministic() -> None:
    series = steps(np.random.default_rng(3), (10, 0.0), (10, 0.05), sigma=0.03)
    assert cuts(series) == cuts(series)


@pytest.mark.slow
def test_noise_alone_is_rarely_called() -> None:
    rng = np.random.default_rng(4)
    called = sum(bool(cuts(rng.standard_t(3, 25).tolist(), seed=k)) for k in range(200))
    assert called <= 20  # 5 % are 10; 20 and more have a probability of 0.3 %


def test_order_of_ties_does_not_matter() -> None:
    assert [cut.at for cut in cuts([1.0] * 10 + [2.0] * 10)] == [10]
