"""A figure over many runs: dates, sizes, and what was different when it changed."""

from dataclasses import replace

import numpy as np
import pytest

from wirespeed.compare.compare import points_of, trend
from wirespeed.compare.estimate import cuts


@pytest.fixture
def nightly(make_run):  # type: ignore[no-untyped-def]
    """A run a day; from day `step` on 20 % slower, with another NCCL."""

    def make(days: int, step: int, jitter: float = 0.01):  # type: ignore[no-untyped-def]
        return [
            make_run(
                f"r{day:02d}",
                {1024: 1e-5 * (1.2 if day >= step else 1) * (1 + jitter * (day * 7 % 5 - 2) / 2)},
                started=f"2026-11-{day + 1:02d}T03:00:00Z",
                versions={"nccl": "2.29.1" if day >= step else "2.28.9"},
            )
            for day in range(days)
        ]

    return make


def test_a_change_has_date_size_interval_and_reason(nightly) -> None:  # type: ignore[no-untyped-def]
    found = trend(points_of(list(reversed(nightly(20, 12)))), fail_on=0.05)
    (series,) = found.series
    (change,) = series.changes
    assert (change.run, change.at, change.last_before) == ("r12", "2026-11-13T03:00:00Z", "r11")
    assert change.ratio == pytest.approx(1.2, rel=0.02)
    assert change.low < 1.2 < change.high
    assert change.runs == (12, 8)
    assert [(d.name, d.before, d.after) for d in change.differences] == [
        ("nccl", "2.28.9", "2.29.1")
    ]
    assert change.p < 0.05
    assert found.regressions == (series,)
    assert found.exit_code == 1


def test_without_fail_on_a_change_is_no_failure(nightly) -> None:  # type: ignore[no-untyped-def]
    found = trend(points_of(nightly(20, 12)))
    assert found.series[0].changes
    assert found.exit_code == 0


def test_faster_is_no_regression(nightly) -> None:  # type: ignore[no-untyped-def]
    runs = nightly(20, 12)
    turned = [*runs[12:], *runs[:12]]
    dated = [replace(run, started=f"2026-12-{k + 1:02d}T00:00:00Z") for k, run in enumerate(turned)]
    found = trend(points_of(dated), fail_on=0.05)
    assert found.series[0].changes[0].ratio < 1
    assert found.exit_code == 0


def test_a_steady_figure_has_no_change(nightly) -> None:  # type: ignore[no-untyped-def]
    found = trend(points_of(nightly(20, 99)), fail_on=0.05)
    assert found.series[0].changes == ()
    assert found.exit_code == 0


def test_few_runs_are_not_judged(nightly) -> None:  # type: ignore[no-untyped-def]
    found = trend(points_of(nightly(6, 3)))
    assert not found.series[0].judged
    assert found.series[0].changes == ()
    assert found.exit_code == 3


def test_only_selects_and_wrong_data_are_left_out(nightly) -> None:  # type: ignore[no-untyped-def]
    runs = nightly(10, 99)
    assert trend(points_of(runs), only=["all_gather"]).series == ()
    bad = replace(runs[3], measurements=(replace(runs[3].measurements[0], wrong=1),))
    (series,) = trend(points_of([*runs[:3], bad, *runs[4:]])).series
    assert "r03" not in series.runs
    assert len(series.runs) == 9


def test_many_figures_are_allowed_for(make_run) -> None:  # type: ignore[no-untyped-def]
    """Of 60 figures of noise alone some have a cut by themselves; together none is a change."""
    rng = np.random.default_rng(5)
    noise = rng.lognormal(0, 0.05, (12, 60))
    runs = [
        make_run(
            f"r{k:02d}",
            {1024 + j: 1e-5 * noise[k, j] for j in range(60)},
            started=f"2026-11-{k + 1:02d}T03:00:00Z",
        )
        for k in range(12)
    ]
    assert any(cuts(np.log(noise[:, j]).tolist()) for j in range(60))
    assert not any(one.changes for one in trend(points_of(runs)).series)


def test_one_figure_shown_alone_has_the_changes_that_it_has_among_all(make_run) -> None:  # type: ignore[no-untyped-def]
    """A cut that noise explains among 40 figures is no change either where its operation is shown alone;
    one that noise does not explain is a change in both."""
    rng = np.random.default_rng(5)
    noise = rng.lognormal(0, 0.05, (18, 40))
    alone = next(j for j in range(40) if cuts(np.log(noise[:, j]).tolist()))
    noise[9:, (alone + 1) % 40] *= 3
    ops = {1024 + alone: "all_gather", 1024 + (alone + 1) % 40: "broadcast"}
    runs = []
    for k in range(18):
        run = make_run(
            f"r{k:02d}",
            {1024 + j: 1e-5 * noise[k, j] for j in range(40)},
            started=f"2026-11-{k + 1:02d}T03:00:00Z",
        )
        named = tuple(replace(m, op=ops.get(m.size_bytes, m.op)) for m in run.measurements)
        runs.append(replace(run, measurements=named))
    every = trend(points_of(runs))
    assert every.family == 40
    for op, changes in (("all_gather", 0), ("all_reduce", 0), ("broadcast", 1)):
        shown = trend(points_of(runs), only=[op])
        assert shown.series == tuple(one for one in every.series if one.what.get("op") == op)
        assert sum(len(one.changes) for one in shown.series) == changes
        assert shown.family == 40
