"""The block that repeats, in sequences of signs."""

import math
import random
from collections.abc import Sequence

import pytest

from wirespeed.watch.period import repeating_block

FSDP = [0] * 100 + [0, 1] * 100


def even(signs: Sequence[int]) -> list[float]:
    return [0.001] * len(signs)


@pytest.mark.parametrize(
    ("signs", "length", "starts"),
    [
        ([1, 2, 3] * 5, 3, 5),
        ([9, 8, 7, 1, 2, 3, 1, 2, 3, 1, 2, 3], 3, 3),
        ([1, 1, 2] * 4 + [1], 3, 4),
        ([1] * 6, 1, 6),
        (FSDP * 4, 300, 4),
        ([5, *FSDP, 5] * 4, 302, 4),
        ([*[1, 2, 3] * 12, 7, *[1, 2, 3] * 10, 7, *[1, 2, 3] * 15], 3, 37),
        (([1, 2, 3] * 10 + [7]) * 4, 31, 4),
        (([1] * 300 + [2]) * 3 + [1] * 299, 301, 3),
    ],
    ids=[
        "plain",
        "warm-up",
        "cut",
        "all alike",
        "nearly alike",
        "with ends",
        "rare calls",
        "regular ones",
        "tensor parallel",
    ],
)
def test_what_repeats(signs, length, starts):
    block = repeating_block(signs, even(signs))
    assert block is not None
    assert block.length == length
    assert starts - 4 <= len(block.starts) <= starts
    blocks = {tuple(signs[at : at + length]) for at in block.starts}
    assert len(blocks) == 1, "each start has the same block"


@pytest.mark.parametrize(
    "signs",
    [[], [1], [1, 2] * 2, list(range(300)), random.Random(3).choices(range(40), k=2000)],
    ids=["none", "one", "twice", "all differ", "chance"],
)
def test_what_does_not(signs):
    assert repeating_block(signs, even(signs)) is None


def test_equal_calls_are_told_into_steps_by_their_gaps():
    dice = random.Random(5)
    gaps = [dice.uniform(0.9, 1.4) * (0.05 if n % 4 == 0 else 0.002) for n in range(80)]
    block = repeating_block([1] * 80, gaps)
    assert block is not None
    assert block.length == 4


def test_gaps_of_chance_tell_nothing():
    dice = random.Random(5)
    block = repeating_block([1] * 80, [dice.uniform(0.001, 0.003) for _ in range(80)])
    assert block is not None
    assert block.length == 1


def test_another_ranks_length_is_taken_where_it_fits_and_only_there():
    signs = [1, 2, 3] * 20
    assert repeating_block(signs, even(signs), hint=3) == repeating_block(signs, even(signs))
    found = repeating_block(signs, even(signs), hint=7)
    assert found is not None
    assert found.length == 3


def test_equal_calls_of_sampled_steps_are_told_into_steps_by_what_is_missing():
    gaps = [math.nan if n % 4 == 0 else 0.002 for n in range(16)]
    block = repeating_block([1] * 16, gaps)
    assert block is not None
    assert block.length == 4
