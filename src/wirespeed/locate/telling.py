"""From the localiser's figures to records: names for numbers, JSON for what has no record."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wirespeed.locate.faults import Fault
from wirespeed.locate.model import Culprit, Reading
from wirespeed.records import PairFigures, SimulatedPart

__all__ = ["culprit_json", "pair_figures", "simulated_part"]


def pair_figures(reading: Reading, names: Sequence[str], number: int) -> list[PairFigures]:
    """One entry a rail; `number` is the round, from 0."""
    first, second = (names[node] for node in reading.pair)
    return [
        PairFigures(
            first=first,
            second=second,
            rail=rail,
            round=number,
            latency=_of_rail(reading.latency, rail),
            forth=forth,
            back=back,
            both=_of_rail(reading.both, rail) or 0.0,
        )
        for rail, (forth, back) in enumerate(zip(reading.forth, reading.back, strict=True))
    ]


def _of_rail(figures: Sequence[float], rail: int) -> float | None:
    """None where it was not measured, or where no answer came."""
    known = rail < len(figures) and math.isfinite(figures[rail])
    return figures[rail] if known else None


def culprit_json(culprit: Culprit) -> dict[str, Any]:
    """JSON has no infinity: None stands for it."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(culprit).items()
    }


def simulated_part(part: Culprit | Fault, names: Sequence[str]) -> SimulatedPart:
    """What of the fabric it is, in words: `node-7 sending`, `rail 3`, `node-0 … node-31`."""
    said = [names[node] for node in part.nodes]
    match part.kind:
        case "rail":
            name = f"rail {part.rail}"
        case "nic":
            name = f"rail {part.rail} of {said[0]}"
        case "uplink":
            name = f"{said[0]} … {said[-1]}"
        case "link":
            name = " <-> ".join(said)
        case "direction":
            name = f"{said[0]} {'sending' if part.towards == 'out' else 'receiving'}"
        case _:
            name = ", ".join(said)
    factor = part.factor if math.isfinite(part.factor) else None
    return SimulatedPart(kind=part.kind, name=name, what=part.what, factor=factor)
