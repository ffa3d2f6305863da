"""What lasts: the tables and lines of `train --for` (goodput) and of `bench --for` (a soak)."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from wirespeed.model.lasting_records import Goodput, Incident, Soak, SoakCell
from wirespeed.model.records import Run
from wirespeed.model.units import format_duration, format_size
from wirespeed.views.sections import note
from wirespeed.views.text import Grid, Style, counted, titled
from wirespeed.views.training import number_cell

_WHAT = {
    "useful": "steps whose results are in the final state",
    "start": "starting, importing, joining, making the trainer; leaving",
    "restore": "reading a checkpoint",
    "checkpoint": "training waited for a checkpoint",
    "lost": "steps after the last checkpoint before a failure",
    "down": "from the last step of ranks that failed to the next start",
    "other": "between steps, and what nothing above explains",
}
_TRAINED = (
    "steps|made again|step|95 %|n|steps/s|without pauses|tokens/s|loss|checkpoints|each|failed"
)
_BAR, _SHOWN = 30, 20
_COLORS = {"useful": "green", "lost": "red", "down": "red"}
_MANY_H = 3600.0
_DAY_S = 24 * _MANY_H


def goodput_lines(run: Run, style: Style) -> list[str]:
    """Nothing for other runs."""
    if run.goodput is None:
        return []
    lines = titled(goodput_tables(run, bar="#" if style.ascii else "█"), style)
    for line in conclusion(run.goodput):
        lines += textwrap.wrap(style.text(line), style.width)
    lines += ["", *(line for text in goodput_notes(run.goodput) for line in note(text, style))]
    return lines


def goodput_tables(run: Run, bar: str = "") -> list[tuple[str, Grid]]:
    """(title, grid): where the time went, what was trained, the incidents. bar: drawn if given."""
    one = run.goodput
    if one is None:
        return []
    found = [(_title(one), _parts(one, bar)), ("what was trained", _trained(one))]
    if one.incidents:
        shown = one.incidents[:_SHOWN]
        more = len(one.incidents) - len(shown)
        title = "incidents" + (f" (the first {_SHOWN}; {more} more in the JSON)" if more else "")
        found.append((title, _incidents(shown)))
    return found


def parts_shown(one: Goodput) -> list[tuple[str, float]]:
    """(cause, seconds), what is more than nothing; the useful part always."""
    known = [(name, one.parts_s.get(name, 0.0)) for name in _WHAT]
    return [(name, seconds) for name, seconds in known if seconds > 0 or name == "useful"]


def conclusion(one: Goodput) -> list[str]:
    """What it comes to, in sentences."""
    useful = _long(one.parts_s.get("useful", 0.0))
    restarts = counted(one.restarts, "restart")
    lines = [
        f"goodput {_percent(one.ratio)}: {useful} of useful steps in {_long(one.wall_s)}; {restarts}"
    ]
    if one.mtbf_s is not None and one.mtbf_low_s is not None and one.mtbf_high_s is not None:
        lines.append(
            f"mean time between failures {_long(one.mtbf_s)} (95 %: {_long(one.mtbf_low_s)} … "
            f"{_long(one.mtbf_high_s)}; n = {one.failures})"
        )
    if one.best_interval_s is not None:
        lines.append(
            f"with that, and {format_duration(one.checkpoint_s)} a checkpoint, one every "
            f"{_long(one.best_interval_s)} loses least (Young 1974, Daly 2006)"
        )
    elif one.failures < 2:
        seen = "one failure tells" if one.failures else "no failure was seen, which tells"
        lines.append(
            f"{seen} no time between failures; one costs at most {_long(one.loss_at_most_s)} here: the "
            "time between checkpoints, and a restart"
        )
    return lines


def goodput_notes(one: Goodput) -> list[str]:
    return [
        resume_hint(one),
        "useful, lost: time within steps, on rank 0, from the data to the optimizer's end; the causes "
        "add up to the wall time (docs/training.md)",
    ]


def resume_hint(one: Goodput) -> str:
    return (
        f"to go on from step {one.last_step:,} or the newest checkpoint: wirespeed train --for TIME "
        f"--checkpoint-dir {one.folder} --resume, with the other options of this run"
    )


def _title(one: Goodput) -> str:
    ranks = counted(one.ranks, "rank")
    return f"where {_long(one.wall_s)} went · {one.model} · {one.strategy} · {ranks}"


def _parts(one: Goodput, bar: str) -> Grid:
    grid = Grid.of("<cause|time|share|<|<what it is")
    for name, seconds in parts_shown(one):
        share = seconds / one.wall_s if one.wall_s > 0 else 0.0
        drawn = bar * round(share * _BAR)
        cells = (_long(seconds), _percent(share), drawn, _WHAT[name])
        grid.add(name, *cells, color=_COLORS.get(name, ""), at=3)
    return grid


def _trained(one: Goodput) -> Grid:
    grid = Grid.of(_TRAINED)
    wall = one.wall_s if one.wall_s > 0 else float("inf")
    ideal = 1 / one.step_s if one.step_s > 0 else 0.0
    tokens = one.steps * one.tokens_per_step / wall
    half = (one.step_high_s - one.step_low_s) / 2
    grid.add(
        f"{one.first_step:,} … {one.last_step:,}" if one.first_step else f"{one.last_step:,}",
        f"{one.lost_steps:,}",
        format_duration(one.step_s) if one.step_s else "",
        f"±{half / one.step_s:.1%}".replace("%", " %") if half > 0 and one.step_s else "",
        f"{one.step_samples:,}",
        number_cell(one.steps / wall),
        number_cell(ideal),
        number_cell(tokens) if tokens else "",
        f"{one.loss:.4g}" if one.loss is not None else "",
        str(one.checkpoints),
        format_duration(one.checkpoint_s) if one.checkpoints else "",
        str(one.checkpoints_failed or ""),
    )
    return grid


def _incidents(incidents: Sequence[Incident]) -> Grid:
    grid = Grid.of("after|<about|<what|<saw|cost")
    for one in incidents:
        about = one.subject if one.subject_kind != "job" else ""
        # Of a rank that died the title says all; the finding tells the rest.
        saw = one.saw if one.subject_kind == "job" else ""
        grid.add(_long(one.since_s), about, f"{one.title}  {one.id}", saw, _long(one.lost_s))
    return grid


def _long(seconds: float) -> str:
    """`42.1 s`, `12 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 120:
        return format_duration(seconds)
    for unit, name, below, small in (
        (_DAY_S, "d", _MANY_H, "h"),
        (_MANY_H, "h", 60.0, "min"),
        (60.0, "min", 1.0, "s"),
    ):
        if seconds >= unit:
            whole, rest = divmod(round(seconds / below), round(unit / below))
            return f"{whole} {name}" + (f" {rest} {small}" if rest else "")
    return format_duration(seconds)


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %").replace("-", "−")


_BARS = "▁▂▃▄▅▆▇█"
_BUCKETS = 60
_SOAK_SHOWN = 20
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
    lines += titled(soak_tables(run, every=style.verbose), style)
    return lines + note(_NOTE, style)


def summary(soak: Soak) -> str:
    """`soaked 2:00:00 of 2:00:00: 1,234 calls, 5.6 GB checked, 2 worlds of ranks, 1 incident`."""
    incidents = len(soak.incidents) + soak.uncounted.get("incidents", 0)
    parts = [
        f"{soak.calls:,} calls",
        f"{soak.checked_bytes / 1e9:,.1f} GB checked",
        f"{counted(soak.worlds, 'world')} of ranks",
        counted(incidents, "incident"),
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


def soak_tables(run: Run, *, every: bool = False) -> list[tuple[str, Grid]]:
    """(title, grid): the incidents in order of time, then the operations."""
    soak = run.soak
    if soak is None:
        return []
    found = [(_incident_title(soak, every), _soak_incidents(soak, every))] if soak.incidents else []
    if soak.windows:
        found.append(("operations", _operations(soak)))
    return found


def _incident_title(soak: Soak, every: bool) -> str:
    count = len(soak.incidents)
    hidden = 0 if every else max(0, count - _SOAK_SHOWN)
    more = soak.uncounted.get("incidents", 0)
    parts = [f"the first {count - hidden}, all with -v"] if hidden else []
    parts += [f"{more} more were counted and not kept"] if more else []
    return "incidents" + (f" ({'; '.join(parts)})" if parts else "")


def _soak_incidents(soak: Soak, every: bool) -> Grid:
    grid = Grid.of("<at|after|<about|<what|cost|<id")
    for one in soak.incidents if every else soak.incidents[:_SOAK_SHOWN]:
        cost = format_duration(one.lost_s) if one.lost_s > 0 else ""
        grid.add(
            one.at[:19].replace("T", " "), clock(one.since_s), one.subject, _what(one), cost, one.id
        )
    return grid


def _what(incident: Incident) -> str:
    return f"{incident.title}; {incident.saw}" if incident.id == "SOAK-001" else incident.title


def _operations(soak: Soak) -> Grid:
    grid = Grid.of("<operation|<type|size|calls|wrong|median|p99|slowest|<last")
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
            color="red" if one.wrong else "",
            at=4,
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
