"""From what a large job's groups cost each other to one finding: what does overlapping bring?"""

import math
from collections.abc import Sequence

from wirespeed.checks.node_health import visible_cpus
from wirespeed.checks.registry import tell
from wirespeed.model.records import Finding, World
from wirespeed.model.training_records import LoadFigures, Ratio

SLOWER = 0.95
"""Where all of it at once is surely slower by more than this, doing it in turn is better."""


def shape_findings(load: Sequence[LoadFigures], world: World) -> list[Finding]:
    """One: of each comparison what it brings to do all at once.

    A loss is no warning where ranks share the cores that they send by.
    """
    first_of = {one.gain: one for one in reversed(load) if one.gain}
    gains = [(one, gain) for gain, one in reversed(first_of.items())]
    if not gains:
        return [tell("SHAPE-001", "nothing timed")]
    said = [f"{one.name} beside {one.beside}: {_said(gain)}" for one, gain in gains]
    slower = [one for one, (_, gain) in zip(said, gains, strict=True) if gain.high < SLOWER]
    if slower and not _crowded(world):
        told = {"saw": "; ".join(slower), "number": len(slower), "of": len(gains)}
        return [tell("SHAPE-001", "slower", **told)]
    ends = dict.fromkeys(f"{pick(gain.value for _, gain in gains):.2f}" for pick in (min, max))
    case = "shared cores" if slower else "gains"
    return [tell("SHAPE-001", case, times=" to ".join(ends), evidence=said)]


def _crowded(world: World) -> bool:
    """Whether ranks that send by their own cores have too few of them."""
    short = [node for node in world.nodes if (visible_cpus(node) or math.inf) < len(node.ranks)]
    return world.backend == "gloo" and bool(short)


def _said(gain: Ratio) -> str:
    return f"{gain.value:.2f}× ({gain.low:.2f} to {gain.high:.2f})"
