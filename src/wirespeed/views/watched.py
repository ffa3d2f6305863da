"""What was seen of the user's own job, as sentences and tables: `launch --watch` and `watch`."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.model.records import Run
from wirespeed.model.units import format_duration, format_size
from wirespeed.model.watch_records import Gain, StepChange, Traffic, Watched, WatchWindow
from wirespeed.statistics import lacks_samples
from wirespeed.views.sections import no_interval, note
from wirespeed.views.text import NOTHING, Grid, Style, counted, titled

PARTS = {
    "data": "in the data loader",
    "forward": "from the batch to the loss",
    "backward": "gradients, without what waits",
    "optimizer": "in the optimizer's step",
    "blocked": "in communication, with nothing else to do",
    "checkpoint": "writing a checkpoint",
    "gc": "in Python's garbage collector",
    "other": "what nothing above explains",
}
_BAR, _SHOWN, _MOST_GAINS = 20, 20, 3
_BOUNDARIES = {
    "optimizer": "the optimizer's step",
    "step()": "the job's own call of step()",
    "annotation": "its annotation in the trace",
}
_WARN = {"blocked": "yellow"}
_LATE = 0.05
"""Of a step: a rank that is later than this at its own work is shown in colour."""


@dataclass(frozen=True, slots=True)
class RankMeans:
    """Of one rank over all windows: seconds of a step; None: not known."""

    rank: int
    host: str
    own: float | None
    blocked: float | None
    data: float | None
    late: float | None
    """Its own work against that of the median rank."""

    @property
    def name(self) -> str:
        return rank_name(self.rank, self.host)


def rank_name(rank: int, host: str) -> str:
    """`rank 2 on node-1`."""
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def host_of(watched: Watched, rank: int) -> str:
    return watched.hosts[rank] if 0 <= rank < len(watched.hosts) else ""


def lateness(window: WatchWindow) -> list[float | None]:
    """By rank: its own work of a step against that of the median rank, seconds."""
    told = [one for one in window.own if one >= 0]
    middle = median(told) if told else 0.0
    return [one - middle if one >= 0 else None for one in window.own]


def ranks_of(watched: Watched) -> list[RankMeans]:
    """Every rank that a window tells of, in order; empty in worlds too large for that."""
    owns = _means(watched, lambda one: one.own)
    blocked, data = _means(watched, lambda one: one.blocked), _means(watched, lambda one: one.data)
    told = [own for own in owns if own is not None]
    middle = median(told) if told else 0.0
    return [
        RankMeans(
            rank,
            host_of(watched, rank),
            own,
            blocked[rank] if rank < len(blocked) else None,
            data[rank] if rank < len(data) else None,
            None if own is None else own - middle,
        )
        for rank, own in enumerate(owns)
    ]


def _means(watched: Watched, of: Callable[[WatchWindow], Sequence[float]]) -> list[float | None]:
    """By rank the mean over the windows that know it."""
    size = max((len(of(one)) for one in watched.windows), default=0)
    sums, counts = [0.0] * size, [0] * size
    for one in watched.windows:
        steps = one.steps
        for rank, value in enumerate(of(one)):
            if value >= 0:
                sums[rank] += value * steps
                counts[rank] += steps
    return [whole / count if count else None for whole, count in zip(sums, counts, strict=True)]


def latest(ranks: Sequence[RankMeans], most: int) -> list[RankMeans]:
    """Those that are later than the others at their own work, the latest first."""
    told = [one for one in ranks if one.late is not None]
    return sorted(told, key=lambda one: -(one.late or 0.0))[:most]


def watched_lines(run: Run, style: Style, *, wide: bool = False) -> list[str]:
    """Sentences, tables, what could not be seen; nothing for other runs. wide: also by rank and time."""
    if run.watched is None:
        return []
    lines = [
        line
        for text in conclusion(run.watched)
        for line in textwrap.wrap(style.text(text), style.width)
    ]
    found = watched_tables(run.watched, bar="#" if style.ascii else "█", wide=wide)
    lines += ["", *titled(found, style)]
    for text in unseen(run.watched):
        lines += note(text, style)
    return lines if lines[-1] else lines[:-1]


def conclusion(watched: Watched) -> list[str]:
    """How much was seen, how long a step is, how much of it communication costs, who was last."""
    lines = [_seen(watched)]
    if not watched.steps:
        return lines
    step = f"a step takes {format_duration(watched.step)}"
    step += _ends(format_duration, watched.step_low, watched.step_high, watched.samples)
    if watched.exposed_known:
        step += f"; ranks wait in communication for {percent(watched.exposed)} of it"
        step += _ends(percent, watched.exposed_low, watched.exposed_high, watched.samples)
    lines.append(step)
    if watched.last_rank >= 0:
        name = rank_name(watched.last_rank, host_of(watched, watched.last_rank))
        lines.append(f"last most often: {name}, in {percent(watched.last_share)} of the steps")
    if watched.gains:
        gains = [_gain(one, watched.samples) for one in watched.gains[:_MOST_GAINS]]
        lines.append(f"would bring most: {'; '.join(gains)}")
    return lines


def _seen(watched: Watched) -> str:
    hosts = len({one for one in watched.hosts if one})
    ranks = counted(watched.ranks, "rank", ",")
    if watched.ranks < watched.world_size:
        ranks = f"{watched.ranks:,} of {counted(watched.world_size, 'rank', ',')}"
    ranks += f" on {counted(hosts, 'host', ',')}" if hosts else ""
    seen = f"watched {counted(watched.steps, 'step', ',')} of {ranks}"
    if watched.boundary and watched.steps:
        seen += f"; a step ends with {_BOUNDARIES.get(watched.boundary, watched.boundary)}"
    return seen + (f"; started {watched.launches} times" if watched.launches > 1 else "")


def _gain(one: Gain, samples: int) -> str:
    ends = _ends(percent, one.low, one.high, samples)
    return f"{one.what}, {percent(one.share)} of a step{ends} {one.finding}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ends(told: Callable[[float], str], low: float, high: float, samples: int) -> str:
    """Return ` (95 %: 30.1 ms … 33.0 ms)`, or ` (n=2, no interval)`."""
    if lacks_samples(samples):
        return f" ({no_interval(samples)})"
    return f" (95 %: {told(low)} … {told(high)})" if low < high else ""


def unseen(watched: Watched) -> list[str]:
    return [f"not seen: {one}" for one in watched.unseen]


def watched_tables(
    watched: Watched, *, bar: str = "", wide: bool = False
) -> list[tuple[str, Grid]]:
    """(title, grid) of what is known. bar: drawn if given; wide: each window, rank, collective."""
    found = [
        ("where a step goes (median over ranks)", parts_grid(watched, bar)),
        ("what changed", changes_grid(watched.changes)),
        traffic_table(watched, every=wide),
    ]
    if wide:
        found += [
            ("by steps", windows_grid(watched)),
            ("by rank", ranks_grid(watched, ranks_of(watched))),
        ]
    return [(title, grid) for title, grid in found if grid.rows]


def parts_grid(watched: Watched, bar: str = "") -> Grid:
    names = [*PARTS, *(name for name in watched.parts_ms if name not in PARTS)]
    grid = Grid.of("<part|time|of step|<|<what it is")
    # Parts are means: where some steps take far longer their sum is more than the usual step.
    whole = max(watched.step, sum(watched.parts_ms.values()) / 1e3)
    for name in (name for name in names if watched.parts_ms.get(name, 0.0) > 0):
        seconds = watched.parts_ms[name] / 1e3
        share = seconds / whole
        drawn = bar * round(share * _BAR)
        cells = (format_duration(seconds), percent(share), drawn, PARTS.get(name, ""))
        grid.add(name, *cells, color=_WARN.get(name, ""), at=3)
    return grid


def changes_grid(changes: Sequence[StepChange]) -> Grid:
    grid = Grid.of("from step|<95 %|<about|step before|after|times")
    for one in changes:
        worse = one.after > one.before
        times = f"{one.after / one.before:.2f}×" if one.before > 0 else NOTHING
        grid.add(
            f"{one.step:,}",
            steps_text(one.low_step, one.high_step),
            one.subject,
            format_duration(one.before),
            format_duration(one.after),
            times,
            color="red" if worse else "green",
        )
    return grid


def traffic_table(watched: Watched, *, every: bool) -> tuple[str, Grid]:
    """What costs most first."""
    rows = sorted(watched.traffic, key=lambda one: (-(one.exposed or 0.0), -one.bytes_per_step))
    shown = rows if every else rows[:_SHOWN]
    more = len(rows) - len(shown)
    title = "communication of a step (mean over the sampled steps)"
    title += f": the first {_SHOWN}, {more} more in the JSON" if more else ""
    return title, traffic_grid(shown, watched.step)


def traffic_grid(traffic: Sequence[Traffic], step: float) -> Grid:
    grid = Grid.of("<group|ranks|<op|calls|handed in|exposed|of step")
    for one in traffic:
        known = one.exposed is not None
        grid.add(
            one.group,
            f"{one.ranks:,}" if one.ranks else NOTHING,
            one.op,
            f"{one.calls:,.4g}",
            format_size(round(one.bytes_per_step)),
            format_duration(one.exposed or 0.0) if known else NOTHING,
            percent((one.exposed or 0.0) / step) if known and step > 0 else NOTHING,
        )
    return grid


def span(window: WatchWindow) -> str:
    return steps_text(window.first_step, window.first_step + window.steps - 1)


def steps_text(first: int, last: int) -> str:
    """`50 … 59`; `50`."""
    return f"{first:,}" + (f" … {last:,}" if last > first else "")


def windows_grid(watched: Watched) -> Grid:
    """The steps in order of time; latest: the rank that its own work took longest beside the median."""
    grid = Grid.of("<steps|since|step|<latest at its own work|by")
    for one in watched.windows:
        late = [(value, rank) for rank, value in enumerate(lateness(one)) if value is not None]
        by, rank = max(late, default=(0.0, -1))
        who = rank_name(rank, host_of(watched, rank)) if by > 0 else ""
        cells = (span(one), _time(one.since_s), format_duration(one.step), who)
        grid.add(*cells, f"+{format_duration(by)}" if who else "", color=_late_color(by, one.step))
    return grid


def ranks_grid(watched: Watched, ranks: Sequence[RankMeans]) -> Grid:
    """Means over the windows, of these ranks."""
    grid = Grid.of("rank|<host|own work|against the median|blocked|data")
    for one in ranks:
        grid.add(
            str(one.rank),
            one.host,
            _cell(one.own),
            signed(one.late),
            _cell(one.blocked),
            _cell(one.data),
            color=_late_color(one.late or 0.0, watched.step),
            at=3,
        )
    return grid


def _cell(seconds: float | None) -> str:
    return NOTHING if seconds is None else _time(seconds)


def _time(seconds: float) -> str:
    return format_duration(seconds) if seconds else "0 s"


def signed(seconds: float | None) -> str:
    """`+29.1 ms`."""
    if seconds is None:
        return NOTHING
    return f"{'−' if seconds < 0 else '+'}{format_duration(abs(seconds))}"


def _late_color(late: float, step: float) -> str:
    return "red" if late > _LATE * step > 0 else ""
