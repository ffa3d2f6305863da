"""The search for the largest batch, against limits that are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.training.memory.predicted import largest_that_fits


@given(st.integers(0, 5000), st.integers(1, 64), st.integers(64, 6000))
def test_it_finds_the_largest_that_fits(limit, first, most):
    found = largest_that_fits(lambda n: n <= limit, first=first, most=most)
    assert found.samples == min(limit, most)
    assert found.too_many == (limit + 1 if limit < most else None)


def test_nothing_fits():
    found = largest_that_fits(lambda n: False)
    assert (found.samples, found.too_many, found.tried) == (0, 1, (1,))


def test_it_asks_few_times_and_never_twice():
    found = largest_that_fits(lambda n: n <= 700)
    assert len(set(found.tried)) == len(found.tried) <= 21


def test_a_gap_may_be_left():
    found = largest_that_fits(lambda n: n <= 700, within=0.1)
    assert 630 <= found.samples <= 700 < found.too_many <= found.samples * 1.1
    assert len(found.tried) < len(largest_that_fits(lambda n: n <= 700).tried)


@pytest.mark.parametrize(
    ("tries", "samples", "too_many"), [(1, 1, None), (5, 16, None), (12, 512, 768)]
)
def test_an_end_leaves_what_was_found(tries, samples, too_many):
    asked = iter(range(tries))
    found = largest_that_fits(lambda n: n <= 710, more=lambda: next(asked) < tries - 1)
    assert (found.samples, found.too_many, found.ended) == (samples, too_many, True)
    assert len(found.tried) == tries
    assert not largest_that_fits(lambda n: n <= 710).ended


def test_it_never_goes_beyond_what_did_not_fit():
    asked = []

    def fits(samples):
        asked.append(samples)
        return samples <= 100

    largest_that_fits(fits)
    first_refused = next(n for n in asked if n > 100)
    assert max(asked) == first_refused == 128


@pytest.mark.parametrize("most", [1, 3])
def test_more_than_most_is_not_tried(most):
    found = largest_that_fits(lambda n: True, most=most)
    assert (found.samples, found.too_many) == (most, None)
    assert max(found.tried) == most
