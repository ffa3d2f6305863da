"""Communication time with its spread: from the profiled steps of all ranks to one figure."""

from dataclasses import replace
from statistics import mean, stdev
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="Requires: torch")

from wirespeed.plan import TrainCase, TrainPlan  # noqa: E402
from wirespeed.rank.training.close_look import (  # noqa: E402
    FEWEST,
    LEAST,
    MOST,
    Probed,
    enough,
    most_turns,
    probe,
)
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
    share = one.fraction()
    assert share.mean == pytest.approx(mean(steps) / 0.05)
    assert 0 <= share.low < share.mean < share.high <= 1
    assert share.std == pytest.approx(stdev(steps) / 0.05)


def test_no_time_is_below_nothing() -> None:
    one = probed([[0.0, 0.0], [0.1, 0.1]])
    assert one.spread().low == 0
    assert one.spread().high > one.spread().mean


def test_what_sends_nothing_is_exact() -> None:
    silent = probed([[0.0, 0.0]] * 2)
    assert silent.narrow()
    assert silent.spread().std == silent.spread().high == silent.fraction().mean == 0


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
    assert enough(3, 0.1, 10, narrow=False, most=3)


def test_the_closer_look_takes_no_more_turns_than_rounds_were_asked_for() -> None:
    assert [most_turns(rounds) for rounds in (None, 1, 2, 5, 200)] == [MOST, LEAST, 2, 5, MOST]


class Clock:
    """A world in which every turn of a case takes that many seconds, as all ranks agree."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        seconds: float,
        max_time_s: float,
        rounds: int | None = None,
    ) -> None:
        self.now, self.asked = 0.0, 0
        self.turns: list[str] = []
        control = SimpleNamespace(matrix=self._matrix)
        plan = TrainPlan(
            model="tiny", model_options={}, cases=(), max_time_s=max_time_s, rounds=rounds
        )
        place, limit = SimpleNamespace(control=control), SimpleNamespace(is_over=lambda: False)
        self.stage = SimpleNamespace(place=place, plan=plan, limit=limit)
        monkeypatch.setattr("wirespeed.rank.training.close_look.time.monotonic", lambda: self.now)
        monkeypatch.setattr("wirespeed.rank.training.close_look._turn", self._turn)
        self._seconds = seconds

    def _matrix(self, row: list[float]) -> "torch.Tensor":
        """This rank's clock, and that of one which is later."""
        self.asked += 1
        return torch.tensor([row, [row[0] + 0.5]])

    def _turn(self, stage: object, one: Probed) -> None:
        self.turns.append(one.case.strategy)
        self.now += self._seconds
        one.turns.append(torch.tensor([[(0.01 * self.now, 1000.0)] * 2]))


CASES = [replace(CASE, strategy=name) for name in ("none", "naive", "ddp")]


def test_the_time_is_over_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 10 s, by the latest rank's clock: the third case begins after 4.5 s, and no fourth."""
    clock = Clock(monkeypatch, 2.0, 10.0, rounds=2)
    found = probe(clock.stage, CASES, lambda case: None)
    assert clock.turns == ["ddp", "naive", "none"]
    assert [one.case for one in found] == CASES
    slow = Clock(monkeypatch, 100.0, 10.0)
    found = probe(slow.stage, CASES, lambda case: None)
    assert slow.turns == ["ddp"], "the yardstick is the one to do without"
    assert [len(one.turns) for one in found] == [0, 0, 1]
    assert slow.asked == 2, "it was asked before each turn of a case, of all ranks"


def test_figures_of_no_use_have_three_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their interval is wide at any time here: ten steps of each are five turns, in 15 s of 10 s."""
    clock = Clock(monkeypatch, 0.9, 10.0)
    found = probe(clock.stage, CASES, lambda case: None)
    assert [len(one.turns) for one in found] == [5, 5, 5]
    assert all(one.usable for one in found)
    hasty = Clock(monkeypatch, 2.0, 10.0)
    assert not any(one.usable for one in probe(hasty.stage, CASES, lambda case: None))
    assert 10 < hasty.now < 18, "beyond its time by one turn of a case at most"


def test_with_time_enough_every_case_has_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.001, 1000.0, rounds=3)
    found = probe(clock.stage, CASES, lambda case: None)
    assert [len(one.turns) for one in found] == [3, 3, 3]
