"""Rules made of many message texts that mean one thing: `*` stands for what a program fills in."""

import re
from typing import Any

from wirespeed.diagnose.rule import Rule

__all__ = ["GONE", "rule_of"]

GONE = (
    "exit-code",
    "launcher-exit",
    "mpi-peer",
    "python-error",
    "python-runtime",
    "crash",
    "sigterm",
)
"""What follows where a process ended itself."""
_LEAST = 6
_GAP = ".{0,200}?"
_REST = 120
"""Characters that are told of what follows a text."""
_FILLED = "x1"
_COMMON = re.compile(r"\b(?:failed|with|error|has|is|not|a|file|device|rank|the|to)\b|[^a-z]")
"""What many lines hold, and finds none."""


def rule_of(texts: str, *, starts: str = "", said: str = "", **of: Any) -> Rule:
    """A general rule for the texts, one a line.

    starts: a regular expression that must stand before each text; said: an example of it. A text that
    begins with `^` begins its line. In the rule's own texts `{what}` is the message to its line's end.
    """
    given = [line.strip() for line in texts.strip().splitlines()]
    ends = "|".join(sorted((_pattern(text) for text in given), key=len, reverse=True))
    rule = {
        "role": "cause",
        "general": True,
        "explains": GONE,
        "anchors": of.get("anchors") or _anchors(given),
        "pattern": f"{starts}(?P<what>(?:{ends}).{{0,{_REST}}})",
        "positive": tuple(said + text.removeprefix("^").replace("*", _FILLED) for text in given),
    }
    return Rule(**{**rule, **of})


def _pattern(text: str) -> str:
    begins = "^" if text.startswith("^") else ""
    parts = (re.escape(part) for part in text.removeprefix("^").split("*"))
    return begins + _GAP.join(parts)


def _says(part: str) -> int:
    return len(_COMMON.sub("", part))


def _anchors(texts: list[str]) -> tuple[str, ...]:
    """The plain part of each that says most; of two that lie in each other the shorter does for both."""
    longest = {max(text.removeprefix("^").lower().split("*"), key=_says) for text in texts}
    short = [one for one in longest if len(one) < _LEAST]
    if short:
        raise ValueError(f"texts without a plain part of {_LEAST} characters: {sorted(short)}")
    return tuple(
        sorted(
            one for one in longest if not any(other != one and other in one for other in longest)
        )
    )
