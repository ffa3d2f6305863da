"""Verdicts on compared settings, from rounds whose truth is known; no rank is started."""

import random
from itertools import product

import pytest

import usual
from wirespeed.checks.combinations import (
    Taken,
    case_of,
    judge_settings,
    needed_rounds,
    pooled,
    usual_rounds,
)


def measured(seconds, size=1024, wrong=None):
    told = {"iterations": 50, "wrong": wrong, "rank_medians": (seconds, seconds / 2)}
    rates = {"algbw": size / seconds, "busbw": 1.5 * size / seconds}
    return usual.measurement(seconds, size, **told, **rates)


def taken(name, *sizes, first=1, **fields):
    """sizes: each a list with a round's seconds."""
    rounds = {}
    for number, times in enumerate(zip(*sizes, strict=True), first):
        found = [measured(t, 1024 << (2 * i)) for i, t in enumerate(times)]
        rounds[number] = {case_of(m): m for m in found}
    return Taken(name=name, rounds=rounds, **fields)


DRIFT = [1e-3 * (1 + 0.3 * (r % 4)) * 1.2**r for r in range(10)]
"""Rounds of a machine that gets slower and slower, with moods of its own."""


def verdict(*others, default=DRIFT):
    return [s.verdict for s in judge_settings([taken("default", default), *others], len(others))][
        1:
    ]


def test_what_all_share_cancels_and_each_verdict_is_the_true_one():
    factors = [1 + 0.01 * (-1) ** r for r in range(10)]
    rivals = [
        taken(str(f), [t * f * noise for t, noise in zip(DRIFT, factors, strict=True)])
        for f in (0.8, 1.25, 1.0)
    ]
    assert verdict(*rivals) == ["faster", "slower", "same"]


def test_same_needs_evidence_and_noise_decides_nothing():
    wide = [t * (1.2 if r % 2 else 0.85) for r, t in enumerate(DRIFT)]
    assert verdict(taken("A=1", wide)) == ["not enough rounds"]


def test_too_few_rounds_decide_nothing_however_clear_the_figures_are():
    for rounds, expected in ((5, "not enough rounds"), (6, "faster")):
        default = DRIFT[:rounds]
        assert verdict(taken("A=1", [t / 3 for t in default]), default=default) == [expected]
    three = [taken(f"A={i}", [t / 3 for t in DRIFT[:6]]) for i in range(3)]
    assert verdict(*three, default=DRIFT[:6]) == ["not enough rounds"] * 3, "corrected for three"
    (_, *settings) = judge_settings([taken("default", DRIFT[:6]), *three], 3)
    assert {s.needed for s in settings} == {7}


def test_rounds_that_a_verdict_needs():
    assert [needed_rounds(k) for k in (1, 2, 4, 12)] == [6, 7, 8, 9]
    assert needed_rounds(2, 6) == needed_rounds(12)
    assert [usual_rounds(k, 1) for k in (1, 2, 16)] == [9, 10, 14]
    assert usual_rounds(1, 1000) == needed_rounds(1000)


def test_the_usual_rounds_stand_one_disturbed_round_on_either_side():
    for rivals in (1, 2, 8):
        n = usual_rounds(rivals, 1)
        times = [1e-3] * n
        times[2] *= 10
        default = [1e-3 * 1.3] * n
        default[4] *= 10
        found = judge_settings([taken("default", default), taken("A=1", times)], rivals)
        assert found[1].verdict == "faster"


def test_the_winner_is_the_quickest_that_is_slower_nowhere():
    default = taken("default", DRIFT, DRIFT)
    mixed = taken("A=1", [t / 4 for t in DRIFT], [t * 1.5 for t in DRIFT])
    good = taken("A=2", [t / 1.3 for t in DRIFT], [t / 1.3 for t in DRIFT])
    better = taken("A=3", [t / 2 for t in DRIFT], [t / 2 for t in DRIFT])
    settings = judge_settings([default, mixed, good, better], 3)
    assert [s.verdict for s in settings] == ["default", "mixed", "faster", "faster"]
    assert [s.winner for s in settings] == [False, False, False, True]
    assert [f.verdict for f in settings[1].figures] == ["faster", "slower"]
    assert settings[1].ratio.value == pytest.approx((1.5 / 4) ** 0.5), "geometric mean"
    assert not any(s.winner for s in judge_settings([default, mixed], 1))


def test_only_rounds_that_both_took_part_in_count_and_only_those_after_the_screening():
    default = taken("default", DRIFT)
    late = taken("A=1", [t / 2 for t in DRIFT[3:]], first=4)
    del late.rounds[6]
    (_, one) = judge_settings([default, late], 1)
    assert one.rounds == (4, 5, 7, 8, 9, 10)
    assert one.verdict == "faster"
    assert one.figures[0].round_times == tuple(DRIFT[r - 1] / 2 for r in one.rounds)
    (first, one) = judge_settings([default, late], 1, after=5)
    assert first.rounds == (6, 7, 8, 9, 10)
    assert one.rounds == (7, 8, 9, 10)
    assert one.verdict == "not enough rounds"


@pytest.mark.parametrize("why", ["failed", "dropped"])
def test_what_was_given_up_has_no_figures_and_never_wins(why):
    rival = taken("A=1", [t / 3 for t in DRIFT], given_up=why, reason="told")
    (_, one) = judge_settings([taken("default", DRIFT), rival], 1)
    assert (one.verdict, one.reason, one.figures, one.ratio) == (why, "told", (), None)
    assert not one.winner


def test_a_size_that_one_of_them_lacks_is_left_out():
    rival = taken("A=1", [t / 2 for t in DRIFT], [t * 9 for t in DRIFT])
    for world in rival.rounds.values():
        world.popitem()
    (_, one) = judge_settings([taken("default", DRIFT, DRIFT), rival], 1)
    assert [f.case for f in one.figures] == ["all_reduce float32 1 KiB"]
    assert one.verdict == "faster"


def test_the_pooled_figures_are_those_of_the_rounds():
    one = taken("A=1", [1e-3, 3e-3, 2e-3])
    one.rounds[1] = {"all_reduce float32 1 KiB": measured(1e-3, wrong=0)}
    (m,) = pooled(one)
    assert (m.time.median, m.time.low, m.time.high, m.iterations) == (2e-3, 1e-3, 3e-3, 3)
    assert m.algbw == pytest.approx(1024 / 2e-3)
    assert m.busbw == pytest.approx(1.5 * m.algbw)
    assert (m.setting, m.wrong, m.rank_medians) == ("A=1", 0, (2e-3, 1e-3))
    (m,) = pooled(one, after=2)
    assert (m.iterations, m.time.median, m.wrong) == (1, 2e-3, 0)


def noisy(generator, shape, factor=1.0):
    if shape == "two modes":
        return factor * generator.choice((1.0, 1.3)) * generator.lognormvariate(0, 0.02)
    return factor * generator.lognormvariate(0, 0.05 if shape == "narrow" else 0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "rivals"), list(product(("narrow", "wide", "two modes"), (1, 4)))
)
def test_without_a_difference_at_most_one_run_in_twenty_tells_one(shape, rivals):
    """300 runs of equal settings; 5 % and three sigma of the count."""
    generator, wrong = random.Random(7), 0
    for _ in range(300):
        rounds = usual_rounds(rivals, 1)
        mood = [generator.lognormvariate(0, 0.5) for _ in range(rounds)]
        every = [[m * noisy(generator, shape) for m in mood] for _ in range(rivals + 1)]
        all_taken = [taken(str(i), times) for i, times in enumerate(every)]
        found = judge_settings(all_taken, rivals)
        wrong += any(s.verdict in ("faster", "slower") for s in found)
    assert wrong <= 300 * 0.05 + 3 * (300 * 0.05 * 0.95) ** 0.5
