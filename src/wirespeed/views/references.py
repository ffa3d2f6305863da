"""What measurements were graded against, as a table: figure, reference, share, and where it is from."""

from wirespeed.records import Measurement, Run
from wirespeed.records_reference import ReferenceFigure, ReferenceKind
from wirespeed.units import format_bandwidth, format_duration, format_size
from wirespeed.views.grid import Column, Grid

__all__ = ["KINDS", "reference_value", "references_grid", "references_of"]

KINDS: dict[ReferenceKind, str] = {
    "baseline": "baseline",
    "own": "own figure",
    "fleet": "fleet's median",
    "reference": "reference",
    "roofline": "roofline",
}
_TITLES = (
    "operation",
    "size",
    "place",
    "figure",
    "graded against",
    "reference",
    "share",
    "spread",
    "from",
)
_RIGHT = ("size", "figure", "reference", "share", "spread")


def references_of(run: Run) -> list[ReferenceFigure]:
    """Of all findings, in their order."""
    return [one for finding in run.findings for one in finding.references]


def references_grid(run: Run) -> Grid | None:
    """A row for each figure that was graded against; None where nothing was."""
    told = references_of(run)
    if not told:
        return None
    measured = {_key(m): m for m in reversed(run.measurements)}
    grid = Grid(tuple(Column(title, left=title not in _RIGHT) for title in _TITLES))
    for one in told:
        figure, share = _figure(one, measured.get(_key(one)))
        spread = _spread(one)
        grid.add(
            one.op,
            format_size(one.size_bytes),
            "in" if one.in_place else "out",
            figure,
            KINDS[one.kind],
            reference_value(one),
            share,
            spread,
            one.source,
        )
    return grid


def reference_value(one: ReferenceFigure) -> str:
    """With its unit."""
    return _shown(one, one.value)


def _key(one: Measurement | ReferenceFigure) -> tuple[object, ...]:
    how = (one.op, one.engine, one.dtype, one.redop)
    return (*how, one.in_place, one.size_bytes, one.ranks)


def _figure(one: ReferenceFigure, m: Measurement | None) -> tuple[str, str]:
    """(what was measured, its share of the reference: 1 is as good, more is better)."""
    seen = (m.busbw if one.quantity == "busbw" else m.time.median) if m else 0.0
    if seen <= 0 or one.value <= 0:
        return "–", "–"
    share = seen / one.value if one.quantity == "busbw" else one.value / seen
    return _shown(one, seen), f"{share:.2f}"


def _spread(one: ReferenceFigure) -> str:
    if one.low is None or one.high is None:
        return ""
    return f"{_shown(one, one.low)} … {_shown(one, one.high)}"


def _shown(one: ReferenceFigure, value: float) -> str:
    return format_bandwidth(value) if one.quantity == "busbw" else format_duration(value)
