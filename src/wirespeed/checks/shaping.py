"""From what a large job's groups cost each other to one finding: what does overlapping bring?"""

from collections.abc import Sequence

from wirespeed.checks.registry import tell
from wirespeed.model.records import Finding
from wirespeed.model.training_records import LoadFigures, Ratio

SLOWER = 0.95
"""Where all of it at once is surely slower by more than this, doing it in turn is better."""


def shape_findings(load: Sequence[LoadFigures]) -> list[Finding]:
    """One: of each comparison what it brings to do all at once."""
    first_of = {one.gain: one for one in reversed(load) if one.gain}
    gains = [(one, gain) for gain, one in reversed(first_of.items())]
    if not gains:
        return [tell("SHAPE-001", "nothing timed")]
    said = [f"{one.name} beside {one.beside}: {_said(gain)}" for one, gain in gains]
    slower = [one for one, (_, gain) in zip(said, gains, strict=True) if gain.high < SLOWER]
    if slower:
        told = {"saw": "; ".join(slower), "number": len(slower), "of": len(gains)}
        return [tell("SHAPE-001", "slower", **told)]
    ends = dict.fromkeys(f"{pick(gain.value for _, gain in gains):.2f}" for pick in (min, max))
    return [tell("SHAPE-001", "gains", times=" to ".join(ends), evidence=said)]


def _said(gain: Ratio) -> str:
    return f"{gain.value:.2f}× ({gain.low:.2f} to {gain.high:.2f})"
