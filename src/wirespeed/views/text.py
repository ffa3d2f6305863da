"""Text that every view is made of: styles and signs, aligned columns, GitHub Markdown; progress."""

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from wirespeed.errors import UsageError, escaped, harmless

if TYPE_CHECKING:
    from wirespeed.model.records import Status
    from wirespeed.model.verdicts import Standing, Verdict


MARKS: dict["Status", tuple[str, str, str]] = {
    "pass": ("✓", "OK", "green"),
    "warn": ("!", "WARN", "yellow"),
    "fail": ("✗", "FAIL", "red"),
    "measured": ("~", "~", "cyan"),
    "not_checked": ("-", "--", "dim"),
    "not_applicable": ("-", "N/A", "dim"),
}
"""By status: the mark, the ASCII mark, the colour."""
WORDS = {
    "pass": "passed",
    "warn": "warning",
    "fail": "failed",
    "measured": "measured",
    "not_checked": "not checked",
    "not_applicable": "not applicable",
}
STATUSES: tuple["Status", ...] = (
    "fail",
    "warn",
    "pass",
    "measured",
    "not_checked",
    "not_applicable",
)
"""In the order in which they are counted and listed."""

_COLORS: dict["Standing", str] = {
    "good": "green",
    "bad": "red",
    "undecided": "yellow",
    "measured": "cyan",
    "none": "dim",
}
_KINDS: dict["Standing", "Status"] = {
    "good": "pass",
    "bad": "fail",
    "undecided": "warn",
    "measured": "measured",
    "none": "not_checked",
}


def kind_of(verdict: str) -> "Status":
    """Return the class that gives a verdict word its colour on a page."""
    from wirespeed.model.verdicts import standing_of  # no help text needs it

    return _KINDS[standing_of(verdict)]


def color_of(verdict: str) -> str:
    """Return the colour of a verdict word in a terminal."""
    from wirespeed.model.verdicts import standing_of

    return _COLORS[standing_of(verdict)]


_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ASCII = str.maketrans(
    {
        "µ": "u",
        "±": "+/-",
        "×": "x",
        "–": "-",
        "—": "-",
        "−": "-",
        "…": "...",
        "→": "->",
        "·": "|",
        "≥": ">=",
        "≤": "<=",
        "✓": "OK",
        "✗": "FAIL",
        "⁹": "^9",
        "“": '"',
        "”": '"',
        "’": "'",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    color: bool = False
    ascii: bool = False
    """Only ASCII, for a terminal or file that is not UTF-8."""
    width: int = 100
    """Columns to wrap sentences at; figures and commands are never wrapped."""
    verbose: bool = False
    """Also the automatic choices with their reasons, and all evidence."""

    def text(self, value: object) -> str:
        """One line that is safe to print: foreign text may hold escape sequences."""
        clean = harmless(str(value))
        if self.ascii:
            return clean.translate(_ASCII).encode("ascii", "replace").decode()
        return clean

    def paint(self, text: str, color: str) -> str:
        """`text` in a colour, if any; pad it first, because the codes have a length too."""
        return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if self.color and color and text else text

    def mark(self, status: "Status") -> str:
        """The mark of a finding, padded to one width."""
        sign, plain, color = MARKS[status]
        return self.paint(f"{plain:<4}" if self.ascii else sign, color)

    @property
    def mark_width(self) -> int:
        return 4 if self.ascii else 1

    def verdict(self, verdict: "Verdict", text: str = "") -> str:
        """Return the word, or a text that begins with it, in the word's colour."""
        return self.paint(self.paint(text or verdict, color_of(verdict)), "bold")


T = TypeVar("T")
Views = Mapping[str, Callable[[T, Style], str | dict[str, Any]]]
"""By format what gives the text, or what is written as JSON."""


def style_for(stream: TextIO, *, color: str = "auto", verbose: bool = False) -> Style:
    """The style that suits `stream`: colour on a terminal (unless NO_COLOR), its width, its
    character set. `color` is `auto`, `always` or `never`; UsageError for anything else."""
    if color not in ("auto", "always", "never"):
        raise UsageError(f"unknown colour mode {color!r}", expected="auto, always, never")
    terminal = stream.isatty()
    wanted = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    return Style(
        color=color == "always" or (color == "auto" and wanted),
        ascii=not encoding.startswith("utf"),
        width=max(60, min(shutil.get_terminal_size((100, 24)).columns, 140)) if terminal else 100,
        verbose=verbose,
    )


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    left: bool = False
    """Aligned to the left; figures are aligned to the right."""
    color: str = ""


@dataclass(slots=True)
class Grid:
    """Rows of cells; a column without a single cell is not printed, nor is a table without rows."""

    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    painted: dict[tuple[int, int], str] = field(default_factory=dict)
    """Colour of one cell, by (row, column)."""

    @classmethod
    def of(cls, header: str, *figures: str) -> "Grid":
        """The header's columns, `|` between them, `<` before those that are aligned to the left as
        words are; then columns of figures with these titles."""
        columns = [Column(one.removeprefix("<"), left=one[:1] == "<") for one in header.split("|")]
        return cls([*columns, *map(Column, figures)])

    @classmethod
    def filled(cls, header: str, rows: Iterable[Sequence[str]]) -> "Grid":
        """The same with its rows."""
        grid = cls.of(header)
        grid.rows += rows
        return grid

    def add(self, *cells: str, color: str = "", at: int = -1) -> None:
        """A row; the cell at index `at` is shown in that colour."""
        if color:
            self.painted[len(self.rows), at % len(self.columns)] = color
        self.rows.append(cells)

    @property
    def shown(self) -> list[int]:
        """The columns that have a cell."""
        return [i for i in range(len(self.columns)) if any(row[i] for row in self.rows)]

    def markdown(self, style: Style, *, every: bool = False) -> list[str]:
        """As a table of Markdown, its cells escaped. every: also columns without a cell."""
        shown = range(len(self.columns)) if every else self.shown
        titles = [escape(self.columns[i].title, style) for i in shown]
        rows = [[escape(row[i], style) for i in shown] for row in self.rows]
        right = [escape(self.columns[i].title, style) for i in shown if not self.columns[i].left]
        return table(titles, rows, right)

    def lines(self, style: Style, *, indent: str = "", gap: str = "  ") -> list[str]:
        if not self.rows:
            return []
        shown = self.shown
        titles = [style.text(self.columns[i].title) for i in shown]
        rows = [titles, *([style.text(row[i]) for i in shown] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for number, row in enumerate(rows, -1):
            cells = [
                cell.ljust(width) if self.columns[i].left else cell.rjust(width)
                for i, cell, width in zip(shown, row, widths, strict=True)
            ]
            if number < 0:
                lines.append(indent + style.paint(gap.join(cells).rstrip(), "dim"))
                continue
            painted = zip(shown, cells, strict=True)
            cells = [style.paint(cell, self.color(number, i)) for i, cell in painted]
            lines.append(indent + gap.join(cells).rstrip())
        return lines

    def color(self, row: int, column: int) -> str:
        return self.painted.get((row, column), self.columns[column].color)


NOTHING = "–"
"""In a cell: there is no such figure."""


def counted(number: int, noun: str, spec: str = "") -> str:
    """`1 rank`, `2000 ranks`; with "," as `spec` `2,000 ranks`."""
    return f"{number:{spec}} {noun}" + ("" if number == 1 else "s")


def shortened(text: str, most: int) -> str:
    """At most that many characters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def rendered(record: T, format: str, style: Style, views: "Views[T]") -> str:
    """In one of these formats, ending in a line end; UsageError for another one."""
    if format not in views:
        raise UsageError(f"unknown output format {format!r}", expected=", ".join(views))
    found = views[format](record, style)
    if isinstance(found, str):
        return found
    return escaped(json.dumps(found, indent=2, ensure_ascii=style.ascii)) + "\n"


def titled(tables: Iterable[tuple[str, Grid]], style: Style) -> list[str]:
    """Each table under its title, with a blank line after it."""
    lines: list[str] = []
    for title, grid in tables:
        lines += [style.paint(style.text(title), "bold"), *grid.lines(style, indent="  "), ""]
    return lines


_ADDRESS = re.compile(r"\b(https?|ftp|mailto|xmpp):", re.IGNORECASE)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plain_text(text: str, style: Style) -> str:
    """The line ends stay, everything else is made safe for the character set."""
    return "\n".join(style.text(line) for line in text.split("\n"))


def escape(text: str, style: Style) -> str:
    """Text that Markdown and HTML leave as it is, also within a table: no link, nobody is called."""
    clean = _SPECIAL.sub(r"\\\1", style.text(text)).replace("&", "&amp;")
    # GitHub makes links of addresses and calls people by their names; a comment ends the word.
    clean = _ADDRESS.sub(r"\1<!-- -->:", clean).replace("@", "@<!-- -->")
    return clean.replace("www.", "www<!-- -->.")


def code(text: str, style: Style) -> str:
    """A code span; within a table a pipe must be escaped even there."""
    clean = style.text(text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", clean)), default=0))
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean}{pad}{fence}".replace("|", "\\|")


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> list[str]:
    """right: titles of the columns that are aligned to the right. Cells are escaped already."""
    rule = ["---:" if title in right else "---" for title in titles]
    return [f"| {' | '.join(row)} |" for row in (titles, rule, *rows)]


# Progress on stderr: one line that rewrites itself on a terminal, else one line a step.

_FIRST_ESTIMATE = 0.1
"""No time is told before this share of the steps is done: the first ones also warm up."""
_TRUST = 0.15
"""Weight of one step's new estimate of the end; less is steadier, more follows faster."""
_MINUTES_FROM_S = 120


class Progress:
    """What is running, of how many, and about how long it still takes."""

    def __init__(self, stream: TextIO | None, *, terminal: bool, width: int = 79) -> None:
        self._stream = stream
        self._terminal = terminal
        self._width = width
        self._first: tuple[int, float] | None = None
        self._end: float | None = None

    def phase(self, text: str) -> None:
        """What happens before the first step."""
        self._write(text)

    def say(self, text: str) -> None:
        """A line that stays, whatever comes after it; foreign text is made safe."""
        if self._stream:
            start = "\r\x1b[K" if self._terminal else ""
            self._stream.write(f"{start}{Style().text(text)}\n")
            self._stream.flush()

    def step(self, index: int, of: int, label: str) -> None:
        """Step `index` (from 0) of `of` begins."""
        number = str(index + 1).rjust(len(str(of)))
        self._write(f"[{number}/{of}] {label}{self._left(index, of)}")

    def close(self) -> None:
        if self._terminal and self._stream:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _left(self, index: int, of: int) -> str:
        """`  about 12 s left`, from the mean of the steps so far; "" while unknown or below a second."""
        now = time.monotonic()
        first, began = self._first = self._first or (index, now)
        done = index - first
        if done < max(3, _FIRST_ESTIMATE * of):
            return ""
        end = now + (now - began) / done * (of - index)
        # Towards the end little is unknown: the estimate before must not hold it back.
        trust = max(_TRUST, done / of)
        self._end = end if self._end is None else self._end + trust * (end - self._end)
        left = math.ceil(self._end - now)
        if left <= 1:
            return ""
        if left < _MINUTES_FROM_S:
            return f"  about {left} s left"
        return f"  about {math.ceil(left / 60)} min left"

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        text = Style().text(text)
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text[: self._width]}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()


def open_progress(*, quiet: bool) -> Progress:
    """Progress on this process's stderr; silent when quiet."""
    terminal = sys.stderr.isatty()
    width = 79
    if terminal:
        width = shutil.get_terminal_size().columns - 1
    return Progress(None if quiet else sys.stderr, terminal=terminal, width=width)
