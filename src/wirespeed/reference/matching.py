"""Which figures hold for a world, an operation and a size; nothing in between is made up.

A figure holds where GPU, ranks a node and interconnect are the same. Taken with a note, and never
good for a failure: another number of nodes, or network cards that one side does not name. Never taken:
other cards, one node for several.

Sizes: busbw rises with the size until the links are full. So a figure holds from half of its size
on (8 GiB: from 4 GiB on), and the nearest of those is taken; below that, from 128 MiB on, only a
quarter of it can be expected (2 AWS p5 nodes reach 0.59 of their 16 GiB figure at 128 MiB).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.reference import Expectation, Origin
from wirespeed.reference.figures import Figure
from wirespeed.reference.shape import CPU, Shape
from wirespeed.units import format_bandwidth, format_size

__all__ = ["Match", "find", "holds"]

_PEAK_BYTES = 2**30
"""A figure that names no size is a peak over sizes; those are reached from about here on."""
_FROM = 0.5
_FAR = 16
_LEAST_BYTES = 2**27
_ROUGHLY = 0.25
_RDMA = ("ib", "roce")


@dataclass(frozen=True, slots=True)
class Match:
    """What was found, best first."""

    figures: tuple[Figure, ...]
    rough: bool
    """Only the order of magnitude may be asked for."""
    exact: bool
    """The figures are of the same world, as far as anybody tells."""
    notes: tuple[str, ...]
    size_bytes: int
    """What was asked for."""

    def expectation(self, origin: Origin) -> Expectation:
        """The median of what was measured, with the range of all; rules only where nothing was."""
        measured = [one for one in self.figures if one.kind == "measured"]
        gates = [one.busbw for one in self.figures if one.kind == "gate" and one.busbw]
        basis = measured or list(self.figures)
        rates = [one.busbw for one in basis if one.busbw]
        timed = [one for one in basis if one.time_s and one.size_bytes == self.size_bytes]
        times = [one.time_s for one in timed if one.time_s]
        ends = [end for one in self.figures for end in one.busbw_range or ()]
        slow = [end for one in timed for end in one.time_range or ()]
        bound = _own_spread(basis) if origin == "own" else 1.0
        return Expectation(
            outside_warn=bound,
            outside_fail=bound,
            time_s=median(times) if times else None,
            busbw=median(rates) if rates else None,
            source=_sources(basis),
            origin=origin,
            time_range=_span([*times, *slow]),
            busbw_range=_span([*rates, *gates, *ends]),
            samples=len(basis),
            gate=max(gates) if gates and not self.rough and self.exact else None,
            warn_below=_ROUGHLY if self.rough else None,
            may_fail=self.exact and not self.rough and bool(measured or gates),
            notes=(*self.notes, *map(_told, self.figures)),
        )


def find(figures: Iterable[Figure], shape: Shape, op: str, size: int) -> Match | None:
    """The figures that hold, or None."""
    alike = [one for one in figures if one.collective == op and holds(one, shape)]
    alike = _same_switch(_of_named_gpu(alike), shape)
    nodes, exact_nodes = _nearest_nodes(alike, shape.nodes)
    sized, rough, note = _nearest_size(_measured_first(nodes), size)
    if not sized:
        return None
    notes = [note] if note else []
    if not exact_nodes:
        notes.append(f"figures are of {_counts(sized)} nodes, this is {shape.nodes}")
    vague = any(_vague(one, shape) for one in sized)
    if vague:
        notes.append("GPU, ranks a node or network cards are not told on both sides")
    if any(one.switch == "sharp" and one.kind != "gate" for one in sized):
        notes.append(
            "figures with SHARP: where switches do not add up, a ring over the cards is the limit"
        )
    return Match(tuple(sized), rough, exact_nodes and not vague, tuple(notes), size)


def holds(one: Figure, shape: Shape) -> bool:
    """Whether a figure is of such a world, sizes and exact number of nodes aside."""
    if one.kind == "untuned" or not _same_link(one, shape):
        return False
    if one.gpu and shape.gpu != one.gpu and not shape.gpu.startswith(one.gpu + " "):
        return False
    if shape.gpu == CPU and (one.gpu != CPU or one.system != shape.system):
        return False
    if one.gpus_per_node not in (None, shape.per_node):
        return False
    if not one.gpu and one.nics and not (shape.nics and shape.nic_Gbitps):
        return False  # it is a figure of cards, and nobody knows these
    return shape.nodes > 1 if one.nodes is None else (one.nodes > 1) == (shape.nodes > 1)


def _same_link(one: Figure, shape: Shape) -> bool:
    kinds = _RDMA if one.interconnect == "rdma" else (one.interconnect,)
    if shape.interconnect not in kinds:
        return False
    pairs = ((one.nics, shape.nics), (one.nic_Gbitps, shape.nic_Gbitps))
    return all(a is None or b is None or math.isclose(a, b, rel_tol=0.01) for a, b in pairs)


def _vague(one: Figure, shape: Shape) -> bool:
    """Whether something that matters is told on one side only."""
    if not one.gpu or one.gpus_per_node is None:
        return True
    # What a maker asks of any number of nodes is told, what somebody got on some number is not.
    if one.nodes is None and one.kind != "gate":
        return True
    return shape.nodes > 1 and not shape.interconnect.startswith("mnnvl") and one.nics != shape.nics


def _measured_first(alike: Sequence[Figure]) -> list[Figure]:
    """A rule of thumb stands only where nobody measured."""
    return [one for one in alike if one.kind != "rule"] or list(alike)


def _same_switch(alike: Sequence[Figure], shape: Shape) -> list[Figure]:
    """NVLS is on unless it is switched off, so figures without it stand back, where there are others."""
    wanted = [one for one in alike if (one.switch == "nvls off") == (shape.switch == "nvls off")]
    return wanted or list(alike)


def _of_named_gpu(alike: Sequence[Figure]) -> list[Figure]:
    """A figure of no GPU, such as what one card carries, stands back where there are others."""
    return [one for one in alike if one.gpu] or list(alike)


def _nearest_nodes(alike: Sequence[Figure], nodes: int) -> tuple[list[Figure], bool]:
    same = [one for one in alike if one.nodes in (nodes, None)]
    if same:
        exact = [one for one in same if one.nodes is not None or one.kind == "gate"]
        return (exact if any(one.kind != "gate" for one in exact) else same), True
    if not alike:
        return [], True
    nearest = min((one.nodes or nodes for one in alike), key=lambda k: abs(math.log(k / nodes)))
    return [one for one in alike if one.nodes == nearest], False


def _nearest_size(alike: Sequence[Figure], size: int) -> tuple[list[Figure], bool, str]:
    """(figures of the nearest size that holds, whether only roughly, what to say about it)."""
    near = [one for one in alike if _size(one) * _FROM <= size or one.size_bytes == size]
    rough = not near and size >= _LEAST_BYTES
    # Far below, a smaller figure would say little of what full links carry.
    near = [one for one in near if _size(one) >= size / _FAR] or near
    near = near or (list(alike) if rough else [])
    if not near:
        return [], False, ""
    chosen = sorted(near, key=lambda one: abs(math.log(max(1, _size(one)) / max(1, size))))
    best = _size(chosen[0])
    chosen = _one_a_table(chosen)
    if size < _PEAK_BYTES:
        # Links may not be full yet: two sizes are two figures.
        chosen = [one for one in chosen if _size(one) == best]
    elif best >= _PEAK_BYTES:
        chosen = [one for one in chosen if _size(one) >= _PEAK_BYTES]
    if rough:
        return (
            chosen,
            True,
            (
                f"{format_size(best)} is the nearest figure; of {format_size(size)} only a quarter of "
                "it is asked, since busbw rises with the size"
            ),
        )
    note = "" if best == size else f"figures of {_sizes(chosen)} taken for {format_size(size)}"
    return chosen, False, note


def _one_a_table(nearest: Sequence[Figure]) -> list[Figure]:
    """Of the sizes of one table the nearest, so that several figures are of several tables."""
    first: dict[tuple[object, ...], Figure] = {}
    for one in nearest:
        table = (one.name, one.system, one.source, one.nodes, one.switch, one.kind)
        first.setdefault(table, one)
    return list(first.values())


def _size(one: Figure) -> int:
    return _PEAK_BYTES if one.size_bytes is None else one.size_bytes


def _sizes(figures: Sequence[Figure]) -> str:
    sizes = sorted({_size(one) for one in figures})
    return " and ".join(format_size(size) for size in sizes)


def _counts(figures: Sequence[Figure]) -> str:
    return ", ".join(sorted({str(one.nodes) for one in figures}))


def _own_spread(figures: Sequence[Figure]) -> float:
    """The share of its figure that the low end of the user's widest interval is."""
    shares = [one.busbw_range[0] / one.busbw for one in figures if one.busbw_range and one.busbw]
    shares += [one.time_s / one.time_range[1] for one in figures if one.time_range and one.time_s]
    return min([1.0, *shares])


def _span(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if len(values) > 1 else None


def _sources(figures: Sequence[Figure]) -> str:
    first = figures[0].dated
    return first if len(figures) == 1 else f"{first}; and {len(figures) - 1} more"


def _told(one: Figure) -> str:
    """One figure with its source, as evidence."""
    size = format_size(one.size_bytes) if one.size_bytes is not None else "peak"
    rate = f" {format_bandwidth(one.busbw)}" if one.busbw else ""
    switch = f" ({one.switch})" if one.switch else ""
    return f"{one.system}: {one.collective} {size}{rate} {one.kind}{switch} ({one.dated})"
