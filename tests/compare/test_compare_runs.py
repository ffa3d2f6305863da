"""Verdicts of whole comparisons."""

import math
from dataclasses import replace

import pytest

from wirespeed.compare.compare import SideRuns, compare, floors_of
from wirespeed.errors import UsageError
from wirespeed.model.derived_records import Comparison
from wirespeed.model.records import Run
from wirespeed.model.training_records import Spread, Training

JITTER = (0.995, 1.0, 1.006)


@pytest.fixture
def side(make_run):  # type: ignore[no-untyped-def]
    """Three repeats of figures, half a percent apart."""

    def make(name: str, times: dict[int, float], **more: object) -> SideRuns:
        repeats = [{size: t * factor for size, t in times.items()} for factor in JITTER]
        runs = [make_run(f"{name}{k}", repeat, **more) for k, repeat in enumerate(repeats)]
        return SideRuns(tuple(runs))

    return make


def verdicts(comparison: Comparison) -> list[str]:
    return [row.verdict for row in comparison.rows]


def test_worse_better_same(side) -> None:  # type: ignore[no-untyped-def]
    before = side("a", {1024: 1e-5, 2048: 1e-5, 4096: 1e-5})
    after = side("b", {1024: 1.2e-5, 2048: 0.8e-5, 4096: 1.003e-5})
    found = compare([before, after])
    assert verdicts(found) == ["WORSE", "better", "same"]
    assert found.exit_code == 1
    row = found.rows[0]
    assert row.ratio == pytest.approx(1.2)
    assert row.low < 1.2 < row.high
    assert (row.runs, row.samples, row.noise_from) == ((3, 3), (60, 60), "repeats")


def test_turned_round_worse_is_better(side) -> None:  # type: ignore[no-untyped-def]
    first, second = side("a", {1024: 1e-5}), side("b", {1024: 1.2e-5})
    forth, back = compare([first, second]).rows[0], compare([second, first]).rows[0]
    assert (forth.verdict, back.verdict) == ("WORSE", "better")
    assert forth.ratio * back.ratio == pytest.approx(1)
    assert forth.low * back.high == pytest.approx(1)
    assert forth.p == pytest.approx(back.p)


def test_a_real_but_small_change_is_no_regression(side) -> None:  # type: ignore[no-untyped-def]
    """3 % is certain here, and certainly below 5 %; with 2 % that matter it is worse."""
    pair = [side("a", {1024: 1e-5}), side("b", {1024: 1.03e-5})]
    assert verdicts(compare(pair, 0.05)) == ["same"]
    assert compare(pair, 0.05).exit_code == 0
    assert verdicts(compare(pair, 0.02)) == ["WORSE"]


def test_one_or_two_runs_call_nothing_different(make_run) -> None:  # type: ignore[no-untyped-def]
    a = [make_run(f"a{k}", {1024: 1e-5 * f}) for k, f in enumerate(JITTER)]
    b = [make_run(f"b{k}", {1024: 1e-3 * f}) for k, f in enumerate(JITTER)]
    for count in (1, 2):
        sides = [SideRuns(tuple(a)), SideRuns(tuple(b[:count]))]
        found = compare(sides)
        assert verdicts(found) == ["not enough runs"]
        assert found.exit_code == 3
    assert verdicts(compare([SideRuns(tuple(a)), SideRuns(tuple(b))])) == ["WORSE"]


@pytest.mark.parametrize(
    ("times", "runs", "outside"),
    [
        ([1e-4], 3, 3),
        ([1e-6], 3, 3),
        ([1e-4, 2e-4], 3, 3),
        ([1.2e-5], 3, 0),
        ([1e-4, 1e-5], 3, 0),
        ([1e-4], 2, 0),
        ([1e-4, 1e-4, 1e-4], 3, 0),
    ],
    ids=["slower", "faster", "two", "near", "one of two", "two earlier", "enough to decide"],
)
def test_few_runs_that_lie_outside_of_all_others_are_told(  # type: ignore[no-untyped-def]
    make_run, times: list[float], runs: int, outside: int
) -> None:
    before = [make_run(f"a{k}", {1024: 1e-5 * f}) for k, f in enumerate(JITTER[:runs])]
    after = [make_run(f"b{k}", {1024: time}) for k, time in enumerate(times)]
    sides = [SideRuns(tuple(before)), SideRuns(tuple(after))]
    found = compare(sides)
    assert found.rows[0].outside == outside
    assert outside == 0 or verdicts(found) == ["not enough runs"]
    assert compare(sides[::-1]).rows[0].outside == outside, "whichever side has few"


def test_a_wide_interval_is_not_outside(make_run) -> None:  # type: ignore[no-untyped-def]
    before = [make_run(f"a{k}", {1024: 1e-5 * f}) for k, f in enumerate(JITTER)]
    for wide, outside in ((0.1, 3), (1.5, 0)):
        after = make_run("b0", {1024: 4e-5}, wide=wide)
        assert compare([SideRuns(tuple(before)), SideRuns((after,))]).rows[0].outside == outside


def test_stated_noise_lets_single_runs_decide(make_run) -> None:  # type: ignore[no-untyped-def]
    a, b = make_run("a", {1024: 1e-5}), make_run("b", {1024: 1.126e-5})
    sides = [SideRuns((a,)), SideRuns((b,))]
    assert verdicts(compare(sides, stated=0.01)) == ["WORSE"]
    assert verdicts(compare(sides, stated=0.10)) == ["not enough runs"]
    assert math.isinf(compare(sides).rows[0].high)


def test_stored_repeats_prove_same_for_single_runs(make_run) -> None:  # type: ignore[no-untyped-def]
    stored = [make_run(f"s{k}", {1024: 1e-5 * (1 + k / 1000)}) for k in range(6)]
    a, b = make_run("a", {1024: 1e-5}), make_run("b", {1024: 1.002e-5})
    sides = [SideRuns((a,)), SideRuns((b,))]
    floors = floors_of(stored)
    assert [floor.freedom for floor in floors.values()] == [5]
    row = compare(sides, floors=floors).rows[0]
    assert (row.verdict, row.noise_from) == ("same", "history")


def test_stored_runs_of_other_machines_tell_nothing(make_run) -> None:  # type: ignore[no-untyped-def]
    unlike = [make_run(f"s{k}", {1024: 1e-5}, host=f"node-{k}") for k in range(4)]
    assert floors_of(unlike) == {}
    two_each = [
        make_run(f"h{k}", {1024: (1 + k // 2) * 1e-5 * (1 + k % 2 / 100)}, host=f"node-{k // 2}")
        for k in range(4)
    ]
    (floor,) = floors_of(two_each).values()
    # Twice as slow on the other host is no noise: only what is within a host counts.
    assert floor.variance == pytest.approx(math.log(1.01) ** 2 / 2)
    assert floor.freedom == 2


def test_many_rows_are_allowed_for(side) -> None:  # type: ignore[no-untyped-def]
    """p of one row among many that did not change is corrected; among many that did it is not."""
    sizes = [2**k for k in range(10, 30)]
    before = side("a", dict.fromkeys(sizes, 1e-5))
    one = compare([before, side("b", {**dict.fromkeys(sizes, 1e-5), 1024: 1.06e-5})])
    row = one.rows[0]
    assert row.adjusted_p == pytest.approx(min(1, row.p * 20))
    every = compare([before, side("c", dict.fromkeys(sizes, 1.06e-5))])
    assert every.rows[0].adjusted_p == pytest.approx(every.rows[0].p)


def test_several_sides_share_one_correction(side) -> None:  # type: ignore[no-untyped-def]
    a, b, c = (side(name, {1024: t}) for name, t in (("a", 1e-5), ("b", 1.2e-5), ("c", 1e-5)))
    found = compare([a, b, c])
    assert [one.after.name for one in found.versus] == ["b0 (3 runs)", "c0 (3 runs)"]
    assert verdicts(found) == ["WORSE", "same"]
    assert found.rows[0].adjusted_p == pytest.approx(2 * found.rows[0].p)


def test_wrong_data_is_no_speed(side, make_measurement) -> None:  # type: ignore[no-untyped-def]
    before = side("a", {1024: 1e-5})
    bad = [
        replace(run, measurements=(replace(run.measurements[0], wrong=3),))
        for run in side("b", {1024: 0.5e-5}).runs
    ]
    found = compare([before, SideRuns(tuple(bad))])
    assert verdicts(found) == ["wrong data"]
    assert found.exit_code == 1


def test_strict_wants_every_row_decided(side, make_run) -> None:  # type: ignore[no-untyped-def]
    before = side("a", {1024: 1e-5, 2048: 1e-5})
    noisy = [make_run(f"b{k}", {1024: 1e-5 * f, 2048: 1e-5 * 10**k}) for k, f in enumerate(JITTER)]
    pair = [before, SideRuns(tuple(noisy))]
    assert verdicts(compare(pair)) == ["same", "not enough runs"]
    assert compare(pair).exit_code == 0
    assert compare(pair, strict=True).exit_code == 3


def test_only_what_was_measured_alike_pairs(make_run, make_measurement) -> None:  # type: ignore[no-untyped-def]
    a = make_run("a", {1024: 1e-5, 2048: 1e-5})
    other = make_measurement(1024, 2e-5, engine="deepspeed")
    b = make_run("b", {4096: 1e-5}, more=[other])
    sides = [SideRuns((a,)), SideRuns((b,))]
    found = compare(sides)
    assert found.rows == ()
    assert found.exit_code == 3
    unpaired = found.versus[0].unpaired
    assert (unpaired.before, unpaired.after, unpaired.differ_in) == (2, 2, ("engine",))
    (row,) = compare(sides, across=["engine"]).rows
    assert row.ratio == pytest.approx(2)


def test_across_refuses_what_one_run_has_twice(make_run, make_measurement) -> None:  # type: ignore[no-untyped-def]
    twice = make_run("a", {1024: 1e-5}, more=[make_measurement(1024, 2e-5, dtype="int32")])
    sides = [SideRuns((twice,)), SideRuns((make_run("b", {1024: 1e-5}),))]
    with pytest.raises(UsageError, match="several figures that differ in dtype"):
        compare(sides, across=["dtype"])


def test_a_figure_measured_twice_is_one(make_run, make_measurement) -> None:  # type: ignore[no-untyped-def]
    twice = make_run("a", {1024: 1e-5}, more=[make_measurement(1024, 4e-5)])
    found = compare([SideRuns((twice,)), SideRuns((make_run("b", {1024: 2e-5}),))])
    assert found.rows[0].before == pytest.approx(2e-5)
    assert found.rows[0].samples == (40, 20)


def test_an_import_without_interval_compares(side, make_run) -> None:  # type: ignore[no-untyped-def]
    pair = [side("a", {1024: 1e-5}, wide=0.0), side("b", {1024: 1.2e-5}, wide=0.0)]
    assert verdicts(compare(pair)) == ["WORSE"]


def test_only_selects(side) -> None:  # type: ignore[no-untyped-def]
    pair = [side("a", {1024: 1e-5}), side("b", {1024: 1.2e-5})]
    assert compare(pair, only=["all_gather"]).rows == ()
    assert len(compare(pair, only=["all_reduce"]).rows) == 1


@pytest.mark.parametrize("picked", [[0], [0, 0], [0, None]])
def test_sides_that_are_none(side, picked) -> None:  # type: ignore[no-untyped-def]
    own = side("a", {1024: 1e-5})
    with pytest.raises(UsageError):
        compare([own if index == 0 else SideRuns(()) for index in picked])


def training(strategy: str, step: float) -> Training:
    spread = Spread(mean=step, std=step / 50, low=step * 0.99, high=step * 1.01, samples=30)
    return Training(
        strategy=strategy,
        model="mlp",
        ranks=2,
        nodes=1,
        batch=64,
        rounds=10,
        step=spread,
        samples_per_s=64 / step,
    )


def test_steps_of_training(make_run) -> None:  # type: ignore[no-untyped-def]
    def runs(name: str, factor: float) -> tuple[Run, ...]:
        return tuple(
            replace(
                make_run(f"{name}{k}"),
                training=(training("ddp", 0.1 * jitter * factor), training("fsdp2", 0.2 * jitter)),
            )
            for k, jitter in enumerate(JITTER)
        )

    found = compare([SideRuns(runs("a", 1)), SideRuns(runs("b", 1.1))])
    assert [(row.what.get("strategy"), row.verdict) for row in found.rows] == [
        ("ddp", "WORSE"),
        ("fsdp2", "same"),
    ]
    assert found.rows[0].what.kind == "training"


def test_names_stay_apart(make_run) -> None:  # type: ignore[no-untyped-def]
    runs = [make_run(id, {1024: 1e-5}) for id in ("7f3c0001", "7f3c0002")]
    (versus,) = compare([SideRuns((run,)) for run in runs]).versus
    assert (versus.before.name, versus.after.name) == ("7f3c0001", "7f3c0002")
