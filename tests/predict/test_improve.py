"""Improvements: what they mean, and what they bring where the law is known."""

from dataclasses import replace

import pytest

from wirespeed.errors import UsageError
from wirespeed.model.derived_records import Refusal, WorldSize
from wirespeed.predict.forecast import estimate, factors_of, fit, line_rate, parse_improvement
from wirespeed.predict.points import collect


def forecast(made, worlds=((2, 1), (3, 1), (4, 1))):
    return fit(collect([made.bench(*world, noise=0.02) for world in worlds])[0]["all_reduce"])


def gain(found, text, size, rate=None):
    factors, _ = factors_of(parse_improvement(text), found, rate)
    place = [(WorldSize(8, 1), size)]
    return estimate(found.draws(place)[:, 0] / found.draws(place, factors)[:, 0])


@pytest.mark.parametrize("text", ["nic=2x", "latency=0.5x", "rdma", "RDMA=100gbit", "rdma=800mbit"])
def test_what_is_understood(text):
    assert parse_improvement(text).text == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nic",
        "nic=2",
        "nic=0x",
        "nic=-1x",
        "rdma=2x",
        "rdma=0gbit",
        "gpu=2x",
        "nic=nanx",
        "x" * 999,
    ],
)
def test_what_is_not(text):
    with pytest.raises(UsageError, match="no improvement that we know"):
        parse_improvement(text)


def test_twice_the_wire_halves_large_messages_and_leaves_small_ones(made):
    found = forecast(made)
    large, small = gain(found, "nic=2x", 4**12), gain(found, "nic=2x", 1024)
    assert large.low < large.value <= 2.0
    assert large.value > 1.7
    assert small.value == pytest.approx(1, abs=0.05)


def test_half_the_latency_is_the_other_way_round(made):
    found = forecast(made)
    assert gain(found, "latency=0.5x", 1024).value > 1.5
    assert gain(found, "latency=0.5x", 4**12).value == pytest.approx(1, abs=0.05)


def test_rdma_never_makes_anything_slower(made):
    found = forecast(made)
    assert gain(found, "rdma=1mbit", 4**12).low >= 1.0
    assert gain(found, "rdma=100gbit", 4**12).value > 5


def test_rdma_without_a_rate_is_refused(made):
    refusal = factors_of(parse_improvement("rdma"), forecast(made), None)
    assert isinstance(refusal, Refusal)
    assert refusal.helps.endswith("rdma=100gbit")


def test_one_node_has_no_links_to_improve(made):
    found = forecast(made, ((1, 2), (1, 3), (1, 4)))
    assert isinstance(factors_of(parse_improvement("nic=2x"), found, None), Refusal)


def test_a_wire_that_is_far_from_full_makes_the_gain_unsure(made):
    found = forecast(made)
    sure, unsure = gain(found, "nic=2x", 4**12), gain(found, "nic=2x", 4**12, rate=1e11)
    assert unsure.low < sure.low


def test_the_slowest_nodes_physical_nic_counts(made):
    run = made.bench(2)
    nics = [
        ({"name": "lo", "loopback": True, "virtual": False, "speed_Gbitps": 400},),
        ({"name": "eth0", "virtual": False, "speed_Gbitps": 25}, {"name": "v", "virtual": True}),
    ]
    nodes = tuple(replace(n, nics=nic) for n, nic in zip(run.world.nodes, nics, strict=True))
    assert line_rate([replace(run, world=replace(run.world, nodes=nodes))]) == 25e9 / 8
    assert line_rate([run]) is None
