"""How far apart are runs of the same thing on the same machines? Stored repeats tell."""

from collections.abc import Collection, Iterable
from statistics import variance

from wirespeed.compare.estimate import Figure, Floor
from wirespeed.compare.facts import Facts, facts_of
from wirespeed.compare.figures import figures_of
from wirespeed.records import Run
from wirespeed.records_comparison import What

__all__ = ["floors_of"]

_Signature = tuple[tuple[tuple[str, str], frozenset[str]], ...]


def floors_of(stored: Iterable[Run], across: Collection[str] = ()) -> dict[What, Floor]:
    """The noise between runs by what was measured, pooled over groups of alike runs.

    Alike: everything recorded beside the figures is the same (versions, environment, hosts, …), and
    the hosts are known. Give it no run that is being compared: the change itself would count as noise.
    """
    groups: dict[_Signature, dict[What, list[Figure]]] = {}
    for run in stored:
        facts = facts_of([run])
        if ("hosts", "hosts") in facts:
            group = groups.setdefault(_signature(facts), {})
            for what, figure in figures_of(run, across).items():
                group.setdefault(what, []).append(figure)
    squares: dict[What, tuple[float, int]] = {}
    for group in groups.values():
        for what, figures in group.items():
            if len(figures) > 1:
                freedom = len(figures) - 1
                total, before = squares.get(what, (0.0, 0))
                more = variance(f.log for f in figures) * freedom
                squares[what] = total + more, before + freedom
    return {
        what: Floor(total / freedom, freedom, "history")
        for what, (total, freedom) in squares.items()
    }


def _signature(facts: Facts) -> _Signature:
    return tuple(sorted(facts.items(), key=lambda item: item[0]))
