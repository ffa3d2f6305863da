"""Training that lasted: where its time went, what it came to, and every restart."""

import textwrap
from collections.abc import Sequence

from wirespeed.records import Run
from wirespeed.records_lasting import Goodput, Incident
from wirespeed.units import format_duration
from wirespeed.views.grid import Column, Grid
from wirespeed.views.sections import note
from wirespeed.views.style import Style

__all__ = ["conclusion", "goodput_lines", "goodput_notes", "parts_shown", "resume_hint", "tables"]

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
    *("steps", "made again", "step", "95 %", "n", "steps/s", "without pauses", "tokens/s"),
    *("loss", "checkpoints", "each", "failed"),
)
_BAR, _SHOWN = 30, 20
_COLORS = {"useful": "green", "lost": "red", "down": "red"}
_MANY_H = 3600.0
_DAY_S = 24 * _MANY_H


def goodput_lines(run: Run, style: Style) -> list[str]:
    """Nothing for other runs."""
    if run.goodput is None:
        return []
    lines: list[str] = []
    for title, grid in tables(run, bar="#" if style.ascii else "█"):
        lines += [style.paint(style.text(title), "bold"), *grid.lines(style, indent="  "), ""]
    for line in conclusion(run.goodput):
        lines += textwrap.wrap(style.text(line), style.width)
    lines += ["", *(line for text in goodput_notes(run.goodput) for line in note(text, style))]
    return lines


def tables(run: Run, bar: str = "") -> list[tuple[str, Grid]]:
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
    restarts = _count(one.restarts, "restart")
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
        f"to go on from step {one.last_step:,} or the newest checkpoint: the same command with "
        f"--checkpoint-dir {one.folder} --resume"
    )


def _title(one: Goodput) -> str:
    ranks = _count(one.ranks, "rank")
    return f"where {_long(one.wall_s)} went · {one.model} · {one.strategy} · {ranks}"


def _parts(one: Goodput, bar: str) -> Grid:
    grid = Grid(
        (
            Column("cause", left=True),
            Column("time"),
            Column("share"),
            Column("", left=True),
            Column("what it is", left=True),
        )
    )
    for name, seconds in parts_shown(one):
        share = seconds / one.wall_s if one.wall_s > 0 else 0.0
        drawn = bar * round(share * _BAR)
        grid.add(name, _long(seconds), _percent(share), drawn, _WHAT[name])
        if color := _COLORS.get(name):
            grid.painted[len(grid.rows) - 1, 3] = color
    return grid


def _trained(one: Goodput) -> Grid:
    grid = Grid(tuple(Column(title) for title in _TRAINED))
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
        _number(one.steps / wall),
        _number(ideal),
        _number(tokens) if tokens else "",
        f"{one.loss:.4g}" if one.loss is not None else "",
        str(one.checkpoints),
        format_duration(one.checkpoint_s) if one.checkpoints else "",
        str(one.checkpoints_failed or ""),
    )
    return grid


def _incidents(incidents: Sequence[Incident]) -> Grid:
    titles = ("after", "about", "what", "saw", "cost")
    grid = Grid(tuple(Column(title, left=title not in ("after", "cost")) for title in titles))
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %").replace("-", "−")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
