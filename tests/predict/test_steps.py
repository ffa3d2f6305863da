"""Steps from a training run and forecasts of all_reduce."""

from dataclasses import replace

import numpy as np
import pytest

from wirespeed.model.derived_records import Refusal, WorldSize
from wirespeed.model.watch_records import Traffic, Watched
from wirespeed.predict.answer import Question, predict
from wirespeed.predict.forecast import fit
from wirespeed.predict.points import collect
from wirespeed.predict.steps import (
    Choice,
    Stepper,
    Workload,
    choices_of,
    gradients_of,
    messages_of,
    step_s,
    stepper,
    workload_of,
)
from wirespeed.training.models.sizes import CONVNETS, MLPS, TRANSFORMERS

GRADIENTS = TRANSFORMERS["tiny"].gradient_bytes


def workload(made, *rows, **config):
    found = workload_of([made.training_run(made.trained("none", 0.025), *rows, **config)], None)
    assert isinstance(found, Workload)
    return found


def forecast(made):
    return fit(collect([made.bench(n) for n in (2, 3, 4)])[0]["all_reduce"])


def test_what_a_training_run_tells(made):
    found = workload(made, made.trained("ddp", 0.03, bucket=1.0))
    assert found.model == "tiny"
    assert sum(found.gradients) == GRADIENTS
    assert found.backward_s == pytest.approx(0.014)
    assert found.alone_s == pytest.approx(0.025)
    assert [one.strategy for one in found.measured] == ["ddp"]
    assert found.world == WorldSize(2, 1)


def test_a_changed_model_has_its_own_gradients(made):
    assert sum(workload(made, layers=8).gradients) > 1.5 * GRADIENTS


@pytest.mark.parametrize(
    ("rows", "model", "why"),
    [
        ([], "small", "no training run"),
        ([("none", 0.025)], "small", "training of tiny only"),
        ([("ddp", 0.025)], None, "with its step alone"),
    ],
)
def test_what_training_runs_cannot_tell(made, rows, model, why):
    found = workload_of([made.training_run(*(made.trained(*row) for row in rows))], model)
    assert isinstance(found, Refusal)
    assert why in found.because


def test_hostile_training_runs_are_refused(made):
    odd = made.trained("none", 0.025, model="a:b")
    assert isinstance(workload_of([made.training_run(odd)], None), Refusal)
    run = made.training_run(made.trained("none", 0.025), layers="<script>")
    assert isinstance(workload_of([run], None), Refusal)
    run = made.training_run(made.trained("none", 0.025), layers=-3)
    assert isinstance(workload_of([run], None), Refusal)


def test_no_training_run_and_no_model_is_no_question(made):
    assert workload_of([made.bench(2)], None) is None


def test_gradients_are_those_of_the_models():
    from wirespeed.training.models.catalogue import model_named

    for sizes in (TRANSFORMERS, MLPS, CONVNETS):
        name, size = next(iter(sizes.items()))
        built = model_named(name).build()
        assert gradients_of(size) == tuple(4 * one.numel() for one in built.parameters())


def test_messages_are_those_that_the_strategies_send():
    from wirespeed.training.buckets import Piece, plan_buckets

    gradients = gradients_of(TRANSFORMERS["tiny"])
    assert messages_of("flat", gradients, None) == (GRADIENTS,)
    assert messages_of("overlap", gradients, None) == gradients[::-1]
    pieces = [Piece(size_bytes=one, kind="") for one in gradients]
    planned = tuple(one.size_bytes for one in plan_buckets(pieces, 2_000_000, 1_000_000))
    assert messages_of("bucketed", gradients, 2.0) == planned
    assert max(planned) > 1_000_000 >= planned[0]


@pytest.mark.parametrize(
    ("strategy", "backward", "ends"),
    [
        ("flat", 4.0, 4 + 3),
        # Ready at 1, 2 and 4; each takes 1: the last leaves when the pass is over.
        ("bucketed", 4.0, 5),
        # Ready at 0.1, 0.2 and 0.4: the first leaves at 0.1, the others wait for the one before.
        ("bucketed", 0.4, 3.1),
    ],
)
def test_messages_leave_one_after_the_other(strategy, backward, ends):
    sizes = (10,) if strategy == "flat" else (1, 1, 2)
    times = np.full((2, len(sizes)), 3.0 / len(sizes))
    told = step_s(strategy, sizes, times, np.full(2, backward))
    assert told == pytest.approx(ends)


def test_a_step_of_a_known_law(made):
    """20 µs + 10 µs a step of the ring, 1 GB/s: nothing can be hidden but what the pass lets leave."""
    plain = Stepper(workload(made), forecast(made), {}, True)
    _, steps = plain.draws(WorldSize(4, 1), [Choice("bucketed", 1.0)])
    sizes = messages_of("bucketed", plain.workload.gradients, 1.0)
    end, passed = 0.0, 0
    for size in sizes:
        passed += size
        end = max(end, 0.014 * passed / GRADIENTS) + made.ring(4, 4, size)
    assert np.median(steps) == pytest.approx(0.011 + max(end, 0.014), rel=0.02)


def test_no_step_is_quicker_than_alone(made):
    plain = Stepper(workload(made), forecast(made), {"flat": -1.0}, True)
    alone, steps = plain.draws(WorldSize(4, 1), [Choice("flat", None)])
    assert np.all(steps[:, 0] >= alone)


def test_what_the_model_missed_is_carried_over(made):
    known = forecast(made)
    made_one, note = stepper(workload(made, made.trained("flat", 0.036)), known, known_world=True)
    assert isinstance(made_one, Stepper)
    assert "carried over" in note
    _, here = made_one.draws(WorldSize(2, 1), [Choice("flat", None)])
    assert np.median(here) == pytest.approx(0.036, rel=0.03)
    _, there = made_one.draws(WorldSize(4, 1), [Choice("flat", None)])
    assert np.median(there) > np.median(here)


def test_a_model_that_misses_most_of_the_step_is_refused(made):
    found, _ = stepper(workload(made, made.trained("flat", 0.2)), forecast(made), known_world=True)
    assert isinstance(found, Refusal)
    assert "slow each other" in found.because


def test_choices_are_those_measured_with_a_scale_of_buckets(made):
    found = choices_of(workload(made, made.trained("ddp", 0.03, bucket=1.0)), (), ())
    assert {one.strategy for one in found} == {"ddp"}
    assert 1.0 in {one.bucket_mb for one in found}
    assert len(found) >= 5
    asked = choices_of(workload(made), ("flat", "fsdp2", "bucketed"), (2.0,))
    assert asked == [Choice("flat", None), Choice("bucketed", 2.0)]


def test_computing_takes_longer_where_ranks_take_turns_on_the_cores(made):
    """The run had a rank a node, on two cores; six ranks there have a third of one each."""
    shared = replace(workload(made), cores=2)
    assert shared.sharing(WorldSize(1, 6)) == 3
    assert shared.sharing(WorldSize(6, 1)) == shared.sharing(WorldSize(1, 2)) == 1
    assert workload(made).sharing(WorldSize(1, 6)) == 1
    crowded = replace(shared, world=WorldSize(1, 4))
    assert crowded.sharing(WorldSize(1, 6)) == 1.5
    known = forecast(made)
    alone, steps = Stepper(shared, known, {}, True).draws(WorldSize(1, 6), [Choice("flat", None)])
    assert np.median(alone) == pytest.approx(3 * 0.025, rel=0.03)
    assert np.all(steps[:, 0] >= alone)
    # Nobody has measured how well computing shares cores: the power of 1 ± 0.1.
    assert np.std(np.log(alone)) > 0.08


GRADS = (4 << 20, 4096, 4 << 20, 4096)
SENT = sum(GRADS)


def watched_run(made, *, gradients=GRADS, calls=2.0, sent=SENT, **changes):
    """A job by DDP: one bucket of 1 MB at first, as torch has it, and one of the rest."""
    sums = Traffic(group="dp", ranks=2, op="all_reduce", calls=calls, bytes_per_step=sent)
    job = Watched(
        ranks=2, world_size=2, hosts=("a", "b"), steps=200, step=0.030, step_low=0.029,
        step_high=0.031, exposed=0.3, exposed_low=0.28, exposed_high=0.32,
        parts_ms={"backward": 9.0, "forward": 8.0}, gradients=gradients, traffic=(sums,),
    )  # fmt: skip
    run = made.bench(2, sizes=())
    return replace(run, id="3a7c4ed0", command="launch", watched=replace(job, **changes))


def test_a_watched_job_is_a_workload_of_its_own(made):
    found = workload_of([watched_run(made)], None)
    assert isinstance(found, Workload)
    assert (found.alone_s, found.backward_s) == (pytest.approx(0.021), pytest.approx(0.009))
    assert found.gradients == GRADS and found.world == WorldSize(2, 1)
    (as_is,) = found.measured
    assert (as_is.strategy, as_is.bucket_mb, as_is.step_s) == ("ddp", 25.0, 0.030)
    unlike = workload_of([watched_run(made, calls=9.0)], None)
    assert isinstance(unlike, Workload) and unlike.measured == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gradients": ()}, "were not seen"),
        ({"exposed_high": 0.0}, "were not seen"),
        ({"parts_ms": {}}, "were not seen"),
        ({"sent": 99e6}, "its all_reduces 99 MB a step"),
    ],
)
def test_of_a_job_that_tells_too_little_nothing_is_predicted(made, change, why):
    found = workload_of([watched_run(made, **change)], None)
    assert isinstance(found, Refusal) and why in found.because


def test_other_buckets_of_a_watched_job_have_times_with_intervals(made):
    runs = [*(made.bench(n) for n in (2, 3, 4)), watched_run(made)]
    found = predict(runs, Question(nodes=(2, 4), strategies=("ddp", "flat"), buckets=(1.0, 25.0)))
    assert {(one.strategy, one.bucket_mb) for one in found.steps} == {
        ("ddp", 1.0),
        ("ddp", 25.0),
        ("flat", None),
    }
    (as_is,) = (one for one in found.steps if one.world.nodes == 2 and (one.bucket_mb or 0) == 25.0)
    assert as_is.step.low < 0.030 < as_is.step.high
