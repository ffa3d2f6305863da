"""Runs of several combinations: grids of worlds, and settings compared (`bench --env`)."""

from collections.abc import Sequence
from math import ceil
from shlex import quote

from wirespeed.model.bench_records import DEFAULT, Setting, SettingFigures
from wirespeed.model.records import Measurement, Run
from wirespeed.model.training_records import Ratio
from wirespeed.model.units import format_duration, format_size
from wirespeed.statistics import has_interval
from wirespeed.views.sections import SIZE_COLUMNS, no_interval, note, size_cells
from wirespeed.views.text import NOTHING, Grid, Style, counted, shortened, titled
from wirespeed.views.training import ALL, grid_table, missing


def grid_lines(run: Run, style: Style) -> list[str]:
    """The joint table with its title; nothing for other runs."""
    return titled(grid_tables(run), style)[:-1]


def grid_tables(run: Run) -> list[tuple[str, Grid]]:
    """(title, grid): one table."""
    if not run.grid:
        return []
    if run.command == "train":
        return [grid_table(run)]
    return [(f"grid of {len(run.grid)} worlds", _operations(run))]


def _operations(run: Run) -> Grid:
    grid = Grid.of(f"<operation|<backend|ranks|{SIZE_COLUMNS}|<why not")
    both = len({m.in_place for m in run.measurements}) > 1
    for point in run.grid:
        rows = [m for m in run.measurements if (m.backend, m.ranks) == (point.backend, point.ranks)]
        order = list(dict.fromkeys(map(_what, rows)))
        for m in sorted(rows, key=lambda m: (order.index(_what(m)), m.size_bytes, m.in_place)):
            size, place, *cells = size_cells(m)
            about = (_what(m), point.backend, str(point.ranks), size if m.size_bytes else NOTHING)
            color = "red" if m.wrong else ""
            grid.add(*about, place if both else "", *cells, "", color=color, at=10)
        for one in missing(point):
            size = format_size(one.size_bytes) if one.size_bytes else ALL
            gap = [NOTHING] * 6
            what = (one.what, point.backend, str(point.ranks), size, "")
            grid.add(*what, *gap, one.reason, color="yellow")
    return grid


def _what(m: Measurement) -> str:
    return " ".join([m.op, m.dtype, *([m.redop] if m.redop != "none" else [])])


_COLORS = {
    "faster": "green",
    "slower": "red",
    "failed": "red",
    "mixed": "yellow",
    "not enough rounds": "yellow",
}
_LONGEST = 60
"""Characters of a reason; SET-001 tells all of it."""
_NOTE = (
    "time: median over the rounds of the slowest rank's median; against the default: time over the "
    "default's, paired by round, with its 95 % interval corrected for all comparisons; same: all of "
    "it within ±5 % (docs/settings.md)"
)
_NEAR = 0.05
"""As near to the default as `same` asks for."""
_MANY = 200
_QUIETER = (
    "the rounds differ so much that a quieter machine, or a longer --time-per-size, does more"
)


def settings_lines(run: Run, style: Style) -> list[str]:
    """Every table with its title, then who wins; nothing for other runs."""
    if not run.settings:
        return []
    winner = [style.text(line) for line in winner_lines(run)]
    return [*titled(settings_tables(run), style), *winner, "", *_notes(run, style)]


def settings_tables(run: Run) -> list[tuple[str, Grid]]:
    """(title, grid): the combinations, then each case where there are several."""
    if not run.settings:
        return []
    cases = list(dict.fromkeys(f.case for one in run.settings for f in one.figures))
    found = [(_title(run, cases), _combinations(run.settings, cases))]
    if len(cases) > 1:
        found += [(case, _case(run.settings, case)) for case in cases]
    return found


def winner_lines(run: Run) -> list[str]:
    """The environment to set and what it wins; or that nothing wins."""
    winner = next((one for one in run.settings if one.winner), None)
    if winner is None or winner.ratio is None:
        return [_no_winner(run.settings)] if run.settings else []
    r = winner.ratio
    lines = [
        f"winner: {_faster(r)} than the default over {len(winner.rounds)} rounds; to set it:",
        *(f"  export {name}={quote(value)}" for name, value in winner.values.items()),
        *(f"  unset {name}" for name in winner.unset),
    ]
    others = [one for one in run.settings if one.verdict == "faster" and not one.winner]
    if others:
        lines.append(f"also faster than the default, and not compared with it: {_names(others)}")
    return lines


def _no_winner(settings: Sequence[Setting]) -> str:
    open_ones = [one for one in settings if one.verdict == "not enough rounds"]
    mixed = [one for one in settings if one.verdict in ("mixed", "faster")]
    text = "no winner: keep the default"
    if mixed:
        text += f"; faster in one case and slower in another: {_names(mixed)}"
    if open_ones:
        text += f"; not decided: {_names(open_ones)}"
    return text


def _names(settings: Sequence[Setting]) -> str:
    shown = ", ".join(one.name for one in settings[:3])
    return shown + (f" and {len(settings) - 3} more" if len(settings) > 3 else "")


def _faster(ratio: Ratio) -> str:
    """`1.25× (1.20 … 1.31) faster`: the default's time over this one's."""
    value, low, high = (1 / max(part, 1e-9) for part in (ratio.value, ratio.high, ratio.low))
    return f"{value:.2f}× ({low:.2f} … {high:.2f}) faster"


def _title(run: Run, cases: Sequence[str]) -> str:
    rounds = max(len(one.rounds) for one in run.settings)
    what = cases[0] if len(cases) == 1 else f"{len(cases)} cases" if cases else "nothing"
    return f"settings · {what} · {counted(rounds, 'round')}"


def _combinations(settings: Sequence[Setting], cases: Sequence[str]) -> Grid:
    """With one case also its time; with several the ratio is that of the whole."""
    alone = len(cases) == 1
    title = "against the default" if alone else "all cases against the default"
    grid = Grid.of(f"<setting|time|<95 %|rounds|<{title}|<why")
    for one in settings:
        figures = one.figures[0] if alone and one.figures else None
        ratio = figures.ratio if figures else one.ratio
        verdict = figures.verdict if figures and one.verdict != DEFAULT else one.verdict
        grid.add(
            one.name,
            format_duration(figures.median) if figures else "",
            _reach(figures) if figures else "",
            str(len(one.rounds) or ""),
            _against(ratio, verdict, len(one.rounds)),
            shortened(one.reason, _LONGEST),
            color=_COLORS.get(verdict, ""),
            at=4,
        )
    return grid


def _case(settings: Sequence[Setting], case: str) -> Grid:
    grid = Grid.of("<setting|time|<95 %|rounds|<against the default")
    for one in settings:
        figures = next((f for f in one.figures if f.case == case), None)
        if figures is None:
            continue
        verdict = figures.verdict or one.verdict
        cells = (format_duration(figures.median), _reach(figures), str(len(figures.round_times)))
        color = _COLORS.get(verdict, "")
        grid.add(
            one.name,
            *cells,
            _against(figures.ratio, verdict, len(figures.round_times)),
            color=color,
        )
    return grid


def _reach(figures: SettingFigures) -> str:
    """Return `2.81 ms … 2.99 ms`, or `2 rounds, no interval`."""
    if not has_interval(len(figures.round_times)):
        return no_interval(len(figures.round_times), "round")
    if not figures.low < figures.high:
        return ""
    return f"{format_duration(figures.low)} … {format_duration(figures.high)}"


def _against(ratio: Ratio | None, verdict: str, rounds: int) -> str:
    if ratio is None:
        return verdict
    if not has_interval(rounds):
        return f"{ratio.value:.2f}×  {verdict}" if rounds else verdict
    if not ratio.low < ratio.high:
        return verdict
    return f"{ratio.value:.2f}× ({ratio.low:.2f} … {ratio.high:.2f})  {verdict}"


def _notes(run: Run, style: Style) -> list[str]:
    lines = note(_NOTE, style)
    open_ones = [one for one in run.settings if one.verdict == "not enough rounds"]
    if open_ones:
        rounds = max(map(_deciding_rounds, open_ones))
        advice = f"about --rounds {rounds} may do" if rounds <= _MANY else _QUIETER
        lines += note(f"not enough rounds: the figures decide neither way; {advice}", style)
    return lines


def _deciding_rounds(one: Setting) -> int:
    """With which the interval would reach from the figure to 1, or to the bound of `same`.

    An interval shrinks with the square root of the rounds; where these are too few to tell its width,
    the fewest that tell it.
    """
    rounds, ratio = len(one.rounds), one.ratio
    if ratio is None or rounds < one.needed:
        return one.needed
    reach = max(ratio.high - ratio.value, ratio.value - ratio.low)
    share = reach / max(_NEAR, abs(ratio.value - 1))
    return max(rounds + 1, ceil(round(rounds * share**2, 6)))
