"""A replayed step on more nodes: truths made by formula."""

import json
from dataclasses import replace

import pytest

from wirespeed.model.bench_records import MedianTime, Replay, ReplayedCall
from wirespeed.predict.answer import Question, predict
from wirespeed.views.html.page import prediction_page
from wirespeed.views.prediction import render
from wirespeed.views.text import Style

SIZES = (1 << 16, 1 << 22)
CALLS, OWN_S = 3, 0.02


def whole(made, nodes):
    return CALLS * sum(made.ring(nodes, nodes, size) for size in SIZES)


def time(seconds):
    return MedianTime(median=seconds, low=0.99 * seconds, high=1.01 * seconds, samples=30)


def replayed(made, *, hidden=0.0, groups="all", each=1):
    """On two nodes; hidden: seconds of the collectives that the job's own work hides."""
    run = made.bench(2, each, sizes=SIZES, groups=groups)
    calls = tuple(
        ReplayedCall(op="all_reduce", dtype="float32", groups=groups, size_bytes=size, calls=CALLS)
        for size in SIZES
    )
    seconds = whole(made, 2)
    told = Replay(
        source="traces/",
        job_ranks=2,
        job_steps=9,
        own=OWN_S,
        calls=calls,
        unbroken=time(seconds),
        paced=time(OWN_S + seconds - hidden),
    )
    return replace(run, id="4e91", replay=told)


def asked(made, run, nodes=(2, 4, 8)):
    return predict([*(made.bench(n) for n in (2, 3, 4)), run], Question(nodes=nodes))


def test_the_truth_on_more_nodes_is_within_the_interval(made):
    found = asked(made, replayed(made)).replays
    assert [one.world.nodes for one in found] == [2, 4, 8]
    for one in found:
        truth = whole(made, one.world.nodes)
        assert one.calls.low <= truth <= one.calls.high and one.calls.high < 2 * one.calls.low
        assert one.step.low <= OWN_S + truth <= one.step.high
    assert found[0].calls.value == pytest.approx(found[0].here, rel=0.02)


def test_it_is_shown_as_table_page_and_json(made):
    found = asked(made, replayed(made), nodes=(8,))
    assert "Replayed steps" in render(found, "table", Style()) and "4e91" in prediction_page(found)
    (one,) = json.loads(render(found, "json", Style()))["replays"]
    assert one["calls_us"]["low"] < one["calls_us"]["value"] < one["step_us"]["value"]
    assert one["here_us"] == pytest.approx(whole(made, 2) * 1e6)


def test_what_is_hidden_stays_hidden_as_far_as_is_known(made):
    hidden = 0.5 * whole(made, 2)
    last = asked(made, replayed(made, hidden=hidden), nodes=(8,)).replays[0]
    truth = whole(made, 8)
    assert OWN_S + truth / 2 < last.step.value < OWN_S + truth - hidden


def test_groups_within_a_node_stay_as_they_are(made):
    run = replayed(made, groups="of-2", each=2)
    known = [made.bench(n, 2) for n in (2, 3, 4)]
    one = predict([*known, run], Question(nodes=(4,))).replays[0]
    assert one.calls.value == pytest.approx(one.here, rel=0.01)


@pytest.mark.parametrize("groups", ["every-2", "rails", "of-2-every-2", "ranks-0-1"])
def test_groups_over_nodes_are_refused(made, groups):
    found = asked(made, replayed(made, groups=groups))
    assert not found.replays and "groups over several nodes" in found.refusals[-1].because


def test_what_is_not_forecast_is_refused_with_its_reason(made):
    alone = predict([replayed(made)], Question(nodes=(4,)))
    assert not alone.replays
    assert any("which it calls, is not predicted" in one.because for one in alone.refusals)
    far = asked(made, replayed(made), nodes=(4000,))
    assert not far.replays
    assert any(one.what.startswith("the replayed step of run 4e91:") for one in far.refusals)
