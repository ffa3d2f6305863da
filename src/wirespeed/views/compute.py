"""What devices compute and remember: one row a kind of work over all devices of a product, or each."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeVar

from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate
from wirespeed.model.units import format_size
from wirespeed.statistics import has_interval
from wirespeed.views.sections import no_interval
from wirespeed.views.text import NOTHING, Grid, counted

OPERATIONS = {
    "gemm": "product",
    "chain": "running sum",
    "copy": "copy in its memory",
    "triad": "triad in its memory",
    "numa": "from the next NUMA node (of one: its own)",
    "h2d": "host to GPU, pinned",
    "d2h": "GPU to host, pinned",
    "h2d_pageable": "host to GPU, pageable",
    "d2h_pageable": "GPU to host, pageable",
    "both_ways": "host and GPU, both ways",
    "peer": "to the next GPU",
}
_RATES = (
    "<what|<type|size|<devices|<working|rate|95 %|n|own rate|slowest|<which|of peak|held|cores ours"
)
_FELT = "MHz|°C|W|<slowed by|<why not"
_PROOFS = "<type|devices|products|results compared|wrong|<who"
NOTE = (
    "rate: operations or bytes a second by the clock, median over the devices, with the widest 95 % "
    "interval of one; own rate: by the time that the cores were ours; slowest: of the median device, or "
    "core (docs/compute.md)"
)


def compute_tables(compute: Compute, *, every: bool = False) -> list[tuple[str, Grid]]:
    """(title, grid) of the proofs and of the rates. every: a row a device."""
    found = []
    if compute.proofs:
        found.append(("products compared bit for bit", _proofs(compute.proofs)))
    if compute.rates:
        found.append(("how fast the devices are", rates_grid(compute.rates, every=every)))
    return found


def _proofs(proofs: Sequence[ComputeProof]) -> Grid:
    grid = Grid.of(_PROOFS)
    for dtype, group in _groups(proofs, lambda one: one.dtype):
        done = [one for one in group if not one.reason]
        bad = [one for one in done if one.faults or one.odd]
        wrong = sum(fault.wrong for one in bad for fault in one.faults)
        who = ", ".join(_name(one) for one in bad[:3]) or next((one.reason for one in group), "")
        made, seen = (sum(getattr(one, name) for one in done) for name in ("products", "elements"))
        grid.add(
            dtype,
            str(len(done)),
            f"{made:,}",
            f"{seen:,}",
            f"{wrong:,}" if done else NOTHING,
            who,
            color="red" if bad else "",
            at=-2,
        )
    return grid


def _name(one: ComputeProof | ComputeRate) -> str:
    return f"{one.host} {one.device}"


T = TypeVar("T")
K = TypeVar("K")


def _groups(ones: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    found: dict[K, list[T]] = defaultdict(list)
    for one in ones:
        found[key(one)].append(one)
    return list(found.items())


def rates_grid(rates: Sequence[ComputeRate], *, every: bool = False) -> Grid:
    grid = Grid.of(f"{_RATES}|{_FELT}")
    for _, group in _groups(
        rates,
        lambda one: (
            one.product,
            one.op,
            one.dtype,
            one.size,
            one.together,
            bool(one.held),
            bool(one.reason),
            _name(one) if every else "",
        ),
    ):
        _add(grid, group)
    return grid


def _add(grid: Grid, group: Sequence[ComputeRate]) -> None:
    one = group[0]
    who = _name(one) if len(group) == 1 else f"{counted(len(group), 'device')} {one.product}"
    working = "all at once" if one.together else "alone"
    working += ", kept up" if one.held else ""
    size = one.shape or (format_size(one.size_bytes) if one.size_bytes else NOTHING)
    what = [OPERATIONS[one.op], one.dtype if one.op == "gemm" else "", size, who, working]
    if one.reason:
        grid.add(*what, *[NOTHING] * 3, *[""] * 10, one.reason)
        return
    middle = median(each.own_per_second for each in group)
    slowest = min(group, key=lambda each: each.own_per_second)
    reach = max(
        max(each.high - each.per_second, each.per_second - each.low) / each.per_second
        for each in group
    )
    samples = min(each.samples for each in group)
    several, wrong = len(group) > 1, any(each.wrong for each in group)
    grid.add(
        *what,
        one.text(median(each.per_second for each in group)),
        f"±{reach:.1%}".replace("%", " %") if has_interval(samples) else no_interval(samples),
        str(samples),
        one.text(middle) if min(each.own_share for each in group) < 0.98 else "",
        f"{slowest.own_per_second / middle:.3f}" if several else _core_share(one),
        _name(slowest) if several else one.slowest,
        f"{median(each.per_second for each in group) / one.peak:.0%}" if one.peak else "",
        f"{min(each.held for each in group):.3f}" if one.held else "",
        f"{min(each.own_share for each in group):.0%}" if one.device.startswith("NUMA") else "",
        *_felt(group),
        f"{sum(each.wrong or 0 for each in group):,} elements wrong" if wrong else "",
        color="red" if wrong else "",
    )


def _core_share(one: ComputeRate) -> str:
    return f"{one.slowest_share:.3f}" if one.slowest else ""


def _felt(group: Sequence[ComputeRate]) -> list[str]:
    """Lowest clock, highest temperature and power, and why any was slowed."""
    figures = (
        min(one.clock_MHz for one in group),
        max(one.temperature_C for one in group),
        max(one.power_W for one in group),
    )
    why = dict.fromkeys(word for one in group for word in one.slowed_by)
    return [*(f"{figure:.0f}" if figure else "" for figure in figures), ", ".join(why)]
