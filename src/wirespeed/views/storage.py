"""A folder that was checked: what each node sees of it, and how fast it is."""

from wirespeed.model.records import Run
from wirespeed.model.storage_records import Storage, StorageFigure
from wirespeed.model.units import format_duration, format_size
from wirespeed.statistics import has_interval
from wirespeed.views.sections import bandwidth, interval
from wirespeed.views.text import NOTHING, Grid

_FIGURES = (
    "<access|<by|a rank|all ranks at once|95 %|a second|95 %|n|a call|p95|p99|longest|<slowest node"
)
_NODES = "<node|<file system|<of|<options|<page cache|free|of|files left|quota left"


NOTE = (
    "rates: bytes or calls of a round over the slowest rank's time; a call: the middle rank's median, "
    "and the percentiles of the rank where they are highest (docs/storage.md)"
)


def storage_tables(storage: Storage) -> list[tuple[str, Grid]]:
    tables = [
        (f"storage {storage.folder}", figures_grid(storage)),
        ("as nodes see it", nodes_grid(storage)),
    ]
    return [one for one in tables if one[1].rows]


def figures_grid(storage: Storage) -> Grid:
    """One row a kind of access."""
    grid = Grid.of(_FIGURES)
    for one in storage.figures:
        grid.add(
            *(one.access, one.engine, format_size(one.size) if one.size else NOTHING),
            *(
                (bandwidth(one.rate.median), interval(one.rate, one.rate.samples))
                if one.rate
                else (NOTHING, NOTHING)
            ),
            *(
                (f"{one.per_s.median:,.0f}", interval(one.per_s, one.per_s.samples))
                if one.per_s
                else (NOTHING, NOTHING)
            ),
            *(str(one.latency.samples), format_duration(one.latency.median)),
            *map(format_duration, (one.p95, one.p99, one.max)),
            _slowest(one),
        )
    return grid


def _slowest(one: StorageFigure) -> str:
    """Where it surely took longer than the others."""
    ratio = one.slowest_ratio
    if ratio is None or ratio.low <= 1 or not has_interval(ratio.samples):
        return ""
    return f"{one.slowest} {ratio.median:.2f}× {interval(ratio, ratio.samples)}"


def nodes_grid(storage: Storage) -> Grid:
    grid = Grid.of(_NODES)
    for node in storage.nodes:
        quota = "" if node.quota is None else format_size(node.quota)
        cache = "passed by" if node.direct else "emptied before reading"
        cache = "is all there is" if node.in_memory else cache
        grid.add(
            *(node.host, node.filesystem, node.source, node.options, cache),
            *(format_size(node.free), format_size(node.total)),
            *(f"{node.free_inodes:,}" if node.inodes else "", quota),
        )
    return grid


def conclusion(run: Run) -> str:
    """What findings say of it, in sentences."""
    found = [one.title for one in run.findings if one.id in ("STOR-004", "STOR-006")]
    return " ".join(f"{title[0].upper()}{title[1:]}." for title in found)
