"""How a view may look: colour, character set, width, and the marks of a finding.

Colour is never the only sign: each status has a mark, and each verdict is a word.
"""

import os
import shutil
from dataclasses import dataclass
from typing import TextIO

from wirespeed.errors import UsageError
from wirespeed.harmless import harmless
from wirespeed.records import Status, Verdict

__all__ = ["MARKS", "VERDICTS", "Style", "style_for"]

MARKS: dict[Status, tuple[str, str, str]] = {
    "pass": ("✓", "OK", "green"),
    "warn": ("!", "WARN", "yellow"),
    "fail": ("✗", "FAIL", "red"),
    "not_checked": ("-", "--", "dim"),
}
"""By status: the mark, the ASCII mark, the colour."""

VERDICTS: dict[Verdict, str] = {
    "READY": "green",
    "NOT READY": "red",
    "UNKNOWN": "yellow",
    "GOOD END SHOWN": "green",
    "CAUSE NAMED": "red",
    "SYMPTOMS ONLY": "yellow",
    "NOTHING KNOWN": "yellow",
}
"""By verdict, its colour."""

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
        """`text` in a colour; pad it first, because the codes have a length too."""
        return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if self.color and text else text

    def mark(self, status: Status) -> str:
        """The mark of a finding, padded to one width."""
        sign, plain, color = MARKS[status]
        return self.paint(f"{plain:<4}" if self.ascii else sign, color)

    @property
    def mark_width(self) -> int:
        return 4 if self.ascii else 1

    def verdict(self, verdict: Verdict) -> str:
        return self.paint(self.paint(verdict, VERDICTS[verdict]), "bold")


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
