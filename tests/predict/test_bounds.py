"""What is refused, why, and which runs would help."""

import random
from dataclasses import replace

import pytest

from wirespeed.model.derived_records import WorldSize
from wirespeed.predict.forecast import fit, refuse_fit, refuse_series, refuse_size, refuse_world
from wirespeed.predict.points import collect


def series_of(made, *worlds, **how):
    series, _, _ = collect([made.bench(*world, **how) for world in worlds])
    return series["all_reduce"]


def test_too_few_sizes(made):
    few = series_of(made, (2, 1), (3, 1), sizes=(1024, 4096, 2**20))
    assert "3 sizes" in refuse_series(few).because
    narrow = series_of(made, (2, 1), sizes=(1024, 2048, 4096, 8192))
    assert "factor of 8" in refuse_series(narrow).because
    assert refuse_series(series_of(made, (2, 1))) is None


@pytest.mark.parametrize(
    ("worlds", "asked", "why"),
    [
        ([(2, 1)], (4, 1), "measured on 2 nodes only"),
        ([(1, 4), (1, 8)], (2, 8), "no run over several nodes"),
        ([(2, 4), (3, 4)], (4, 8), "measured with 4 ranks a node only"),
        ([(2, 1), (3, 1)], (16, 1), "up to 4 times"),
        ([(2, 1), (3, 1), (4, 1)], (512, 1), "up to 64 times"),
        ([(1, 2)], (1, 8), "number of ranks on one node"),
    ],
)
def test_worlds_that_nothing_shows_the_way_to(made, worlds, asked, why):
    refusal = refuse_world(series_of(made, *worlds), WorldSize(*asked))
    assert why in refusal.because
    assert refusal.helps.startswith("wirespeed bench all_reduce")


@pytest.mark.parametrize("asked", [(2, 1), (3, 1), (8, 1), (256, 1)])
def test_worlds_within_reach(made, asked):
    assert refuse_world(series_of(made, (2, 1), (3, 1), (4, 1)), WorldSize(*asked)) is None


def test_one_world_is_enough_for_itself(made):
    assert refuse_world(series_of(made, (4, 1)), WorldSize(4, 1)) is None


def test_sizes_out_of_reach(made):
    series = series_of(made, (2, 1), (3, 1))
    assert refuse_size(series, made.sizes[-1] * 64) is None
    assert "64 times beyond" in refuse_size(series, made.sizes[-1] * 100).because
    assert refuse_size(series, made.sizes[0] // 100) is not None


@pytest.mark.slow
def test_times_without_a_law_are_refused(made):
    dice = random.Random(4)
    series = series_of(
        made, (2, 1), (3, 1), (4, 1), times=lambda n, r, s: 10 ** dice.uniform(-5, 0)
    )
    refusal = refuse_fit(fit(series), series)
    assert "the fit does not hold" in refusal.because


def test_a_law_is_not_refused(made):
    series = series_of(made, (2, 1), (3, 1), (4, 1), noise=0.05)
    assert refuse_fit(fit(series), series) is None


def test_too_few_points_for_any_shape(made):
    series = series_of(made, (2, 1))
    series = replace(series, points=series.points[:2])
    assert "too few" in refuse_fit(fit(series), series).because


def test_ranks_that_take_turns_on_the_cores(made):
    """Two ranks on two cores say nothing of six; nor does one world that shared them."""
    alone = replace(series_of(made, (1, 2), (1, 3)), cores=2)
    refusal = refuse_world(alone, WorldSize(1, 6))
    assert "6 ranks take turns on 2 cores" in refusal.because
    assert "1 measured world, not 2" in refusal.because
    assert "N = 3, 4" in refusal.helps
    assert refuse_world(replace(alone, cores=8), WorldSize(1, 6)) is None
    assert refuse_world(replace(alone, cores=0), WorldSize(1, 6)) is None
    shared = replace(series_of(made, (1, 2), (1, 3), (1, 4)), cores=2)
    assert refuse_world(shared, WorldSize(1, 6)) is None
