"""The sections of a training run's page: strategies, timeline, scaling, memory, side by side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wirespeed.model.records import Run
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.model.units import format_duration
from wirespeed.views.html.parts import Section, Spot, chart, filled, study
from wirespeed.views.html.timeline import timeline_svg
from wirespeed.views.html.training_charts import memory_chart, scaling_chart, step_chart
from wirespeed.views.text import Grid, Style
from wirespeed.views.training import name, tables, training_notes

if TYPE_CHECKING:
    pass


_UNWRAPPED = Style(width=100_000)


def training_sections(run: Run, trace: Mapping[str, Any] | None, spot: Spot) -> Iterator[Section]:
    """In the order of the page; those that have nothing to say are empty."""
    yield Section(spot.id("strategies"), "Strategies", _strategies(run, spot))
    yield Section(spot.id("timeline"), "Timeline of a step", _timeline(trace, spot))
    yield Section(spot.id("scaling"), "Scaling", _scaling(run, spot))
    yield Section(spot.id("memory"), "Memory", _memory(run, spot))
    yield Section(spot.id("load"), "Computing beside sending", _load(run, spot))


def _strategies(run: Run, spot: Spot) -> str:
    rows = [one for one in run.training if one.study == "compare"]
    if not rows or run.grid:
        return ""
    bars = chart(
        spot,
        "steps",
        "Step time by strategy",
        step_chart(rows),
        "A bar is the mean step of the slowest rank, by part; the whisker is the 95 % interval of "
        "the mean (a wide one leaves the chart). The thin bar marks exposed communication: what the "
        "step takes beyond the same step without synchronisation (median of the rounds).",
    )
    return study(
        spot,
        "strategies",
        "Which strategy is fastest",
        _tables(run, rows),
        label="steps",
        said=_fastest(rows),
        charts=[bars],
        notes=training_notes(replace(run, training=tuple(rows)), _UNWRAPPED),
    )


def _fastest(rows: Sequence[Training]) -> str:
    """One sentence for who reads no chart; empty where nobody won."""
    first = next((one for one in rows if one.verdict.startswith("fastest")), None)
    if first is None:
        return ""
    words = f"{name(first)} is {first.verdict}: {format_duration(first.step.mean)} a step"
    rate = first.samples_per_s
    words += f", {f'{rate:,.0f}' if rate >= 100 else f'{rate:.3g}'} samples a second."
    equal = [name(one) for one in rows if one.verdict == "same"]
    words += f" No difference was found to {_listed(equal)}." if equal else ""
    open_ = [name(one) for one in rows if one.verdict == "not enough rounds"]
    return words + (f" It takes more rounds to tell for {_listed(open_)}." if open_ else "")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _timeline(trace: Mapping[str, Any] | None, spot: Spot) -> str:
    from markupsafe import Markup

    # Every foreign word in it is escaped where it is made.
    picture = Markup(timeline_svg(trace, spot.at)) if trace is not None else ""
    return filled("timeline.html", spot=spot, picture=picture) if picture else ""


def _scaling(run: Run, spot: Spot) -> str:
    rows = [one for one in run.training if one.study != "compare" and one.verdict != "yardstick"]
    if not rows:
        return ""
    drawn = scaling_chart(rows)
    note = "Throughput over ranks times that of the smallest world; whiskers are 95 % intervals. "
    note += "strong: the same batch on any number of ranks; weak: the same batch a rank."
    charts = [chart(spot, "scaling", "Scaling efficiency", drawn, note)] if drawn else []
    return study(spot, "scaling", "How it scales", _tables(run, rows), charts=charts)


def _memory(run: Run, spot: Spot) -> str:
    measured = [(one, one.memory) for one in run.training if one.memory is not None]
    if not measured:
        return ""
    found = [one for one in tables(replace(run, under_load=())) if one[0].startswith("memory ")]
    titles = [cells[0] for cells in found[0][1].rows]
    rows = [
        (title, memory, one.memory_predicted)
        for title, (one, memory) in zip(titles, measured, strict=True)
    ]
    note = "Each kind at its largest; the line is the most that was live at once in a step"
    note += ", the diamond what was predicted." if any(row[2] for row in rows) else "."
    return study(
        spot,
        "memory",
        "Where the memory goes",
        found,
        charts=[
            chart(spot, "memory", "Memory of the rank that needs most", memory_chart(rows), note)
        ],
    )


def _load(run: Run, spot: Spot) -> str:
    if not run.under_load:
        return ""
    return study(
        spot,
        "load",
        "Computing beside sending",
        tables(replace(run, training=())),
        said=_costliest(run.under_load),
    )


def _costliest(figures: Iterable[LoadFigures]) -> str:
    """What certainly suffers most; empty where nothing certainly does."""
    slow = [one for one in figures if one.ratio.low > 1]
    if not slow:
        return ""
    worst = max(slow, key=lambda one: one.ratio.value)
    ratio = worst.ratio
    return (
        f"{worst.name} takes {ratio.value:.2f} times as long beside {worst.beside} as alone "
        f"(95 %: {ratio.low:.2f} to {ratio.high:.2f})."
    )


def _tables(run: Run, rows: Iterable[Training]) -> list[tuple[str, Grid]]:
    """Those of these rows, without that of memory, which has a section of its own."""
    kept = tuple(replace(one, memory=None) for one in rows)
    return tables(replace(run, training=kept, under_load=()))
