"""A soak as text: how long, how much was checked, when something happened, and what."""

from dataclasses import replace

from wirespeed.records import Run
from wirespeed.records_lasting import Incident, Soak, SoakCell
from wirespeed.units import format_duration, format_size
from wirespeed.views.grid import Column, Grid
from wirespeed.views.sections import note
from wirespeed.views.style import Style

__all__ = ["calls_of", "clock", "soak_lines", "summary", "tables", "timeline"]

_BARS = "▁▂▃▄▅▆▇█"
_BUCKETS = 60
_SHOWN = 20
_NOTE = (
    "a call: the operation once, its result compared element by element; times are the slowest "
    "rank's; p99 and the slowest are over all windows (docs/soak.md)"
)


def soak_lines(run: Run, style: Style) -> list[str]:
    """Summary, timeline, incidents, and the operations; nothing for other runs."""
    soak = run.soak
    if soak is None:
        return []
    lines = [style.text(summary(soak)), ""]
    told = timeline(soak, ascii=style.ascii)
    lines += [style.text(told), ""] if told else []
    for title, grid in tables(run, every=style.verbose):
        lines += [style.paint(style.text(title), "bold"), *grid.lines(style, indent="  "), ""]
    return lines + note(_NOTE, style)


def summary(soak: Soak) -> str:
    """`soaked 2:00:00 of 2:00:00: 1,234 calls, 5.6 GB checked, 2 worlds of ranks, 1 incident`."""
    incidents = len(soak.incidents) + soak.uncounted.get("incidents", 0)
    parts = [
        f"{soak.calls:,} calls",
        f"{soak.checked_bytes / 1e9:,.1f} GB checked",
        f"{soak.worlds} world{'' if soak.worlds == 1 else 's'} of ranks",
        f"{incidents} incident{'' if incidents == 1 else 's'}",
    ]
    if soak.resumed:
        parts.insert(3, f"resumed {soak.resumed}×")
    return f"soaked {clock(soak.elapsed_s)} of {clock(soak.for_s)}: {', '.join(parts)}"


def timeline(soak: Soak, *, ascii: bool = False) -> str:
    """A sign a bucket: `·` without an incident, higher bars for more of them, blank without calls."""
    if soak.elapsed_s <= 0:
        return ""
    width = max(60.0, soak.elapsed_s / _BUCKETS) if soak.elapsed_s > 600 else soak.elapsed_s / 30
    count = max(1, round(soak.elapsed_s / width + 0.499))
    incidents = [0] * count
    calls = [False] * count

    def bucket(since_s: float) -> int:
        return min(count - 1, max(0, int(since_s / width)))

    for one in soak.incidents:
        incidents[bucket(one.since_s)] += 1
    for window in soak.windows:
        first, last = bucket(window.since_s), bucket(window.since_s + window.seconds)
        calls[first : last + 1] = [True] * (last + 1 - first)
    signs = "".join(_sign(n, soaked, ascii) for n, soaked in zip(incidents, calls, strict=True))
    return f"incidents  0:00 [{signs}] {clock(soak.elapsed_s)}   each sign {_length(width)}"


def _length(seconds: float) -> str:
    return clock(seconds) if seconds >= 60 else format_duration(seconds)


def _sign(incidents: int, soaked: bool, ascii: bool) -> str:
    if not incidents:
        return ("." if ascii else "·") if soaked else " "
    return str(min(9, incidents)) if ascii else _BARS[min(len(_BARS) - 1, 1 + incidents)]


def tables(run: Run, *, every: bool = False) -> list[tuple[str, Grid]]:
    """(title, grid): the incidents in order of time, then the operations."""
    soak = run.soak
    if soak is None:
        return []
    found = [(_incident_title(soak, every), _incidents(soak, every))] if soak.incidents else []
    if soak.windows:
        found.append(("operations", _operations(soak)))
    return found


def _incident_title(soak: Soak, every: bool) -> str:
    count = len(soak.incidents)
    hidden = 0 if every else max(0, count - _SHOWN)
    more = soak.uncounted.get("incidents", 0)
    parts = [f"the first {count - hidden}, all with -v"] if hidden else []
    parts += [f"{more} more were counted and not kept"] if more else []
    return "incidents" + (f" ({'; '.join(parts)})" if parts else "")


def _incidents(soak: Soak, every: bool) -> Grid:
    grid = Grid(
        (
            Column("at", left=True),
            Column("after"),
            Column("about", left=True),
            Column("what", left=True),
            Column("cost"),
            Column("id", left=True),
        )
    )
    for one in soak.incidents if every else soak.incidents[:_SHOWN]:
        cost = format_duration(one.lost_s) if one.lost_s > 0 else ""
        grid.add(
            one.at[:19].replace("T", " "), clock(one.since_s), one.subject, _what(one), cost, one.id
        )
    return grid


def _what(incident: Incident) -> str:
    return f"{incident.title}; {incident.saw}" if incident.id == "SOAK-001" else incident.title


def _operations(soak: Soak) -> Grid:
    grid = Grid(
        (
            Column("operation", left=True),
            Column("type", left=True),
            Column("size"),
            Column("calls"),
            Column("wrong"),
            Column("median"),
            Column("p99"),
            Column("slowest"),
            Column("last", left=True),
        )
    )
    for one in calls_of(soak):
        grid.add(
            one.op,
            one.dtype,
            format_size(one.size_bytes, exact=True),
            f"{one.calls:,}",
            str(one.wrong),
            format_duration(one.median),
            format_duration(one.p99),
            format_duration(one.max),
            f"rank {one.last_rank}",
            red=4 if one.wrong else None,
        )
    return grid


def calls_of(soak: Soak) -> list[SoakCell]:
    """Each operation over all windows: the middle window's median, the worst of the rest."""
    found: dict[tuple[str, str, int], list[SoakCell]] = {}
    for cell in (cell for window in soak.windows for cell in window.cells):
        found.setdefault((cell.op, cell.dtype, cell.size_bytes), []).append(cell)
    return [_whole(found[key]) for key in sorted(found)]


def _whole(cells: list[SoakCell]) -> SoakCell:
    worst = max(cells, key=lambda cell: cell.max)
    medians = sorted(cell.median for cell in cells)
    return replace(
        worst,
        calls=sum(cell.calls for cell in cells),
        wrong=sum(cell.wrong for cell in cells),
        low=min(cell.low for cell in cells),
        median=medians[len(medians) // 2],
        p99=max(cell.p99 for cell in cells),
    )


def clock(seconds: float) -> str:
    """`1:02:03`, below an hour `2:03`."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
