"""What a run's speed is graded against: the references of this user on this machine, in order."""

from wirespeed.reference import Chain, NoReference, Reference

__all__ = ["references_for"]


def references_for(command: str) -> Reference:
    """For `check`: baselines, own figures, the fleet's earlier runs, the package's figures.

    Baselines and own figures are read at once, so that a damaged file is told before anything is
    measured (InputError); earlier runs are read when the first figure is judged.
    """
    if command != "check":
        return NoReference()
    from wirespeed.reference.figures import shipped_figures
    from wirespeed.reference.fleet import FleetReference
    from wirespeed.reference.known import FigureReference, baseline_references
    from wirespeed.runs.baselines import list_baselines, load_baseline
    from wirespeed.runs.own_figures import load_own
    from wirespeed.runs.past import past_runs

    baselines = [load_baseline(name) for name in list_baselines()]
    return Chain(
        [
            *baseline_references((one.name, one.set, one.runs) for one in baselines),
            FigureReference(load_own(), "own"),
            FleetReference(past_runs),
            FigureReference(shipped_figures(), "reference"),
        ]
    )
