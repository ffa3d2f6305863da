"""One shape fitted: the coefficients come back."""

import numpy as np
import pytest

from wirespeed.model.derived_records import WorldSize
from wirespeed.predict.points import shapes_for
from wirespeed.predict.solve import latency_share, log_times, solve

WORLDS = [WorldSize(n, 1) for n in (2, 3, 4, 8)]
PLACES = [(world, 4**k) for world in WORLDS for k in range(5, 13)]
TRUTH = np.array([2e-5, 1e-5, 1e-9])


def known(power, theta=TRUTH):
    shape = next(
        s for s in shapes_for("all_reduce", WORLDS) if (s.name, s.power) == ("ring", power)
    )
    matrix = shape.matrix(PLACES)
    return shape, matrix, np.exp(log_times(matrix, shape.bandwidth, power, theta))


def solved(shape, matrix, seconds):
    return solve(matrix, shape.bandwidth, shape.power, seconds, np.ones(len(seconds)))


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_coefficients_come_back(power):
    shape, matrix, seconds = known(power)
    assert solved(shape, matrix, seconds).theta == pytest.approx(TRUTH, rel=1e-3)


def test_coefficients_come_back_where_links_refill_between_calls():
    """Bytes hide behind the latency of the call before, so that nothing is added below it."""
    shape, matrix, _ = known(4.0)
    seconds = np.exp(log_times(matrix, shape.bandwidth, 4.0, TRUTH, 1.0))
    told = solve(matrix, shape.bandwidth, 4.0, seconds, np.ones(len(seconds)), None, 1.0).theta
    assert told == pytest.approx(TRUTH, rel=1e-3)
    latency = matrix[:, :2] @ TRUTH[:2]
    hidden = matrix[:, 2] * TRUTH[2] < latency
    assert hidden.any()
    assert seconds[hidden] == pytest.approx(latency[hidden])


def test_no_coefficient_is_less_sure_than_the_measurements_allow():
    """One world cannot tell a call from its steps: each is at most what the quickest call took."""
    shape, matrix, seconds = known(1.0)
    one = [k for k, (world, _) in enumerate(PLACES) if world.ranks == 4]
    found = solved(shape, matrix[one], seconds[one])
    assert np.sqrt(found.covariance[0, 0]) < 2 * seconds[one].min()


def test_a_term_that_costs_nothing_is_found_to_cost_nothing():
    shape, matrix, seconds = known(1.0, np.array([0.0, 1e-5, 1e-9]))
    theta = solved(shape, matrix, seconds).theta
    assert theta[1:] == pytest.approx([1e-5, 1e-9], rel=1e-3)
    assert 0 <= theta[0] < 1e-7


def test_a_few_disturbed_times_do_not_bend_it():
    shape, matrix, seconds = known(1.0)
    seconds = seconds * np.exp(np.random.default_rng(3).normal(0, 0.02, len(seconds)))
    seconds[[5, 20]] *= 8
    assert solved(shape, matrix, seconds).theta == pytest.approx(TRUTH, rel=0.15)


def test_the_standard_errors_are_those_of_many_repetitions():
    shape, matrix, seconds = known(1.0)
    dice, found = np.random.default_rng(5), []
    for _ in range(60):
        noisy = seconds * np.exp(dice.normal(0, 0.05, len(seconds)))
        found.append(solved(shape, matrix, noisy).theta)
    told = 0.05 * np.sqrt(np.diag(solved(shape, matrix, seconds).covariance))
    assert np.std(found, axis=0) == pytest.approx(told, rel=0.5)


def test_the_share_of_latency_goes_from_all_to_nothing():
    shape, matrix, _ = known(1.0)
    share = latency_share(matrix, shape.bandwidth, 1.0, TRUTH)
    assert share[0] > 0.95
    assert share[7] < 0.02
