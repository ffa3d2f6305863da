"""Prometheus text exposition 0.0.4, for node_exporter's textfile collector and for an endpoint.

The names and the format follow prometheus.io/docs/instrumenting/exposition_formats and
prometheus.io/docs/practices/naming: base units, the unit in the name, HELP and TYPE for each family. A
run tells the state of today, so everything is a gauge without a timestamp. What grows without bound,
as ids of runs and words of findings do, is no label, except the run's id in `wirespeed_run_info`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from wirespeed.records import Run
from wirespeed.views.metric_family import Family, Sample
from wirespeed.views.metrics import RUN_METRICS
from wirespeed.views.metrics_lasting import LASTING_METRICS
from wirespeed.views.style import Style

__all__ = ["FAMILIES", "MOST_SERIES", "newest_of_each", "render", "render_all"]

FAMILIES: tuple[Family, ...] = (*RUN_METRICS, *LASTING_METRICS)
"""Every metric, in the order in which they are written; docs/report.md lists them."""

MOST_SERIES = 2000
"""Of one family in one run; what is more is counted in `wirespeed_series_left_out`."""
_LONGEST = 200
"""Characters of a label's value."""
_LEFT_OUT = "wirespeed_series_left_out"


def render(run: Run, style: Style) -> str:
    """One run."""
    return render_all([run], style)


def render_all(runs: Sequence[Run], _: Style) -> str:
    """Several runs of different commands; of one command the newest is told."""
    told = newest_of_each(runs)
    lines: list[str] = []
    left: list[tuple[str, str, int]] = []
    for family in FAMILIES:
        found = [(run, _bounded(family, run)) for run in told]
        left += [(run.command, family.name, more) for run, (_, more) in found]
        lines += _lines(family, [(run, samples) for run, (samples, _) in found])
    lines += _head(_LEFT_OUT, "Series of a metric that are not told, because there are too many.")
    for command, name, more in left:
        if more:
            lines.append(_line(_LEFT_OUT, {"command": command, "metric": name}, more))
    return "\n".join(lines) + "\n"


def newest_of_each(runs: Iterable[Run]) -> list[Run]:
    """Of each command the run that started last: a label for the run would grow without bound."""
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.started):
        found[run.command] = run
    return list(found.values())


def _bounded(family: Family, run: Run) -> tuple[list[Sample], int]:
    """(the samples that are numbers, each set of labels once; how many there are too many)."""
    found: dict[tuple[str, ...], Sample] = {}
    for labels, value in family.samples(run):
        if math.isfinite(value):
            found.setdefault(tuple(_text(one) for one in labels.values()), (labels, value))
    kept = list(found.values())[:MOST_SERIES]
    return kept, len(found) - len(kept)


def _lines(family: Family, found: Sequence[tuple[Run, Sequence[Sample]]]) -> list[str]:
    lines = [
        _line(family.name, {"command": run.command, **labels}, value)
        for run, samples in found
        for labels, value in samples
    ]
    return [*_head(family.name, family.help), *lines] if lines else []


def _head(name: str, help: str) -> list[str]:
    escaped = help.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {escaped}", f"# TYPE {name} gauge"]


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{key}="{_text(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}"


def _text(value: object) -> str:
    """A label's value: one line, bounded, and escaped as the format asks."""
    clean = Style().text(value)[:_LONGEST]
    return clean.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
