"""click's help texts, apart: paragraphs, and blocks that are shown as they are."""

import inspect
import re
import textwrap
from dataclasses import dataclass

from docs_site.markdown import fenced, prose

__all__ = ["Epilog", "body", "read_epilog"]

_BESIDE = re.compile(r"^(\S.*?\S {2,})(?=\S)", re.MULTILINE)
"""Of an example, up to the words beside it: whoever copies the line takes them along, as a comment."""
_EXIT = re.compile(r"Exit codes?:\s*")


@dataclass(frozen=True, slots=True)
class Epilog:
    """What stands below the options of a command."""

    examples: str
    """Lines of a shell, with comments behind some of them; "" without any."""
    exit_codes: str
    """What follows `Exit codes:`; "" where the common ones hold."""
    notes: tuple[str, ...]
    """Paragraphs of Markdown."""


def body(help: str) -> list[str]:
    """Paragraphs of a command's help as Markdown, without what is for exit codes."""
    return [_shown(one) for one in _paragraphs(help)]


def read_epilog(epilog: str) -> Epilog:
    examples, codes, notes = "", "", []
    for paragraph in _paragraphs(epilog):
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "Examples:":
            examples = _BESIDE.sub(r"\1# ", textwrap.dedent(rest))
            continue
        before, *after = _EXIT.split(paragraph, maxsplit=1)
        codes = after[0] if after else codes
        if before.strip():
            notes.append(_shown(before))
    return Epilog(examples, codes, tuple(notes))


def _paragraphs(words: str) -> list[str]:
    """Without click's marks: a form feed ends what is shown, a backspace says `do not wrap`."""
    plain = inspect.cleandoc(words.partition("\f")[0].replace("\b\n", "").replace("\b", ""))
    return [one for one in re.split(r"\n\s*\n", plain) if one.strip()]


def _shown(paragraph: str) -> str:
    """Prose, with its indented lines as blocks."""
    groups = re.split(r"((?:^ .*(?:\n|$))+)", paragraph, flags=re.MULTILINE)
    parts = [
        fenced(textwrap.dedent(part)) if place % 2 else prose(part)
        for place, part in enumerate(groups)
    ]
    return "\n\n".join(part for part in parts if part.strip())
