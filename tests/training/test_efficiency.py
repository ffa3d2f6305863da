"""Scaling efficiency: the value, its interval's coverage, grades, and a loss that sums up."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.statistics import student_t
from wirespeed.training.efficiency import (
    ScalePoint,
    efficiency_of,
    grade_of,
    loss_of,
    scaled,
)

times = st.floats(1e-3, 1e3)


def point(ranks, samples, *steps, **more):
    return ScalePoint(ranks=ranks, samples=samples, step_s=steps, **more)


def test_weak_and_strong_efficiency_are_throughput_over_ranks():
    one = point(1, 8, 1.0, 1.0)
    weak = efficiency_of(one, point(4, 32, 1.25, 1.25))
    strong = efficiency_of(one, point(4, 8, 0.25 / 0.85, 0.25 / 0.85))
    assert weak.value == pytest.approx((32 / 1.25) / (4 * 8 / 1.0)) == pytest.approx(0.8)
    assert strong.value == pytest.approx(0.85)
    assert strong.grade == "good"
    assert strong.low == pytest.approx(strong.value) == pytest.approx(strong.high)


def test_the_base_may_have_several_ranks():
    assert efficiency_of(point(2, 8, 1.0), point(8, 32, 1.25)).value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("efficiency", "grade"),
    [(1.2, "excellent"), (0.901, "excellent"), (0.9, "good"), (0.801, "good"), (0.8, "poor")],
)
def test_grades(efficiency, grade):
    assert grade_of(efficiency) == grade


def test_a_grade_is_sure_when_the_whole_interval_has_it():
    one = point(1, 1, 1.0, 1.0, 1.0)
    assert efficiency_of(one, point(2, 2, 1.17, 1.18, 1.19)).sure
    doubtful = efficiency_of(one, point(2, 2, 1.0, 1.18, 1.3))
    assert doubtful.grade == "good"
    assert not doubtful.sure


def test_one_round_gives_no_interval():
    lonely = efficiency_of(point(1, 1, 1.0), point(2, 2, 1.1, 1.2))
    assert (lonely.low, lonely.high) == (0, math.inf)
    assert not lonely.sure


def test_the_interval_covers_the_truth_as_often_as_it_says():
    source = random.Random(7)

    def rounds(mean, spread):
        return [mean * (1 + source.gauss(0, spread)) for _ in range(5)]

    inside = 0
    for _ in range(1000):
        found = efficiency_of(point(1, 1, *rounds(1, 0.02)), point(2, 2, *rounds(1.25, 0.06)))
        inside += found.low <= 0.8 <= found.high
    # 950 expected, sigma 7.
    assert 920 <= inside <= 980


def test_the_loss_has_its_parts_where_they_were_put():
    one = point(1, 8, 1.0)
    weak = loss_of(one, point(4, 32, 2.0, unsynchronised_s=(1.2, 1.2, 1.2, 1.6)))
    assert weak.total == pytest.approx(0.5)
    assert weak.exposed_communication == pytest.approx(0.2)
    assert weak.slowest_rank == pytest.approx(0.15)
    assert weak.contention == weak.slower_compute == pytest.approx(0.15)
    assert weak.smaller_batch == 0
    strong = loss_of(one, point(4, 8, 0.5, unsynchronised_s=(0.4,) * 4, alone_s=0.3))
    assert strong.smaller_batch == pytest.approx(0.1)
    assert strong.contention == pytest.approx(0.2)


def test_strong_scaling_without_the_lone_rank_keeps_the_two_together():
    strong = loss_of(point(1, 8, 1.0), point(4, 8, 0.5, unsynchronised_s=(0.4,) * 4))
    assert strong.contention is None
    assert strong.smaller_batch is None
    assert strong.slower_compute == pytest.approx(0.3)


def test_an_unmeasured_loss_is_unexplained():
    loss = loss_of(point(1, 8, 1.0), point(2, 16, 2.0))
    assert (loss.total, loss.unexplained, loss.exposed_communication) == (0.5, 0.5, None)


@given(times, st.lists(times, min_size=1, max_size=8), times, times, st.integers(1, 64))
def test_the_parts_sum_up_to_the_loss(base, ranks, alone, step, samples):
    one = point(1, samples, base)
    many = point(len(ranks), samples, step, unsynchronised_s=tuple(ranks), alone_s=alone)
    loss = loss_of(one, many)
    coarse = loss.exposed_communication + loss.slowest_rank + loss.slower_compute
    size = max(base, alone, step, *ranks) / step
    assert coarse == pytest.approx(loss.total, abs=1e-9 * size)
    assert loss.contention + loss.smaller_batch == pytest.approx(
        loss.slower_compute, abs=1e-9 * size
    )
    assert loss.total == pytest.approx(1 - efficiency_of(one, many).value, abs=1e-9 * size)


def test_all_points_against_the_smallest_in_order():
    found = scaled([point(4, 32, 1.2), point(1, 8, 1.0), point(2, 16, 1.1)])
    assert [one.point.ranks for one in found] == [1, 2, 4]
    assert found[0].efficiency.value == 1
    assert found[0].loss.total == found[0].loss.unexplained == 0
    assert found[2].efficiency.value == pytest.approx(1 / 1.2)
    assert scaled([]) == ()


@pytest.mark.parametrize("wrong", [(0, 1, 1.0), (1, 0, 1.0), (1, 1), (1, 1, 0.0)])
def test_points_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="ranks"):
        point(*wrong)


@pytest.mark.parametrize("freedom", [1.0, 1.3, 1.7, 2.0, 2.5, 3, 4.4, 8, 30, 200])
def test_student_s_quantile_by_integration(freedom):
    """P(T <= q) by Simpson's rule over the density from 0."""
    q, n = student_t(0.95, freedom), 4000
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    values = [
        scale * (1 + (q * i / n) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(n + 1)
    ]
    area = (values[0] + values[-1] + 4 * sum(values[1::2]) + 2 * sum(values[2:-1:2])) * q / n / 3
    assert 0.5 + area == pytest.approx(0.975, abs=1e-3)
