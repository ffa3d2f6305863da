"""What a run's speed is graded against: the references of this user on this machine, in order."""

from typing import TYPE_CHECKING

from wirespeed.reference import Chain, NoReference, Reference

if TYPE_CHECKING:
    from wirespeed.model.records import Measurement, Run
    from wirespeed.reference.ask import Answer
    from wirespeed.reference.shape import Shape


def answer_of(
    run: "Run",
    one: "Measurement",
    reference: Reference | None = None,
    stated: "Shape | None" = None,
) -> "Answer":
    """Is this figure of a run normal? Held against all that `check` knows; the run has a shape.

    stated: the run's shape with what a person states of switches and site beside its facts.
    """
    from wirespeed.reference.ask import Asked, ask, expected_of
    from wirespeed.reference.shape import busbw_interval, shape_of
    from wirespeed.statistics import lacks_samples

    shape = shape_of(run.world)
    if shape is None:
        raise ValueError(f"run {run.id} has no shape")
    number = one.samples if lacks_samples(one.samples) else one.iterations
    figure = Asked(one.size_bytes, one.busbw, busbw_interval(one), number, one.engine)
    expected = (reference or references_for("check")).expect(run.world, one)
    if stated is not None and stated != shape:
        shape = stated
        if expected is None or expected.origin == "reference":
            expected = expected_of(stated, one.op, one.size_bytes)
    return ask(shape, one.op, figure, expected, nodes=run.world.nodes)


def references_for(command: str) -> Reference:
    """Return what the speed of a `check` is graded against: baselines, own figures, the package's
    figures, earlier runs of such nodes; that of a `bench` or `train` against baselines alone.

    Baselines and own figures are read at once, so that a damaged file is told before anything is
    measured (InputError); earlier runs are read when the first figure is judged.
    """
    if command not in ("check", "bench", "train"):
        return NoReference()
    from wirespeed.reference.figures import shipped_figures
    from wirespeed.reference.known import FigureReference, FleetReference, baseline_references
    from wirespeed.runs.named_files import list_baselines, load_baseline, load_own
    from wirespeed.runs.store import past_runs

    baselines = [load_baseline(name) for name in list_baselines()]
    endorsed = baseline_references((one.name, one.set, one.runs) for one in baselines)
    if command != "check":
        return Chain(endorsed)
    return Chain(
        [
            *endorsed,
            FigureReference(load_own(), "own"),
            FigureReference(shipped_figures(), "reference"),
            FleetReference(past_runs),
        ]
    )
