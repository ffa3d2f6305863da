"""What a prediction looks like: a table for terminals, Markdown, JSON; pure functions of the record."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from wirespeed.model.derived_records import (
    BestStep,
    Estimate,
    FittedModel,
    Gain,
    Prediction,
    ReplayTime,
    StepTime,
    Stretch,
    WorldSize,
)
from wirespeed.model.units import GIGA, format_bandwidth, format_duration, format_size
from wirespeed.views.sections import gigabytes
from wirespeed.views.text import Grid, Style, Views, escape, rendered, titled

SCHEMA = "wirespeed.prediction/1"
_MOST_ROWS = 4
"""Steps shown by world in the table: the quickest; JSON has all."""
Section = tuple[str, Grid]


def render(prediction: Prediction, format: str, style: Style) -> str:
    """Text, ending in a line end; UsageError for an unknown format."""
    return rendered(prediction, format, style, _VIEWS)


def _table(prediction: Prediction, style: Style) -> str:
    lines = titled(sections(prediction), style)
    for text in sentences(prediction):
        lines += _wrapped(text, style, "")
    for refusal in prediction.refusals:
        lines += _wrapped(f"not predicted: {refusal.what}: {refusal.because}", style, "  ")
        if refusal.helps:
            lines.append(f"  next: {style.paint(style.text(refusal.helps), 'cyan')}")
    for text in prediction.notes:
        lines += [style.paint(line, "dim") for line in _wrapped(text, style, "")]
    return "\n".join(lines).rstrip("\n") + "\n"


def _markdown(prediction: Prediction, style: Style) -> str:
    plain = Style(ascii=style.ascii)
    blocks = [
        "\n".join([f"### {escape(title, plain)}", "", *grid.markdown(plain)])
        for title, grid in sections(prediction)
    ]
    items = [*sentences(prediction), *prediction.notes]
    items += [
        f"not predicted: {one.what}: {one.because}" + (f"; next: {one.helps}" if one.helps else "")
        for one in prediction.refusals
    ]
    blocks += ["\n".join(f"- {escape(text, plain)}" for text in items)] if items else []
    return "\n\n".join(blocks) + "\n"


def sections(prediction: Prediction, *, every: bool = False) -> Iterable[Section]:
    """(title, grid). every: all steps of a world, not just the quickest."""
    parts = (
        ("Fitted", _models(prediction.models)),
        ("Collectives", _collectives(prediction)),
        ("Training steps", _steps(prediction.steps, None if every else _MOST_ROWS)),
        ("Replayed steps", _replays(prediction.replays)),
        ("Improvements", _gains(prediction.gains)),
    )
    return [(title, grid) for title, grid in parts if grid.rows]


def _models(models: Sequence[FittedModel]) -> Grid:
    grid = Grid.of(
        "<collective|<measured as|<shape|weight|<terms|<worlds|sizes|n|left out: error|p90"
    )
    for one in models:
        grid.add(
            one.op,
            one.how,
            one.shape,
            f"{one.weight:.0%}",
            _terms(one.terms),
            ", ".join(world_name(world) for world in one.worlds),
            f"{format_size(one.smallest)} … {format_size(one.largest)}",
            str(one.points),
            _percent(one.error),
            _percent(one.error_p90),
        )
    return grid


def _terms(terms: dict[str, float]) -> str:
    """What matters of them: `a step between nodes 41 µs, a byte between nodes 24 ns`-like rates."""
    parts = []
    for name, value in terms.items():
        if "byte" in name:
            if 1e-15 < value < 1e-3:
                parts.append(f"{format_bandwidth(1 / value)} ({name})")
        elif value >= 1e-7:
            parts.append(f"{format_duration(value)} {name}")
    return ", ".join(parts)


def _collectives(prediction: Prediction) -> Grid:
    grid = Grid.of(
        "<collective|nodes × ranks|size|time|95 %|busbw GB/s|95 % GB/s|n|measured|<beyond"
    )
    for one in prediction.collectives:
        grid.add(
            one.op,
            world_name(one.world),
            format_size(one.size_bytes),
            format_duration(one.time.value),
            between(one.time),
            gigabytes(one.busbw.value),
            f"{gigabytes(one.busbw.low)} … {gigabytes(one.busbw.high)}",
            str(one.points),
            "" if one.measured is None else format_duration(one.measured),
            one.beyond,
        )
    return grid


def _steps(steps: Sequence[StepTime], most: int | None) -> Grid:
    grid = Grid.of("nodes × ranks|<strategy|bucket|step|95 %|efficiency|95 % eff.|quickest in|n")
    for world in dict.fromkeys(one.world for one in steps):
        rows = sorted((one for one in steps if one.world == world), key=lambda one: one.step.value)
        for one in rows[:most]:
            grid.add(
                world_name(world),
                one.strategy,
                "" if one.bucket_mb is None else f"{one.bucket_mb:g} MB",
                format_duration(one.step.value),
                between(one.step),
                f"{one.efficiency.value:.0%}",
                f"{one.efficiency.low:.0%} … {one.efficiency.high:.0%}",
                f"{one.first:.0%}",
                str(one.samples),
            )
    return grid


def _replays(replays: Sequence[ReplayTime]) -> Grid:
    grid = Grid.of("<of run|nodes × ranks|its collectives|95 %|as measured|with its own work|95 %")
    for one in replays:
        calls, step = format_duration(one.calls.value), format_duration(one.step.value)
        times = f"{one.calls.value / one.here:.2f} ×"
        grid.add(
            one.run,
            world_name(one.world),
            calls,
            between(one.calls),
            times,
            step,
            between(one.step),
        )
    return grid


def _gains(gains: Sequence[Gain]) -> Grid:
    grid = Grid.of("<improvement|<of|nodes × ranks|now|then|quicker|95 %")
    for one in gains:
        grid.add(
            one.name,
            _sized(one.what),
            world_name(one.world),
            format_duration(one.before.value),
            format_duration(one.after.value),
            f"{one.ratio.value:.2f} ×",
            f"{one.ratio.low:.2f} … {one.ratio.high:.2f}",
        )
    return grid


def _sized(what: str) -> str:
    """`all_reduce 1048576` with its size as people read it."""
    op, _, size = what.rpartition(" ")
    return f"{op} {format_size(int(size))}" if size.isdecimal() else what


def sentences(prediction: Prediction) -> list[str]:
    sources = "; ".join(f"run {one.id}: {one.what}" for one in prediction.sources)
    return [
        *(_best(one) for one in prediction.best),
        *(_stretch(one) for one in prediction.stretches),
        *dict.fromkeys(f"{one.name} assumes: {one.assumes}" for one in prediction.gains),
        *([f"from {sources}"] if sources else []),
        *_others(prediction.models),
    ]


def _best(one: BestStep) -> str:
    bucket = "" if one.bucket_mb is None else f" {one.bucket_mb:g} MB"
    head = f"best on {world_name(one.world)}: {one.strategy}{bucket}"
    if one.settled:
        buckets = ", whatever its bucket" if one.bucket_mb is not None else ""
        return f"{head}; {one.strategy} is quickest in at least 95 % of the forecasts{buckets}"
    rivals = f"; {', '.join(one.rivals)} may be as quick" if one.rivals else ""
    return f"{head}, not settled{rivals}"


def _stretch(one: Stretch) -> str:
    head = f"{one.strategy}: efficiency below {one.bound:.0%}"
    if one.nodes is None:
        maybe = f" (may be from {one.low} on)" if one.low is not None else ""
        return f"{head} on none of the worlds up to {one.looked} nodes{maybe}"
    low = one.low if one.low is not None else one.nodes
    high = f"{one.high}" if one.high is not None else f"beyond {one.looked}"
    return f"{head} from {one.nodes} nodes on (95 %: {low} … {high})"


def _others(models: Sequence[FittedModel]) -> list[str]:
    told = [f"{one.op}: {'; '.join(one.others)}" for one in models if one.others]
    return [f"shapes that fit about as well and count, too: {', '.join(told)}"] if told else []


def world_name(world: WorldSize) -> str:
    """Nodes by ranks of each."""
    return f"{world.nodes} × {world.ranks_per_node}"


def between(one: Estimate) -> str:
    return f"{format_duration(one.low)} … {format_duration(one.high)}"


def _percent(log_error: float) -> str:
    return f"{math.expm1(log_error):.1%}"


def _wrapped(text: str, style: Style, indent: str) -> list[str]:
    lines = textwrap.wrap(style.text(text), style.width, subsequent_indent=indent)
    return lines or [""]


def _document(prediction: Prediction) -> dict[str, Any]:
    """Seconds become µs and bytes a second GB/s, with the unit in the name."""
    data = asdict(prediction)
    for one in data["collectives"]:
        one["time_us"] = _scaled(one.pop("time"), 1e6)
        one["busbw_GBps"] = _scaled(one.pop("busbw"), 1 / GIGA)
        measured = one.pop("measured")
        one["measured_us"] = None if measured is None else measured * 1e6
    for one in data["steps"]:
        one["step_us"] = _scaled(one.pop("step"), 1e6)
    for one in data["replays"]:
        one |= {f"{name}_us": _scaled(one.pop(name), 1e6) for name in ("calls", "step")}
        one["here_us"] = one.pop("here") * 1e6
    for one in data["gains"]:
        one["before_us"] = _scaled(one.pop("before"), 1e6)
        one["after_us"] = _scaled(one.pop("after"), 1e6)
    for one in data["models"]:
        one["terms_s"] = one.pop("terms")
    document: dict[str, Any] = _plain({"schema": SCHEMA, **data})
    return document


def _scaled(estimate: dict[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in estimate.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


_VIEWS: Views[Prediction] = {
    "table": _table,
    "md": _markdown,
    "json": lambda one, _: _document(one),
}
FORMATS = tuple(_VIEWS)
