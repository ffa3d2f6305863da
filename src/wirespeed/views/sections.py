"""The parts that the table and the wide view share: head, choices, data checks, closing lines."""

import textwrap

from wirespeed.records import Run
from wirespeed.units import format_size
from wirespeed.views.figures import bandwidth, bus_factor, counts, duration
from wirespeed.views.grid import Column, Grid
from wirespeed.views.style import Style

__all__ = [
    "bandwidth_note",
    "choice_lines",
    "closing_lines",
    "head_line",
    "import_lines",
    "next_command",
    "note",
    "verification_line",
]

_NEXT_LEVEL = {"quick": "", "medium": "-l long"}
_UNIT = "GB/s: 10⁹ bytes a second, not Gbit/s; busbw can exceed the wire where switches reduce"


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
            where = f" on {_plural(world.told.nodes, 'node')}"
        parts.append(_plural(world.size, "rank") + where)
    parts += [part for part in (world.backend, world.launcher) if part]
    told = [name for name in ("torch", "nccl") if name in run.versions]
    parts += [f"{name} {run.versions[name]}" for name in told]
    return style.paint(style.text(" · ".join(parts)), "dim")


def choice_lines(run: Run, style: Style) -> list[str]:
    """Every automatic choice with its reason."""
    if not run.choices:
        return []
    grid = Grid((Column("choice", left=True), Column("value", left=True), Column("why", left=True)))
    for choice in run.choices:
        grid.add(choice.name, choice.value, choice.reason)
    return grid.lines(style)


def verification_line(run: Run, style: Style) -> list[str]:
    """The data checks in one line, where there are any."""
    checked = [v for v in run.verifications if v.wrong is not None]
    if not run.verifications:
        return []
    wrong = sum(v.wrong or 0 for v in checked)
    elements = sum(v.elements for v in checked)
    skipped = len(run.verifications) - len(checked)
    text = f"data: {_plural(len(checked), 'configuration')} checked bit-exactly, "
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
    return note(text, style) + note(_UNIT, style)


def note(text: str, style: Style) -> list[str]:
    """A remark under the figures, wrapped."""
    return [style.paint(line, "dim") for line in textwrap.wrap(style.text(text), style.width)]


def closing_lines(run: Run, style: Style) -> list[str]:
    """The verdict, the counts, the time, the exit code, the run; then what to do next."""
    parts = [counts(run)]
    if run.command != "check" and run.measurements:
        parts.append(_plural(len(run.measurements), "measurement"))
    facts = [", ".join(parts), f"exit {run.exit_code}", f"run {run.id}"]
    if run.seconds > 0:
        facts.insert(1, duration(run.seconds))
    lines = [f"{style.verdict(run.verdict)}   {style.text('   '.join(facts))}"]
    if command := next_command(run):
        lines.append(f"next: {style.paint(style.text(command), 'cyan')}")
    return lines


def import_lines(run: Run, style: Style) -> list[str]:
    """What an import found: the run, its table, its best figure, and what is wrong with it."""
    ops = ", ".join(dict.fromkeys(m.op for m in run.measurements)) or "training"
    head = f"run {run.id}  {ops}  {_plural(run.world.size, 'rank') if run.world.size else ''}"
    found = [_plural(len(run.measurements), "measurement")] if run.measurements else []
    if run.measurements:
        best = max(run.measurements, key=lambda m: m.busbw)
        found.append(f"peak busbw {bandwidth(best.busbw)} at {format_size(best.size_bytes)}")
    if run.training:
        quick = max(run.training, key=lambda one: one.samples_per_s)
        found.append(_plural(len(run.training), "training result"))
        found.append(f"at most {quick.samples_per_s:,.0f} samples/s ({quick.model})")
    lines = [style.text(f"{head}  {', '.join(found)}")]
    for finding in run.findings:
        title = style.text(f"{finding.title}  {finding.id}")
        lines.append(f"  {style.mark(finding.status)} {title}")
    return lines


def next_command(run: Run) -> str:
    """The command of the first failure that has one, else of the first warning; else for more.

    What was not checked is asked for only while the verdict is unknown: a figure that is too
    uncertain to be judged is no task for the user.
    """
    statuses = ("fail", "warn") if run.verdict == "READY" else ("fail", "warn", "not_checked")
    for status in statuses:
        for finding in run.findings:
            if finding.status == status and finding.next:
                return finding.next
    return _more(run) if run.command == "check" and run.verdict == "READY" else ""


def _more(run: Run) -> str:
    """After a good check: the next level with the same options, else every figure of this run."""
    level, launcher = run.config.get("level"), run.world.launcher
    if level not in _NEXT_LEVEL or launcher != "local":
        return f"wirespeed runs show {run.id} -o wide"
    words = ["wirespeed check", _NEXT_LEVEL[str(level)]]
    options = ("ranks", "only", "backend", "engine")
    words += [f"--{name} {run.config[name]}" for name in options if _given(run, name)]
    return " ".join(filter(None, words))


def _given(run: Run, name: str) -> bool:
    return run.config.get(name) not in (None, "", "auto", "torch")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
