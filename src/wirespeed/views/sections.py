"""What several views share: figures as words, head lines, closing lines, references."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.bench_records import ENDORSED, MedianTime, ReferenceFigure, ReferenceKind
from wirespeed.model.records import Measurement, Run, TimeStats
from wirespeed.model.units import format_bandwidth, format_duration, format_size
from wirespeed.model.verdicts import standing_of
from wirespeed.reference.roofline import CHECK, passed, roofline, switches_add_up
from wirespeed.reference.shape import shape_of
from wirespeed.statistics import has_interval, lacks_samples
from wirespeed.views.text import NOTHING, STATUSES, WORDS, Grid, Style, color_of, counted

_LEAST_SHOWN = 0.5e6


@dataclass(frozen=True, slots=True)
class Series:
    """The sizes of one operation that were measured in the same way."""

    first: Measurement
    rows: tuple[Measurement, ...]

    @property
    def title(self) -> str:
        """`all_reduce`, then how: `float32 sum · 4 ranks · torch · each`."""
        m = self.first
        kind = m.dtype if m.redop == "none" else f"{m.dtype} {m.redop}"
        ranks = f"{m.ranks} ranks" if m.ranks else "ranks not known"
        parts = [kind, ranks, m.engine, m.timing]
        parts += [f"root {m.root}"] if m.root >= 0 else []
        parts += [f"groups {m.groups}"] if m.groups != "all" else []
        parts += ["async"] if m.timing == "each" and not m.blocking else []
        parts += [f"{m.in_flight} in flight"] if m.in_flight > 1 else []
        parts += [m.setting] if m.setting else []
        parts += [m.backend] if m.backend else []
        return " · ".join(parts)


def series_of(measurements: Iterable[Measurement]) -> list[Series]:
    """The measurements by how they were taken, in the order of their first; sizes ascending."""
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for m in measurements:
        how = (m.op, m.engine, m.dtype, m.redop, m.root, m.ranks, m.groups)
        groups.setdefault(
            (*how, m.timing, m.blocking, m.in_flight, m.setting, m.backend), []
        ).append(m)
    return [
        Series(rows[0], tuple(sorted(rows, key=lambda m: (m.size_bytes, m.in_place))))
        for rows in groups.values()
    ]


def no_interval(number: int, unit: str = "") -> str:
    """Return `n=2, no interval`, or with a unit `2 rounds, no interval`."""
    return f"{counted(number, unit) if unit else f'n={number}'}, no interval"


def interval(time: TimeStats | MedianTime, samples: int, unknown: str = NOTHING) -> str:
    """Return `±3.1 %`: the farther end of the median's 95 % interval, relative to the median.

    samples: how many `time` is of; too few give `n=2, no interval`. unknown: what is returned where an
    import gives an average alone.
    """
    if lacks_samples(samples):
        return no_interval(samples)
    if time.median <= 0 or time.low == time.high:
        return unknown
    far = max(time.high - time.median, time.median - time.low) / time.median * 100
    return f"±{far:.1f} %" if far < 100 else f"±{far:.0f} %"


def precision(m: Measurement) -> str:
    """Return `±3.1 %, n=20`, `n=2, no interval`, or `n=20` of an average."""
    known = interval(m.time, m.samples, "")
    if known and not has_interval(m.samples):
        return known
    return f"{known}, n={m.iterations}" if known else f"n={m.iterations}"


def bandwidth(bytes_per_second: float) -> str:
    """`45.4 GB/s`; a dash where the figure has no meaning, as for a barrier."""
    number = gigabytes(bytes_per_second)
    return number if number == NOTHING else f"{number} GB/s"


def gigabytes(bytes_per_second: float) -> str:
    """The same without the unit, for columns that name it."""
    if bytes_per_second <= 0:
        return NOTHING
    if bytes_per_second < _LEAST_SHOWN:
        return "<0.001"
    return format_bandwidth(bytes_per_second).removesuffix(" GB/s")


SIZE_COLUMNS = "size|<place|time|95 %|n|algbw GB/s|busbw GB/s|wrong"


def size_cells(m: Measurement) -> list[str]:
    """Of `SIZE_COLUMNS`."""
    return [
        size(m),
        place(m),
        format_duration(m.time.median),
        interval(m.time, m.samples),
        str(m.iterations),
        gigabytes(m.algbw),
        gigabytes(m.busbw),
        wrong(m),
    ]


def size(m: Measurement) -> str:
    return format_size(m.size_bytes)


def place(m: Measurement) -> str:
    return "in" if m.in_place else "out"


def wrong(m: Measurement) -> str:
    return NOTHING if m.wrong is None else str(m.wrong)


def bus_factor(op: str) -> str:
    """busbw over algbw as a formula in n, the ranks; empty where there is none."""
    return CATALOGUE[op].bus_factor.formula if op in CATALOGUE else ""


def counts(run: Run) -> str:
    """`1 failed, 2 warnings, 2 passed, 1 not checked`: what there is of each."""
    counted_by = Counter(finding.status for finding in run.findings)
    parts = []
    # What cannot exist here is of interest in a check, which lists all that there is to look at.
    hidden = () if run.command == "check" else ("not_applicable",)
    for status in STATUSES:
        number = 0 if status in hidden else counted_by[status]
        if number:
            parts.append(
                f"{number} {WORDS[status]}" + ("s" if status == "warn" and number > 1 else "")
            )
    return ", ".join(parts) or "no findings"


_KEPT = ("ranks", "only", "data", "model", "backend", "engine")
_NEXT_LEVEL = {"quick": "", "medium": "-l long"}
_UNIT = "GB/s: 10⁹ bytes a second, not Gbit/s"
_SWITCHES = "; busbw can exceed the wire where switches reduce"
_MOST_ABOVE = 6
"""Rates above their limit that are named."""


def head_line(run: Run, style: Style) -> str:
    """What ran, and where."""
    world = run.world
    nodes = len(world.nodes)
    parts = [f"wirespeed {run.command}"]
    if world.size:
        # An imported list of devices may be shortened: then the nodes are not all known.
        all_known = nodes and sum(len(node.ranks) for node in world.nodes) >= world.size
        place = world.nodes[0].host if nodes == 1 else f"{nodes} nodes"
        where = f" on {place}" if all_known else ""
        if not all_known and world.told and world.told.nodes:
            where = f" on {counted(world.told.nodes, 'node')}"
        parts.append(counted(world.size, "rank") + where)
    parts += [part for part in (world.backend, world.launcher) if part]
    told = [name for name in ("torch", "nccl") if name in run.versions]
    parts += [f"{name} {run.versions[name]}" for name in told]
    return style.paint(style.text(" · ".join(parts)), "dim")


def choices_grid(run: Run) -> Grid:
    """Every automatic choice with its reason."""
    rows = [(choice.name, choice.value, choice.reason) for choice in run.choices]
    return Grid.filled("<choice|<value|<why", rows)


def verification_line(run: Run, style: Style) -> list[str]:
    """The data checks in one line, where there are any."""
    checked = [v for v in run.verifications if v.wrong is not None]
    if not run.verifications:
        return []
    wrong = sum(v.wrong or 0 for v in checked)
    elements = sum(v.elements for v in checked)
    skipped = len(run.verifications) - len(checked)
    text = f"data: {counted(len(checked), 'configuration')} checked bit-exactly, "
    text += f"{wrong:,} wrong of {elements:,} elements"
    text += f"; {skipped} not checked" if skipped else ""
    return [style.paint(style.text(text), "red") if wrong else style.text(text)]


def bandwidth_note(run: Run, style: Style) -> list[str]:
    """What busbw is, for the operations shown."""
    factors: dict[str, list[str]] = {}
    for op in dict.fromkeys(m.op for m in run.measurements if m.busbw > 0):
        if factor := bus_factor(op):
            factors.setdefault(factor, []).append(op)
    if not factors:
        return []
    formulas = ", ".join(f"× {factor} for {' '.join(ops)}" for factor, ops in factors.items())
    text = f"busbw: algbw {formulas}; n = ranks (docs/bandwidth.md)"
    shape = shape_of(run.world)
    reduced = shape is not None and any(
        switches_add_up(shape, op) for ops in factors.values() for op in ops
    )
    unit = _UNIT + (_SWITCHES if reduced else "")
    above = [line for each in rates_above(run) for line in note(each, style)]
    return note(text, style) + note(unit, style) + above


def rates_above(run: Run) -> list[str]:
    """Return a line for each rate above what the links carry, with why that may be."""
    shape = shape_of(run.world)
    if shape is None:
        return []
    found = []
    for m in run.measurements:
        limit = roofline(shape, m.op, m.engine) if m.groups == "all" and m.busbw > 0 else None
        if why := passed(shape, m.op, m.busbw, limit):
            size = f" {format_size(m.size_bytes)}" if m.size_bytes else ""
            found.append(f"{m.op}{size}: {why}")
    more = len(found) - _MOST_ABOVE
    return found[:_MOST_ABOVE] + (
        [f"{more} more rates above their limit: {CHECK}"] if more > 0 else []
    )


def note(text: str, style: Style) -> list[str]:
    """A remark under the figures, wrapped."""
    return [style.paint(line, "dim") for line in textwrap.wrap(style.text(text), style.width)]


def closing_lines(run: Run, style: Style) -> list[str]:
    """The verdict, the counts, the time, the exit code, the run; then what to do next."""
    parts = [*_judged_parts(run), counts(run)]
    if run.command != "check" and run.measurements:
        parts.append(counted(len(run.measurements), "measurement"))
    facts = [", ".join(parts), f"exit {run.exit_code}", f"run {run.id}"]
    if run.seconds > 0:
        facts.insert(1, format_duration(run.seconds))
    word = "" if run.verdict == "NONE" else style.verdict(run.verdict, style.text(run.verdict_text))
    lines = [f"{word}   {style.text('   '.join(facts))}" if word else style.text("   ".join(facts))]
    if command := next_command(run):
        lines.append(f"next: {style.paint(style.text(command), 'cyan')}")
    return lines


def _judged_parts(run: Run) -> list[str]:
    """Return for `bench` and `train` what was judged: the data, and the speed against what."""
    if run.command not in ("bench", "train") or run.speed_judged is None:
        return []
    return [part for part in (_data_part(run), speed_part(run)) if part]


def _data_part(run: Run) -> str:
    """Return whether the data were exact; empty where nothing of the run has data to check."""
    checked = [one.wrong for one in run.verifications if one.wrong is not None]
    proofs = [finding.status for finding in run.findings if finding.id == "TRAIN-001"]
    if any(checked) or "fail" in proofs:
        return "data wrong"
    if checked or "pass" in proofs:
        return "data exact"
    return "data not checked" if run.measurements else ""


def speed_part(run: Run) -> str:
    """Return `speed judged against` its source, or that speed was not judged."""
    if not run.speed_judged:
        return "speed not judged"
    against = [one.source for one in references_of(run) if one.kind != "roofline"]
    return f"speed judged against {against[0]}" if against else "speed judged against the baseline"


def import_lines(run: Run, style: Style) -> list[str]:
    """What an import found: the run, its table, its best figure, and what is wrong with it."""
    named = [*(m.op for m in run.measurements), *(f.tool for f in run.figures)]
    told = str(run.config.get("program") or run.world.launcher)
    ops = ", ".join(dict.fromkeys(named)) or ("training" if run.training else told)
    head = [f"run {run.id}", ops, counted(run.world.size, "rank") if run.world.size else ""]
    found = [counted(len(run.measurements), "measurement")] if run.measurements else []
    if run.measurements:
        best = max(run.measurements, key=lambda m: m.busbw)
        found.append(f"peak busbw {bandwidth(best.busbw)} at {format_size(best.size_bytes)}")
    found += [counted(len(run.figures), "figure")] if run.figures else []
    if run.training:
        quick = max(run.training, key=lambda one: one.samples_per_s)
        found.append(counted(len(run.training), "training result"))
        found.append(f"at most {quick.samples_per_s:,.0f} samples/s ({quick.model})")
    lines = [style.text("  ".join(filter(None, [*head, ", ".join(found)])))]
    for finding in run.findings:
        title = style.text(f"{finding.title}  {finding.id}")
        lines.append(f"  {style.mark(finding.status)} {title}")
    return lines


def next_command(run: Run) -> str:
    """The command of the first failure that has one, else of the first warning; else for more.

    What was not checked is asked for only while the verdict is unknown: a figure that is too
    uncertain to be judged is no task for the user.
    """
    statuses = ["fail", "warn"]
    if standing_of(run.verdict) == "undecided":
        statuses.append("not_checked")
    for status in statuses:
        for finding in run.findings:
            if finding.status == status and finding.next:
                return finding.next
    return _more(run) if run.command == "check" and run.verdict in ("READY", "PASSED") else ""


def _lacks_reference(run: Run) -> bool:
    """Return whether there was nothing to judge the speed of a graded size by."""
    graded = any(finding.id.startswith("BW-") for finding in run.findings)
    return graded and not any(one.kind in ENDORSED for one in references_of(run))


def _more(run: Run) -> str:
    """Return the command after a good check: set a baseline, the next level, or all figures."""
    if run.verdict == "READY" and run.speed_judged is False and _lacks_reference(run):
        return f"wirespeed baseline set {run.id}"
    level, launcher = run.config.get("level"), run.world.launcher
    if level not in _NEXT_LEVEL or launcher != "local":
        return f"wirespeed runs show {run.id} -o wide"
    words = ["wirespeed check", _NEXT_LEVEL[str(level)]]
    options = {name: run.config.get(name) for name in _KEPT}
    usual = (None, "", "auto", "torch")
    words += [f"--{name} {value}" for name, value in options.items() if value not in usual]
    return " ".join(filter(None, words))


KINDS: dict[ReferenceKind, str] = {
    "baseline": "baseline",
    "own": "own figure",
    "fleet": "earlier runs",
    "reference": "reference",
    "roofline": "roofline",
}
_GRADED = "<operation|size|<place|figure|<graded against|reference|share|spread|<from"


def references_of(run: Run) -> list[ReferenceFigure]:
    """Of all findings, in their order."""
    return [one for finding in run.findings for one in finding.references]


def references_grid(run: Run) -> Grid | None:
    """A row for each figure that was graded against; None where nothing was."""
    told = references_of(run)
    if not told:
        return None
    measured = {_key(m): m for m in reversed(run.measurements)}
    grid = Grid.of(_GRADED)
    for one in told:
        figure, share = _figure(one, measured.get(_key(one)))
        what = (one.op, format_size(one.size_bytes), "in" if one.in_place else "out", figure)
        against = (KINDS[one.kind], reference_value(one), share, _spread(one), one.source)
        grid.add(*what, *against)
    return grid


def reference_value(one: ReferenceFigure) -> str:
    """With its unit."""
    return _shown(one, one.value)


def _key(one: Measurement | ReferenceFigure) -> tuple[object, ...]:
    how = (one.op, one.engine, one.dtype, one.redop)
    return (*how, one.in_place, one.size_bytes, one.ranks)


def _figure(one: ReferenceFigure, m: Measurement | None) -> tuple[str, str]:
    """(what was measured, its share of the reference: 1 is as good, more is better)."""
    seen = (m.busbw if one.quantity == "busbw" else m.time.median) if m else 0.0
    if seen <= 0 or one.value <= 0:
        return NOTHING, NOTHING
    share = seen / one.value if one.quantity == "busbw" else one.value / seen
    return _shown(one, seen), f"{share:.2f}"


def _spread(one: ReferenceFigure) -> str:
    if one.low is None or one.high is None:
        return ""
    return f"{_shown(one, one.low)} … {_shown(one, one.high)}"


def _shown(one: ReferenceFigure, value: float) -> str:
    return format_bandwidth(value) if one.quantity == "busbw" else format_duration(value)


def runs_grid(runs: Sequence[Run]) -> Grid:
    """The runs themselves, a line each."""
    grid = Grid.of("<run|<command|<started (UTC)|<verdict|<findings|ranks|nodes|<backend")
    for run in runs:
        size, nodes = str(run.world.size or ""), str(run.world.node_count or "")
        when = run.started[:19].replace("T", " ")
        about = (run.id, run.command, when, run.verdict_text, counts(run))
        color = color_of(run.verdict)
        grid.add(*about, size, nodes, run.world.backend, color=color, at=3)
    return grid
