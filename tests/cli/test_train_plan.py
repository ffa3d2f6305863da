"""From options to cases: the yardstick, bucket sizes, scaling, and what cannot be shared evenly."""

from dataclasses import replace

import pytest

from wirespeed.cli.train_plan import Asked, bucket_sizes, cases_of, world_sizes
from wirespeed.errors import UsageError

ASKED = Asked(
    strategies=("naive", "bucketed", "ddp"),
    buckets=(),
    world=4,
    batch=16,
    micro_batches=1,
    worlds=(),
    kinds=("strong", "weak"),
)


def test_the_yardstick_comes_first_and_once() -> None:
    asked = replace(ASKED, strategies=("ddp", "none", "naive"))
    assert [case.strategy for case in cases_of(asked)] == ["none", "ddp", "naive"]
    assert {(case.ranks, case.samples) for case in cases_of(asked)} == {(4, 16)}


def test_every_bucket_size_where_there_are_buckets() -> None:
    cases = cases_of(replace(ASKED, buckets=(1.0, 10.0)))
    told = [(case.strategy, case.bucket_mb) for case in cases]
    assert told == [
        ("none", None),
        ("naive", None),
        ("bucketed", 1.0),
        ("bucketed", 10.0),
        ("ddp", 1.0),
        ("ddp", 10.0),
    ]
    assert cases_of(ASKED)[2].bucket_mb == 25.0


def test_bucket_sizes_for_strategies_without_buckets_are_refused() -> None:
    with pytest.raises(UsageError, match="has buckets") as caught:
        cases_of(replace(ASKED, strategies=("naive",), buckets=(1.0,)))
    assert "bucketed" in caught.value.expected


def test_strong_scaling_keeps_the_batch_and_weak_the_batch_of_a_rank() -> None:
    cases = cases_of(replace(ASKED, strategies=("ddp",), worlds=(1, 2, 4)))
    told = {(c.kind, c.ranks): c.samples for c in cases if c.strategy == "ddp"}
    assert told == {
        ("strong", 1): 16,
        ("strong", 2): 16,
        ("strong", 4): 16,
        ("weak", 1): 4,
        ("weak", 2): 8,
        ("weak", 4): 16,
    }
    assert sum(case.strategy == "none" for case in cases) == 6


@pytest.mark.parametrize(
    ("batch", "micro", "expected"),
    [(6, 1, "such as 4 or 8"), (3, 1, "such as 4"), (16, 3, "12 or 24")],
)
def test_an_uneven_batch_is_refused_with_its_neighbours(
    batch: int, micro: int, expected: str
) -> None:
    with pytest.raises(UsageError, match="cannot be shared evenly") as caught:
        cases_of(replace(ASKED, batch=batch, micro_batches=micro))
    assert expected in caught.value.expected
    assert caught.value.next.startswith("wirespeed train --batch ")


def test_a_batch_that_some_world_of_the_scaling_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="by 3 ranks"):
        cases_of(replace(ASKED, worlds=(1, 3)))


def test_more_ranks_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="8 ranks, and there are 4"):
        cases_of(replace(ASKED, worlds=(4, 8)))


def test_bucket_sizes() -> None:
    assert bucket_sizes("0.1, 1,10,1") == (0.1, 1.0, 10.0)
    assert bucket_sizes(None) == ()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1,x", "", " , ", "1e999"])
def test_what_is_no_bucket_size(text: str) -> None:
    with pytest.raises(UsageError, match="bucket"):
        bucket_sizes(text)


def test_world_sizes() -> None:
    assert world_sizes("4,1,2,4") == (1, 2, 4)
    assert world_sizes(None) == ()


@pytest.mark.parametrize("text", ["0", "-2", "two", "", "1.5", "²"])
def test_what_is_no_number_of_ranks(text: str) -> None:
    with pytest.raises(UsageError, match="no number of ranks"):
        world_sizes(text)
