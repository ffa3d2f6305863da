"""Where the time of lasting training went: a timeline with known answers, and sums that add up."""

import random

import pytest

from wirespeed.session.goodput_account import (
    PARTS,
    Account,
    best_interval,
    time_between_failures,
)


def two_worlds():
    """One world that fails at 32 s, heard of last at 30 s; the next begins at 35 s and ends whole."""
    account = Account()
    account.world_began(0.0)
    account.ready(10.0, 0, 0.0)
    account.stepped(20.0, 100, 9.0, 100)
    account.saved_at(21.0, 100, 1.0, written=True)
    account.stepped(30.0, 180, 8.0, 80)
    lost = account.world_ended(32.0, "failed")
    account.world_began(35.0)
    account.ready(41.0, 100, 2.0)
    account.stepped(51.0, 200, 10.0, 100)
    account.saved_at(53.0, 200, 2.0, written=True)
    account.world_ended(54.0, "whole")
    return account, lost


def test_every_second_has_its_cause():
    account, lost = two_worlds()
    parts = account.parts()
    assert parts == pytest.approx(
        {
            "useful": 9.0 + 10.0,
            "start": 10.0 + 4.0 + 1.0,
            "restore": 2.0,
            "checkpoint": 3.0,
            "lost": 8.0,
            "down": 5.0,  # from 30 to 35
            "other": 1.0 + 1.0,  # between the steps of the first world
        }
    )
    assert sum(parts.values()) == pytest.approx(account.wall) == 54.0
    assert tuple(parts) == PARTS
    assert (lost, account.lost_steps, account.step, account.checkpoints) == (8.0, 80, 200, 2)


def test_an_older_checkpoint_takes_more_steps_with_it():
    account = Account()
    account.world_began(0)
    account.ready(1, 0, 0)
    for step in (10, 20):
        account.stepped(step, step, 5.0, 10)
        account.saved_at(step, step, 0.5, written=True)
    account.world_ended(21, "failed")
    assert account.lost_steps == 0 and account.step == 20
    account.world_began(22)
    account.ready(23, 10, 0.1)  # the newest was torn
    account.world_ended(24, "whole")
    assert account.parts()["lost"] == 5.0 and account.parts()["useful"] == 5.0
    assert account.lost_steps == 10 and account.step == 10


def test_what_follows_the_last_checkpoint_is_lost_to_ctrl_c():
    account = Account()
    account.world_began(0)
    account.ready(2, 0, 0)
    account.stepped(4, 10, 2.0, 10)
    account.saved_at(5, 10, 1.0, written=True)
    account.stepped(6, 15, 1.0, 5)
    account.world_ended(7, "interrupted")
    parts = account.parts()
    assert (parts["useful"], parts["lost"], parts["down"]) == (2.0, 1.0, 0.0)
    assert parts["start"] == 2.0 + 1.0


def test_a_checkpoint_that_failed_keeps_nothing():
    account = Account()
    account.world_began(0)
    account.ready(1, 0, 0)
    account.stepped(3, 10, 2.0, 10)
    account.saved_at(4, 10, 1.0, written=False)
    account.world_ended(5, "failed")
    assert account.parts()["checkpoint"] == 1.0 and account.checkpoints_failed == 1
    assert account.step == 0 and account.parts()["useful"] == 0.0


def test_a_world_that_never_was_ready_only_started():
    account = Account()
    account.world_began(0)
    account.world_ended(3, "failed")
    account.world_began(5)
    account.world_ended(9, "failed")
    assert account.parts() | {"other": 0.0} == pytest.approx(
        dict.fromkeys(PARTS, 0.0) | {"start": 7.0, "down": 2.0}
    )
    assert account.wall == 9


def test_sums_add_up_whatever_happens():
    draw = random.Random(5)
    for _ in range(200):
        account, now, saved = Account(), 0.0, 0
        for _ in range(draw.randrange(1, 6)):
            account.world_began(now)
            now += draw.uniform(0, 5)
            if draw.random() < 0.8:
                account.ready(now, saved, draw.uniform(0, 2))
                step = saved
                for _ in range(draw.randrange(5)):
                    seconds, step = draw.uniform(0, 3), step + draw.randrange(1, 9)
                    now += seconds + draw.uniform(0, 0.1)
                    account.stepped(now, step, seconds, 3)
                    if draw.random() < 0.4:
                        pause = draw.uniform(0, 1)
                        now += pause
                        account.saved_at(now, step, pause, written=True)
                        saved = step
            now += draw.uniform(0, 1)
            account.world_ended(now, draw.choice(("failed", "interrupted")))
            now += draw.uniform(0, 2)
        parts = account.parts()
        assert sum(parts.values()) == pytest.approx(account.wall)
        assert min(parts.values()) > -1e-9, parts


def test_days_of_steps_need_no_more_memory():
    account = Account()
    account.world_began(0)
    account.ready(0, 0, 0)
    for step in range(1, 5001):
        account.stepped(step, step, 0.5 + step % 2, 1)
    mean, low, high, steps = account.mean_step()
    assert len(account._batches) <= 512 and len(account._kept) == 1
    assert steps == 5000 and mean == pytest.approx(1.0)
    assert low <= mean <= high and high - low < 0.1


def test_an_interval_of_few_uneven_steps_holds_no_negative_time():
    account = Account()
    account.world_began(0)
    account.ready(0, 0, 0)
    account.stepped(1, 1, 0.1, 1)
    account.stepped(2, 2, 3.0, 1)
    _, low, high, _ = account.mean_step()
    assert low == 0.0 and high > 3


def test_time_between_failures_by_the_chi_square_tables():
    assert time_between_failures(100.0, 1) is None
    mean, low, high = time_between_failures(100.0, 2)
    assert mean == 50.0
    assert low == pytest.approx(200 / 14.449, rel=1e-4)  # 97.5 % of 6 degrees of freedom
    assert high == pytest.approx(200 / 0.4844, rel=1e-4)  # 2.5 % of 4
    _, low, high = time_between_failures(100.0, 20)
    assert low == pytest.approx(200 / 61.777, rel=1e-4)  # 97.5 % of 42
    assert high == pytest.approx(200 / 24.433, rel=1e-4)  # 2.5 % of 40


def test_the_best_interval_loses_least():
    """Against the cost itself: checkpoints, and half an interval a failure."""
    pause, between = 2.0, 3600.0

    def loss(interval):
        return pause / interval + interval / 2 / between

    best = best_interval(pause, between)
    assert best == pytest.approx(120.0)
    assert loss(best) < min(loss(0.9 * best), loss(1.1 * best))


def test_what_one_failure_costs_at_most():
    account, _ = two_worlds()
    assert account.loss_at_most(60.0) == 60.0 + 10.0
    assert account.loss_at_most(None) == 12.0 + 10.0  # the longest gap seen, the longest start
