"""Communication time with its spread: from the profiled steps of all ranks to one figure."""

from statistics import mean, stdev

import pytest

torch = pytest.importorskip("torch", reason="Requires: torch")

from wirespeed.plan import TrainCase  # noqa: E402
from wirespeed.ranks.training.probe import FEWEST, LEAST, MOST, Probed, enough  # noqa: E402
from wirespeed.statistics import mean_interval  # noqa: E402

CASE = TrainCase(strategy="ddp", ranks=2, samples=8)
LESS = [[0.001, 0.001]] * 3
MORE = [[0.010, 0.012], [0.020, 0.018], [0.011, 0.013]]


def probed(*by_rank: list[list[float]], whole: float = 0.05) -> Probed:
    """Seconds by rank, turn and step."""
    turns = [
        torch.tensor([[(step, whole) for step in rank[turn]] for rank in by_rank])
        for turn in range(len(by_rank[0]))
    ]
    return Probed(CASE, [turn.double() for turn in turns])


def test_the_spread_is_that_of_every_step_of_the_rank_with_the_most() -> None:
    one = probed(LESS, MORE)
    assert one.communication() == [pytest.approx(turn) for turn in MORE]
    spread, steps = one.spread(), [step for turn in MORE for step in turn]
    assert spread.samples == 6
    assert spread.mean == pytest.approx(mean(steps))
    assert spread.std == pytest.approx(stdev(steps))
    interval = mean_interval([mean(turn) for turn in MORE])
    assert (spread.low, spread.high) == pytest.approx((max(0, interval.low), interval.high))
    assert one.fraction() == pytest.approx(mean(steps) / 0.05)


def test_no_time_is_below_nothing() -> None:
    one = probed([[0.0, 0.0], [0.1, 0.1]])
    assert one.spread().low == 0
    assert one.spread().high > one.spread().mean


def test_what_sends_nothing_is_exact() -> None:
    silent = probed([[0.0, 0.0]] * 2)
    assert silent.narrow()
    assert silent.spread().std == silent.spread().high == silent.fraction() == 0


def test_one_turn_is_never_narrow() -> None:
    assert not probed(MORE[:1]).narrow()
    assert not probed(MORE).narrow()
    assert probed([[0.010, 0.012], [0.011, 0.011], [0.011, 0.011]]).narrow()


def test_turns_end_when_narrow_or_when_the_time_is_up() -> None:
    assert not enough(FEWEST - 1, 0.1, 10, narrow=True)
    assert enough(FEWEST, 0.1, 10, narrow=True)
    assert not enough(FEWEST, 0.1, 10, narrow=False)
    assert enough(MOST, 0.1, 10, narrow=False)
    assert not enough(LEAST - 1, 1000, 10, narrow=False), "no interval is made of less"
    assert enough(LEAST, 9, 10, narrow=False), "one more would take it beyond"
