"""Buckets are planned from sizes alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import UsageError
from wirespeed.training.buckets import Piece, bucket_bytes, plan_buckets


def _pieces(*sizes: int, kind: str = "float32 cpu") -> list[Piece]:
    return [Piece(size_bytes=size, kind=kind) for size in sizes]


def _members(*args: object, **options: object) -> list[tuple[int, ...]]:
    return [bucket.members for bucket in plan_buckets(*args, **options)]  # type: ignore[arg-type]


def test_pieces_go_in_reverse_and_never_overshoot() -> None:
    assert _members(_pieces(40, 30, 30, 60, 50), 100) == [(4,), (3, 2), (1, 0)]


def test_a_piece_larger_than_the_limit_is_alone() -> None:
    assert _members(_pieces(10, 500, 10), 100) == [(2,), (1,), (0,)]


def test_a_limit_below_every_piece_gives_one_bucket_a_piece() -> None:
    assert _members(_pieces(8, 8, 8), 1) == [(2,), (1,), (0,)]


def test_the_first_bucket_may_be_smaller() -> None:
    assert _members(_pieces(10, 10, 10, 10), 100, first=10) == [(3,), (2, 1, 0)]


def test_kinds_do_not_mix_and_leave_when_their_last_piece_is_reached() -> None:
    pieces = [
        *_pieces(10, kind="float64 cpu"),
        *_pieces(10, 10),
        *_pieces(10, kind="float64 cpu"),
    ]
    assert _members(pieces, 100) == [(2, 1), (3, 0)]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from("ab")), min_size=1, max_size=40),
    st.integers(1, 400),
    st.none() | st.integers(1, 400),
)
def test_any_plan(shapes: list[tuple[int, str]], limit: int, first: int | None) -> None:
    pieces = [Piece(size_bytes=size, kind=kind) for size, kind in shapes]
    plan = plan_buckets(pieces, limit, first)
    assert sorted(index for bucket in plan for index in bucket.members) == list(range(len(pieces)))
    for bucket in plan:
        assert {pieces[index].kind for index in bucket.members} == {bucket.kind}
        assert bucket.size_bytes == sum(pieces[index].size_bytes for index in bucket.members)
        assert bucket.size_bytes <= max(limit, first or 0) or len(bucket.members) == 1
        assert list(bucket.members) == sorted(bucket.members, reverse=True)
    last = [bucket.members[-1] for bucket in plan]
    assert last == sorted(last, reverse=True)


@pytest.mark.parametrize("size", [0, -1, -0.0, math.nan, math.inf, "many", None])
def test_a_size_that_is_no_positive_number_is_refused(size: object) -> None:
    with pytest.raises(UsageError, match="a bucket of"):
        bucket_bytes(size)  # type: ignore[arg-type]


def test_megabytes_are_decimal_and_a_fraction_of_a_byte_is_one() -> None:
    assert bucket_bytes(25) == 25_000_000
    assert bucket_bytes(1e-9) == 1
