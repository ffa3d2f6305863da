"""A watched job while it runs: one line, and a page of a terminal. Pure: a snapshot in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirespeed.model.records import Finding
from wirespeed.model.units import format_duration
from wirespeed.views.text import MARKS, Style, shortened
from wirespeed.views.watched import signed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_LINE = 100
_STRIP = 100
_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_LEVELS = ((0.5, "█", "#", "bold red"), (0.1, "▓", "o", "yellow"), (-9e9, "·", ".", "green"))
"""(share of a step that a rank is later than the median rank, sign, ASCII sign, rich's style)."""
_UNKNOWN = ("?", "?", "dim")
_NAMED, _LONGEST_HOST = 3, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStep:
    """What is known of the newest step."""

    step: int
    """Its number; negative: none was seen."""
    step_s: float = 0.0
    low_s: float = 0.0
    """Of the last hundred steps: the lower end of the interval; 0: there is none yet."""
    high_s: float = 0.0
    exposed: float | None = None
    """Share of a step in which ranks wait in communication."""
    last: str = ""
    """Who the others wait for: `rank 2`, `node-1`; empty: nobody stands out."""
    late_s: float = 0.0
    """How much later it is than the median."""
    since_step: int = -1
    words: str = ""
    """What the job does beside stepping: `rank 0 writes a checkpoint`, `hang? nobody moved for 8 s`."""
    alarm: bool = False
    """Whether `words` are about a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """What a page shows."""

    now: LiveStep
    hosts: tuple[str, ...] = ()
    """By rank."""
    late_s: tuple[float | None, ...] = ()
    """By rank: its own work of a step against that of the median rank; None: not known."""
    recent_s: tuple[float, ...] = ()
    """Times of the last steps, oldest first."""
    findings: tuple[Finding, ...] = ()
    """Oldest first."""


def live_line(now: LiveStep, style: Style) -> str:
    """`step 812 · 31.2 ms (last 100: 30.1 ms … 33.0 ms) · …`, in one line that fits the terminal."""
    room = min(_LINE, style.width)
    pieces = [(style.text(text), color) for text, color in _pieces(now, "waiting in communication")]
    if len(" · ".join(text for text, _ in pieces)) > room:
        pieces = [(style.text(text), color) for text, color in _pieces(now, "waiting")]
    line = ""
    for text, color in pieces:
        piece = style.text(" · ") + text if line else text
        line += style.paint(_cut(piece, room, style), color)
        room -= len(piece)
        if room <= 0:
            break
    return line


def live_words(now: LiveStep) -> str:
    """The same, whole, where there is room for more than a line."""
    return " · ".join(text for text, _ in _pieces(now, "waiting in communication"))


def _cut(text: str, most: int, style: Style) -> str:
    if len(text) <= most:
        return text
    return text[:most] if style.ascii else shortened(text, most)


def _pieces(now: LiveStep, exposed: str) -> list[tuple[str, str]]:
    """(text, colour), the most important first."""
    if now.step < 0:
        return [(now.words or "no step yet", "red" if now.alarm else "")]
    found = [(f"step {now.step:,}", "bold")]
    if now.alarm:
        found.append((now.words, "red"))
    found.append((f"{format_duration(now.step_s)}{_last(now)}", ""))
    if now.exposed is not None:
        found.append((f"{exposed} {100 * now.exposed:.0f} %", ""))
    if now.last:
        since = f", since step {now.since_step:,}" if now.since_step >= 0 else ""
        found.append((f"last: {now.last} ({signed(now.late_s)}{since})", "yellow"))
    return found if now.alarm or not now.words else [*found, (now.words, "cyan")]


def _last(now: LiveStep) -> str:
    """` (last 100: 30.1 … 33.0)`; with units where they are not that of the step."""
    if not 0 < now.low_s < now.high_s:
        return ""
    step, low, high = map(format_duration, (now.step_s, now.low_s, now.high_s))
    (_, unit), (least, first), (most, second) = (one.split(" ", 1) for one in (step, low, high))
    ends = f"{least} … {most}" if unit == first == second else f"{low} … {high}"
    return f" (last 100: {ends})"


def live_page(job: LiveJob, style: Style, *, width: int, height: int) -> "RenderableType":
    """Findings, the line, a strip of steps and the ranks as a grid, in at most that many lines."""
    from rich.console import Group
    from rich.text import Text

    head = [Text(live_line(job.now, _plain(style, width)), style=_tone(job.now))]
    head += _strip(job.recent_s, style, width)
    findings = _findings(job.findings, style, width, height - len(head) - 4)
    room = height - len(head) - len(findings)
    lines = [*head, *_grid(job, style, width, room), *findings]
    return Group(*lines[:height])


def _plain(style: Style, width: int) -> Style:
    return Style(ascii=style.ascii, width=width)


def _tone(now: LiveStep) -> str:
    return "bold red" if now.alarm else "bold"


def _strip(recent: Sequence[float], style: Style, width: int) -> "list[Text]":
    """The last steps as blocks: the middle of their height is the median, the full height twice that."""
    from rich.text import Text

    shown = list(recent)[-min(_STRIP, width) :]
    if not shown:
        return []
    middle = sorted(shown)[len(shown) // 2]
    blocks = _PLAIN_BLOCKS if style.ascii else _BLOCKS
    line = Text()
    for one in shown:
        times = one / middle if middle > 0 else 1.0
        level = min(len(blocks) - 1, max(0, round(times * (len(blocks) / 2 - 0.5))))
        line.append(blocks[level], "red" if times > 1.5 else "")
    return [line]


def _findings(found: Sequence[Finding], style: Style, width: int, room: int) -> "list[Text]":
    """The newest first, as many as there is room for."""
    from rich.text import Text

    lines = []
    for one in list(reversed(found))[: max(0, min(room, 5))]:
        sign, plain, color = MARKS[one.status]
        told = f"{plain if style.ascii else sign} {one.title}  {one.id}"
        lines.append(Text(_cut(style.text(told), width, style), style=color))
    return lines


def _grid(job: LiveJob, style: Style, width: int, room: int) -> "list[Text]":
    """A line a host with the ranks' numbers where they fit, else signs, host after host."""
    hosts = _by_host(job)
    if not hosts or room < 2:
        return []
    lines = _numbered(hosts, job, style, width)
    if lines is None or len(lines) > room - 1:
        lines = _signs(hosts, job, style, width)
    if len(lines) > room - 1:
        left = len(lines) - (room - 2)
        lines = [*lines[: room - 2], _note(f"and {left} more lines of ranks", style)]
    return [*lines, _note(_late(job), style)]


def _note(text: str, style: Style) -> "Text":
    from rich.text import Text

    return Text(style.text(text), style="dim", no_wrap=True, overflow="crop")


def _by_host(job: LiveJob) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(job.hosts):
        found.setdefault(host, []).append(rank)
    return found


def _numbered(
    hosts: dict[str, list[int]], job: LiveJob, style: Style, width: int
) -> "list[Text] | None":
    """None: a host's ranks do not fit in a line."""
    from rich.text import Text

    names = [_cut(style.text(host), _LONGEST_HOST, style) for host in hosts]
    label, cell = max(map(len, names)) + 1, len(str(len(job.hosts) - 1)) + 2
    if label + cell * max(map(len, hosts.values())) > width:
        return None
    lines = []
    for name, ranks in zip(names, hosts.values(), strict=True):
        line = Text(name.ljust(label), style="")
        for rank in ranks:
            sign, color = _level(job, rank, style)
            # The sign tells what the colour does where there is none.
            line.append(f"{rank:>{cell - 1}}{sign}", color)
        lines.append(line)
    return lines


def _signs(hosts: dict[str, list[int]], job: LiveJob, style: Style, width: int) -> "list[Text]":
    """A sign a rank, a gap between hosts."""
    from rich.text import Text

    lines = [Text()]
    for ranks in hosts.values():
        if len(lines[-1]) + 1 + min(len(ranks), width - 1) > width:
            lines.append(Text())
        elif lines[-1]:
            lines[-1].append(" ")
        for rank in ranks:
            if len(lines[-1]) >= width:
                lines.append(Text())
            lines[-1].append(*_level(job, rank, style))
    return lines


def _level(job: LiveJob, rank: int, style: Style) -> tuple[str, str]:
    """(sign, rich's style)."""
    late = job.late_s[rank] if rank < len(job.late_s) else None
    if late is None:
        return _UNKNOWN[style.ascii], _UNKNOWN[2]
    share = late / job.now.step_s if job.now.step_s > 0 else 0.0
    _, sign, plain, color = next(one for one in _LEVELS if share >= one[0])
    return (plain if style.ascii else sign), color


def _late(job: LiveJob) -> str:
    """Who is late, the latest first."""
    least = _LEVELS[1][0] * job.now.step_s
    late = [(by, rank) for rank, by in enumerate(job.late_s) if by is not None and by > least > 0]
    late.sort(reverse=True)
    told = [f"rank {rank} on {job.hosts[rank]} {signed(by)}" for by, rank in late[:_NAMED]]
    more = [f"{len(late) - _NAMED} more"] if len(late) > _NAMED else []
    return "late: " + ", ".join(told + more) if late else "no rank is late"
