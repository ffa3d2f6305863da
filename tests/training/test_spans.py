import random

import pytest

from wirespeed.training.trace import (
    Span,
    covered_length,
    merged,
    stretches,
    uncovered_length,
    union_length,
)


def test_what_runs_side_by_side_counts_once():
    assert union_length([(0, 2), (1, 3), (5, 6)]) == 4
    assert union_length([]) == 0
    assert merged([(5, 6), (0, 2), (2, 3), (4, 4)]) == [(0, 3), (5, 6)]
    assert merged([(0, 9), (1, 2)]) == [(0, 9)]


def test_covered_and_uncovered():
    communication = [(0.0, 4.0), (6.0, 8.0)]
    compute = [(1.0, 2.0), (1.5, 3.0), (7.0, 20.0)]
    assert covered_length(communication, compute) == 3
    assert uncovered_length(communication, compute) == 3
    assert uncovered_length(communication, []) == 6
    assert uncovered_length([], compute) == 0


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_counting_ticks(seed):
    draw = random.Random(seed)

    def some() -> list[tuple[float, float]]:
        begins = [draw.randrange(60) for _ in range(draw.randrange(9))]
        return [(begin, begin + draw.randrange(12)) for begin in begins]

    first, second = some(), some()
    ticks = [{t for begin, end in parts for t in range(begin, end)} for parts in (first, second)]
    assert union_length(first) == len(ticks[0])
    assert covered_length(first, second) == len(ticks[0] & ticks[1])
    assert uncovered_length(first, second) == len(ticks[0] - ticks[1])


def test_a_span_knows_its_length():
    span = Span(1, "compute", "mm", 2.0, 2.5)
    assert span.seconds == 0.5
    assert stretches([span]) == [(2.0, 2.5)]
