"""Lateness, bursts and changes on arrays small enough to be read."""

import numpy as np
import pytest

from wirespeed.watch.bursts import bursts
from wirespeed.watch.change_points import events_since, levels
from wirespeed.watch.costs import cost_of
from wirespeed.watch.late import Units, always_late
from wirespeed.watch.own_work import Matrix, others

ONES = np.ones(100)


def noisy(ranks: int, rows: int = 100, seed: int = 1) -> Matrix:
    rng = np.random.default_rng(seed)
    return (0.1 * np.exp(rng.normal(0, 0.05, (ranks, rows)))).astype(np.float32)


@pytest.mark.parametrize("units", [2, 3, 4, 5, 8])
def test_the_others_are_all_but_oneself(units: int) -> None:
    values = noisy(units, 30)
    expected = [np.median(np.delete(values, unit, axis=0), axis=0) for unit in range(units)]
    assert np.allclose(others(values), expected, rtol=1e-5)
    values[0, 3] = np.nan
    without = others(values)
    assert np.allclose(without[:, 4:], np.array(expected)[:, 4:], rtol=1e-5)
    if units > 2:
        assert without[1, 3] == pytest.approx(np.median(values[2:, 3]))


def test_who_is_alone_has_no_others() -> None:
    assert np.isnan(others(noisy(1))).all()


def test_a_change_of_level_has_its_place_and_interval() -> None:
    values = np.where(np.arange(100) < 40, 0.0, 1.0) + np.random.default_rng(1).normal(0, 0.5, 100)
    first, second = levels(values, ONES)
    assert second.change is not None
    assert second.change.low <= 40 <= second.change.high
    assert abs(second.change.at - 40) <= 3
    assert (first.stop, second.start) == (second.change.at, second.change.at)
    assert second.value - first.value == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("seed", [1, 3, 4, 6, 10])
def test_a_change_to_values_with_a_long_tail_is_found_by_their_ranks(seed: int) -> None:
    """As of a rank whose core others take: most steps are somewhat late, some by ten times as much."""
    rng = np.random.default_rng(seed)
    values = np.where(np.arange(100) < 40, rng.normal(0, 2, 100), rng.lognormal(0.8, 2, 100))
    _, second, *_ = levels(values, ONES, among=4)
    assert abs(second.start - 40) <= 5


@pytest.mark.parametrize("seed", range(5))
def test_noise_with_memory_and_outliers_has_no_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.convolve(rng.normal(0, 1, 204), np.ones(5) / 5, "valid")
    values[rng.integers(0, 200, 10)] += 20
    assert len(levels(values, np.ones(200))) == 1
    assert len(levels(rng.lognormal(0.8, 2, 100), ONES)) == 1


def test_long_rows_weigh_more() -> None:
    """A row of the mean of 16 steps says as much as 16 rows."""
    rng = np.random.default_rng(1)
    weights = np.where(np.arange(40) < 20, 16.0, 1.0)
    values = np.where(np.arange(40) < 10, 0.0, 0.6) + rng.normal(0, 1, 40) / np.sqrt(weights)
    found = levels(values, weights)
    assert len(found) == 2
    assert abs(found[1].start - 10) <= 1


def test_regular_events_say_when_they_began() -> None:
    event = np.zeros(100, np.bool_)
    event[[3, *range(40, 100, 7)]] = True  # the first is noise
    onset, every = events_since(event, ONES)
    assert every == 7
    assert onset is not None
    assert (onset.at, onset.low, onset.high) == (40, 34, 40)


def test_events_from_the_begin_on_have_no_onset() -> None:
    assert events_since(np.arange(100) % 7 == 2, ONES) == (None, 7)
    assert events_since(np.zeros(100, np.bool_), ONES) == (None, 0)


def test_two_ranks_that_are_late_alike_do_not_hide_each_other() -> None:
    work = noisy(6)
    work[[1, 4], 50:] += 0.03
    found = {one.unit: one for one in always_late(Units(work, ONES, 0.12))}
    assert {*found} == {1, 4}
    for one in found.values():
        assert one.onset is not None
        assert abs(one.onset.at - 50) <= 2
        assert one.typical_s == pytest.approx(0.03, rel=0.15)
        assert one.over == -1


def test_lateness_that_is_over_says_so() -> None:
    work = noisy(6)
    work[2, 30:70] += 0.03
    (one,) = always_late(Units(work, ONES, 0.12))
    assert one.onset is not None
    assert (abs(one.onset.at - 30) <= 1, abs(one.over - 70) <= 1) == (True, True)
    assert one.rows.sum() == pytest.approx(40, abs=2)


def test_who_is_late_by_as_much_as_units_differ_is_not_named() -> None:
    """Ranks of different speeds: the slowest of them is no outlier."""
    work = noisy(16) * np.linspace(1, 1.3, 16, dtype=np.float32)[:, None]
    assert always_late(Units(work, ONES, 0.12)) == []
    work[3] += 0.3
    assert [one.unit for one in always_late(Units(work, ONES, 0.12))] == [3]


def test_bursts_are_of_who_has_more_of_them_than_others() -> None:
    work = noisy(4)
    rng = np.random.default_rng(3)
    for unit, row in zip(rng.integers(0, 4, 30), rng.choice(100, 30, replace=False), strict=True):
        work[unit, row] += 0.05
    assert bursts(Units(work, ONES, 0.12), []) == []
    work[1, 20::8] += 0.4
    (one,) = bursts(Units(work, ONES, 0.12), [])
    assert (one.unit, one.every, one.onset is not None and one.onset.at) == (1, 8, 20)
    assert np.nonzero(one.rows)[0].tolist() == [*range(20, 100, 8)]


def test_the_interval_of_a_cost_holds_what_comes_now_and_then() -> None:
    extra, base = np.where(np.arange(100) % 10 == 0, 1.0, 0.0), np.full(100, 0.5)
    cost = cost_of(extra, base, ONES)
    assert cost.ratio == pytest.approx(1.2)
    assert 1.15 < cost.low <= cost.ratio <= cost.high < 1.25


def test_a_block_with_next_to_no_time_of_its_own_does_not_widen_the_interval() -> None:
    base = np.where(np.arange(len(ONES)) < len(ONES) // 10, 1e-9, 0.02)
    cost = cost_of(np.full(len(ONES), 0.01), base, ONES)
    assert cost.low <= cost.ratio <= cost.high < 3


def test_events_of_rows_of_several_steps_are_in_time_whichever_step_they_are_in() -> None:
    """Every fifth step from 90 on, two steps to a row up to 100: the first is in the row of 90."""
    each = np.array([2.0] * 50 + [1.0] * 50)
    begins = np.concatenate(([0], np.cumsum(each)))[:-1]
    event = np.zeros(100, np.bool_)
    for step in range(90, 150, 5):
        event[int(np.searchsorted(begins, step, "right")) - 1] = True
    onset, every = events_since(event, each)
    assert onset is not None
    assert (every, begins[onset.at]) == (5, 90)
