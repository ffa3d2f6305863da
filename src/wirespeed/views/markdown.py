"""Pieces of GitHub Markdown that foreign text cannot break out of."""

import re
from collections.abc import Sequence

from wirespeed.views.style import Style

__all__ = ["code", "escape", "plain_text", "table"]

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
