"""Forecasts of times whose law is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from wirespeed.model.derived_records import WorldSize
from wirespeed.predict.forecast import DRAWS, estimate, fit
from wirespeed.predict.points import collect


def forecast(made, nodes=(2, 3, 4), **how):
    series, _, _ = collect([made.bench(n, **how) for n in nodes])
    return fit(series["all_reduce"])


def told(found, nodes, size):
    return estimate(found.draws([(WorldSize(nodes, 1), size)])[:, 0])


def test_without_noise_worlds_and_sizes_beyond_are_hit(made):
    found = forecast(made)
    assert found.members[0].shape.name == "ring"
    assert found.members[0].shape.power == 1.0
    for nodes, size in ((8, 4**6), (8, 4**12), (16, 4**10), (3, 3 * 4**12)):
        assert told(found, nodes, size).value == pytest.approx(
            made.ring(nodes, nodes, size), rel=0.02
        )


def test_another_law_is_told_from_the_ring(made):
    def tree(nodes, ranks, size):
        levels = math.ceil(math.log2(ranks))
        return 2 * levels * 3e-5 + 2 * size / 1e9

    found = forecast(made, nodes=(2, 3, 4, 6, 8), times=tree)
    assert found.members[0].shape.name == "tree"
    assert told(found, 64, 4**10).value == pytest.approx(tree(64, 64, 4**10), rel=0.05)


def test_the_middle_of_the_draws_is_the_fit(made):
    """Worlds too few to tell a call from its steps: coefficients that go together are drawn together."""
    found = forecast(made, nodes=(2, 3), noise=0.1, seed=3)
    for nodes, size in ((2, 4**6), (3, 4**12)):
        place = [(WorldSize(nodes, 1), size)]
        fitted = [
            float(
                np.exp(
                    m.log_times(place, m.solved.theta) + m.leftover.at(place, m.share(place))[0]
                )[0]
            )
            for m in found.members
        ]
        middle = sum(w * one for w, one in zip(found.weights, fitted, strict=True))
        assert told(found, nodes, size).value == pytest.approx(middle, rel=0.08)


@pytest.mark.slow
def test_a_new_measurement_is_no_surer_than_its_neighbours_are(made):
    runs = [made.bench(n, noise=0.3 if n == 2 else 0.02) for n in (2, 3, 4)]
    series = collect(runs)[0]["all_reduce"]
    points = [replace(p, spread=0.3 if p.world.ranks == 2 else 0.02) for p in series.points]
    found = fit(replace(series, points=tuple(points)))
    loose, sure = told(found, 2, 4**6), told(found, 4, 4**6)
    assert loose.high / loose.low > 1.5 * sure.high / sure.low


@pytest.mark.slow
def test_what_the_backend_does_by_its_source_is_believed_first(made):
    """A binomial tree of three ranks costs two of everything, like a chain: the times do not tell."""
    runs = [
        made.bench(n, noise=0.03, op="broadcast", times=lambda n, r, s: (r - 1) * (1e-5 + s / 1e9))
        for n in (2, 3)
    ]
    series = collect(runs)[0]["broadcast"]
    assert fit(series).members[0].shape.known
    known = [
        w for m, w in zip(fit(series).members, fit(series).weights, strict=True) if m.shape.known
    ]
    assert sum(known) > 0.5
    assert not any(m.shape.known for m in fit(replace(series, backend="")).members)


def test_the_interval_widens_the_farther_the_world(made):
    found = forecast(made, noise=0.05)
    widths = [np.log(e.high / e.low) for e in (told(found, n, 4**8) for n in (4, 8, 32, 128))]
    assert widths == sorted(widths)
    assert widths[-1] > 2 * widths[0]


def test_twice_asked_twice_the_same(made):
    found, places = forecast(made, noise=0.05), [(WorldSize(8, 1), 4**9)]
    assert np.array_equal(found.draws(places), found.draws(places))
    assert found.draws(places).shape == (DRAWS, 1)


@pytest.mark.slow
def test_intervals_hold_what_they_promise(made):
    """16 fits of noisy runs, each asked for new measurements of unseen worlds and sizes."""
    within, errors = [], []
    for seed in range(16):
        found = forecast(made, nodes=(2, 3, 4), noise=0.06, seed=seed, sizes=made.sizes[::2])
        for nodes in (4, 8):
            new = made.bench(nodes, noise=0.06, seed=seed + 500, sizes=made.sizes[1::2])
            for one in new.measurements:
                guess = told(found, nodes, one.size_bytes)
                within.append(guess.low <= one.time.median <= guess.high)
                errors.append(abs(math.log(guess.value / one.time.median)))
    assert 0.90 <= np.mean(within) <= 0.998
    assert np.median(errors) < 0.10


def test_two_levels_of_links(made):
    def hops(nodes, ranks, size):
        each = ranks // nodes
        steps = 5e-6 * 2 * (ranks - nodes) + 3e-5 * 2 * (nodes - 1)
        rate = 1e10 if nodes == 1 else 2e9
        assert each == 4
        return 1e-5 + steps + 2 * (ranks - 1) / ranks * size / rate

    runs = [made.bench(n, 4, times=hops) for n in (1, 2, 3, 4)]
    found = fit(collect(runs)[0]["all_reduce"])
    guess = estimate(found.draws([(WorldSize(16, 4), 4**12)])[:, 0])
    assert guess.value == pytest.approx(hops(16, 64, 4**12), rel=0.05)
    guess = estimate(found.draws([(WorldSize(16, 4), 1024)])[:, 0])
    assert guess.low <= hops(16, 64, 1024) <= guess.high


def test_barrier_has_no_forecast(made):
    series, _, _ = collect([made.bench(2, op="barrier")])
    assert fit(series["barrier"]) is None
