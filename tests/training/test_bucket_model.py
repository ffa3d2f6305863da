"""The model of overlapping buckets: its formula, its optimum, and the fit of a link."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import CannotMeasure
from wirespeed.training.buckets import Link, best_bucket_bytes, bucketed_step_s, fit_link

LINK = Link(latency_s=1e-3, bytes_per_s=1e9)
S = 100_000_000

links = st.builds(Link, st.floats(1e-6, 1e-1), st.floats(1e6, 1e12))


def step(bucket, *, b=0.0, s=S, link=LINK, rest=0.0):
    return bucketed_step_s(link, gradient_bytes=s, backward_s=b, bucket_bytes=bucket, rest_s=rest)


def test_the_formula_in_both_regimes():
    # Communication bound: the first bucket is full after 5 ms; 100 ms of bytes, 10 calls of 1 ms.
    assert step(10e6, b=0.05) == pytest.approx(0.005 + 0.100 + 0.010)
    # Compute bound: only the last bucket is seen.
    assert step(10e6, b=0.5, rest=0.2) == pytest.approx(0.7 + 0.011)


def test_a_bucket_above_all_gradients_is_one_call_after_all():
    assert step(1e12, b=0.01) == step(S, b=0.01) == pytest.approx(0.01 + 0.101)


def test_no_gradients_send_nothing():
    assert step(1e6, s=0, b=0.3) == 0.3


@pytest.mark.parametrize("bucket", [0, -1])
def test_a_bucket_must_have_a_size(bucket):
    with pytest.raises(ValueError, match="bucket"):
        step(bucket)


def test_where_the_wire_is_longer_the_optimum_is_the_root_of_b_over_o():
    """90 ms of backward pass, 100 ms of bytes, 1 ms a call: between 9 and 10 buckets."""
    best = best_bucket_bytes(LINK, gradient_bytes=S, backward_s=0.09)
    assert best in {math.ceil(S / 9), math.ceil(S / 10)}


def test_without_a_backward_pass_nothing_is_worth_a_second_call():
    assert best_bucket_bytes(LINK, gradient_bytes=S, backward_s=0.0) == S


def one_by_one(calls, b):
    end = 0.0
    for number in range(1, calls + 1):
        end = max(end, b * number / calls) + LINK.time_s(S / calls)
    return end


@given(st.integers(1, 200), st.floats(0, 1))
def test_messages_leave_when_they_are_ready_and_the_one_before_has_arrived(calls, b):
    assert step(S / calls, b=b) == pytest.approx(one_by_one(math.ceil(S / (S / calls)), b))


def test_a_long_backward_pass_takes_smaller_buckets_that_stay_hidden():
    """200 ms hide 100 ms of bytes and 100 calls: buckets of 1 MB."""
    best = best_bucket_bytes(LINK, gradient_bytes=S, backward_s=0.2)
    assert best == pytest.approx(1e6, rel=0.02)


def test_without_latency_the_smallest_bucket_is_best():
    assert best_bucket_bytes(Link(0.0, 1e9), gradient_bytes=S, backward_s=0.1) == 4


def test_few_gradients_leave_in_one_bucket():
    assert best_bucket_bytes(LINK, gradient_bytes=1000, backward_s=5e-4) == 1000


@given(links, st.integers(1, 10**11), st.floats(0, 10))
def test_no_other_size_is_predicted_to_be_better(link, s, b):
    best = best_bucket_bytes(link, gradient_bytes=s, backward_s=b)
    assert 1 <= best <= s
    least = step(best, s=s, b=b, link=link)
    # Even splits into more or fewer buckets; a thousandth for gradients of very few elements.
    for calls in {1, 2, 3, 10, 100, *(math.ceil(s / best) + d for d in (-1, 1))}:
        if 1 <= calls <= s:
            assert least <= step(math.ceil(s / calls), s=s, b=b, link=link) * 1.001


SIZES = [2**k for k in range(10, 28)]


@given(links)
def test_a_line_is_found_again(link):
    found = fit_link([(x, link.time_s(x)) for x in [1, 10**12, *SIZES]])
    assert found.latency_s == pytest.approx(link.latency_s, rel=1e-3)
    assert found.bytes_per_s == pytest.approx(link.bytes_per_s, rel=1e-3)
    assert found.error < 1e-6


def noisy(seed, spread, disturbed):
    source = random.Random(seed)
    return [
        (x, LINK.time_s(x) * source.lognormvariate(0, spread) * disturbed.get(i, 1))
        for i, x in enumerate(SIZES)
    ]


@pytest.mark.parametrize(
    "disturbed", [{2: 8, 9: 8, 15: 8}, {3: 1 / 6, 14: 1 / 4}, {2: 1 / 6, 9: 8}]
)
@pytest.mark.parametrize("seed", range(5))
def test_noise_and_disturbed_times_do_not_bend_it(seed, disturbed):
    found = fit_link(noisy(seed, 0.03, disturbed))
    assert found.latency_s == pytest.approx(1e-3, rel=0.05)
    assert found.bytes_per_s == pytest.approx(1e9, rel=0.1)
    assert 0.005 < found.error < 0.1


def test_small_sizes_count_as_much_as_large_ones():
    """A tenth of noise on the largest time is ten times all of the latency."""
    found = fit_link([*((x, LINK.time_s(x)) for x in SIZES), (1e9, LINK.time_s(1e9) * 1.01)])
    assert found.latency_s == pytest.approx(1e-3, rel=0.01)


def test_repeated_sizes_count_as_their_median():
    times = [(x, LINK.time_s(x) * k) for x in SIZES for k in (1, 1, 50)]
    assert fit_link(times).latency_s == pytest.approx(1e-3, rel=1e-6)


def test_neither_latency_nor_bandwidth_falls_below_nothing():
    found = fit_link([(1e6, 0.001), (2e6, 0.0021)])
    assert found.latency_s == 0
    assert found.bytes_per_s == pytest.approx(1e9, rel=0.1)


def test_what_cannot_be_told_is_an_error():
    with pytest.raises(CannotMeasure, match="1 size"):
        fit_link([(1e6, 0.001), (1e6, 0.002)])
    with pytest.raises(CannotMeasure, match="no longer for more bytes"):
        fit_link([(1e3, 0.002), (1e6, 0.001)])
    with pytest.raises(ValueError, match="0 s"):
        fit_link([(1e3, 0), (1e6, 0.001)])
