"""A log as its programs printed it: without prefixes, a text per writer, cut lines put together.

Every reader gets its text from here. A writer is a rank, a host or a pod, as prefixes tell them: two
that print at the same time mix their lines, and rarely the parts of one line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from wirespeed.line_prefix import Prefix, strip_launcher

_Writer = tuple[str | None, int | None, int | None]
_NOBODY: _Writer = (None, None, None)
_MOST_WRITERS = 4_096
_MOST_COMMANDS = 1_000
_COMMAND = re.compile(r"\b(?:mpirun|mpiexec|srun|prun)\b|_perf\b|\b(?:osu|ib)_\w+")
"""Lines of the shell that a table needs: they name the program and its ranks."""
_LONGEST_COMMAND = 4096
_TAG = re.compile(r"\[(?:[\w.@-]+@)?\d+,\s?\d+\]\s?<std(?:out|err)>:")
"""Open MPI's tag, which no program prints: within a line it begins a new part of one."""
_CLEAN = tuple('#{}"]')
"""A line that begins with one of these has no prefix."""

_TIMES = {"date": "%Y-%m-%d %H:%M:%S", "yearless": "%b %d %H:%M:%S"}
"""How times of a clock are shown."""


class PlainText(NamedTuple):
    """What one writer printed."""

    text: str
    times: tuple[str, ...]
    """When each line was written; empty: not told."""


@dataclass(slots=True)
class _Lines:
    """The lines of one writer."""

    texts: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    """When each was written, as its prefix tells it; empty: not told."""
    goes_on: bool = False
    """Whether the container runtime cut the last one."""
    ends: bool = True
    """Whether the last one has its end."""

    def take(self, prefix: Prefix) -> None:
        if self.goes_on and self.texts:
            self.texts[-1] += prefix.text
        else:
            self.texts.append(prefix.text)
            self.times.append(_shown_time(prefix))
        self.goes_on = prefix.cut

    def plain(self, head: Sequence[str] = ()) -> PlainText:
        """head: lines that come before."""
        end = "\n" if self.ends else ""
        text = "\n".join((*head, *self.texts)) + end
        return PlainText(text, (*("" for _ in head), *self.times))


def _shown_time(prefix: Prefix) -> str:
    if prefix.time is None or prefix.clock not in _TIMES:
        return ""
    return datetime.fromtimestamp(prefix.time, UTC).strftime(_TIMES[prefix.clock])


def plain_texts(text: str) -> list[PlainText]:
    """Return the text of each writer; of a log without prefixes, or with one writer, all of it."""
    *lines, rest = text.split("\n")
    hosts = _hosts_before(lines)
    whole, writers = _Lines(), {_NOBODY: _Lines()}
    for line in lines:
        _take(line, hosts, whole, writers)
    if rest:
        last = _take(rest, hosts, whole, writers)
        whole.ends = last.ends = False
    named = [one for key, one in writers.items() if key != _NOBODY]
    if len(named) < 2:
        return [whole.plain()]
    shared = writers[_NOBODY]
    commands = [one for one in shared.texts if _COMMAND.search(one, 0, _LONGEST_COMMAND)]
    first = [shared.plain()] if shared.texts else []
    return [*first, *(one.plain(commands[:_MOST_COMMANDS]) for one in named)]


_HOST = re.compile(r"([A-Za-z0-9][\w.-]{0,62}): ")
_MOST_HOSTS, _LEAST_LINES, _NEARLY_ALL = 64, 3, 0.9


def _hosts_before(lines: Sequence[str]) -> frozenset[str]:
    """Return the names that stand before nearly all lines, as pdsh and clush write them.

    A name without a digit is no sure host on one line alone.
    """
    times = Counter(found[1] for line in lines if (found := _HOST.match(line)))
    hosts = frozenset(name for name, count in times.items() if count >= _LEAST_LINES)
    behind = sum(times[name] for name in hosts)
    filled = sum(bool(line.strip()) and line.rstrip("\r")[-1:] != ":" for line in lines)
    known = 0 < len(hosts) <= _MOST_HOSTS and behind >= _NEARLY_ALL * filled
    return hosts if known else frozenset()


def _take(
    line: str, hosts: frozenset[str], whole: _Lines, writers: dict[_Writer, _Lines]
) -> _Lines:
    """Add a line to its writer's; return the writer's lines."""
    own = whole
    for prefix in _parts(line, hosts):
        key = (prefix.host, prefix.rank, prefix.gpu)
        if key not in writers and len(writers) > _MOST_WRITERS:
            key = _NOBODY
        own = writers.setdefault(key, _Lines())
        own.take(prefix)
        whole.take(prefix)
    return own


def _parts(line: str, hosts: frozenset[str]) -> Iterator[Prefix]:
    """Yield the line without its prefix; where tags stand within it, each part."""
    if hosts and (before := _HOST.match(line)) and before[1] in hosts:
        for part in _parts(line[before.end() :], frozenset()):
            part.host = part.host or before[1]
            yield part
        return
    if line.startswith(_CLEAN) and "\x1b" not in line and "<std" not in line:
        yield Prefix(text=line.rstrip("\r"))
        return
    found = strip_launcher(line)
    if "<std" in found.text:
        yield from _between_tags(found)
    else:
        yield found


def _between_tags(found: Prefix) -> Iterator[Prefix]:
    """Yield the parts of a line that has tags in it.

    A writer's own tag comes again where it flushed, within a word too: there its line goes on.
    """
    tags = list(_TAG.finditer(found.text))
    text, ends = found.text, [tag.start() for tag in tags[1:]] + [len(found.text)]
    if tags:
        found.text = text[: tags[0].start()]
    for tag, end in zip(tags, ends, strict=True):
        later = strip_launcher(text[tag.start() : end])
        later.host = later.host or found.host
        if (later.host, later.rank) == (found.host, found.rank):
            found.text += text[tag.end() : end]
        else:
            yield found
            found = later
    yield found


class CellJoiner:
    """Puts the cells of a row together that another line was printed into.

    It joins only what is certain: nothing but cells before, nothing but cells after, and exactly as
    many as the table has columns.
    """

    def __init__(self) -> None:
        self._begun: list[str] = []

    def take(self, cells: list[str], columns: int) -> list[str] | None:
        """Return a whole row when these cells are one, or complete the one that was begun."""
        if len(cells) == columns:
            self._begun = []
            return cells
        joined = [*self._begun, *cells]
        self._begun = joined if len(joined) < columns else []
        return joined if len(joined) == columns else None
