"""Text that comes from the code as Markdown in which nothing acts but what is meant to."""

import re

__all__ = ["code", "fenced", "prose", "slug", "text"]

_PUNCTUATION = re.compile(r"[!-+\-.:<-@\[-`{-~]")
"""All of ASCII that Markdown, its extensions or HTML may give a meaning."""
_RUNS = re.compile("`+")
_CODE = re.compile(
    r"`([^`\n]+)`|(?<![\w/.-])([A-Z][A-Z0-9]*-\d{3}|docs/[\w-]+\.md|CONTRIBUTING\.md)(?![\w-])"
)
"""What is set apart by backticks, ids of findings, and pages: of the latter the site makes links."""


def text(words: str) -> str:
    """One line in which every character is itself: punctuation as entities, white space folded."""
    return _inert(" ".join(words.split()))


def _inert(words: str) -> str:
    return _PUNCTUATION.sub(lambda one: f"&#{ord(one[0])};", words)


def code(words: str) -> str:
    """A span of code. Where HTML might be seen in it, it is written without Markdown's own mark."""
    folded = " ".join(words.split())
    if not folded:
        return ""
    if set(folded) & set("`<&\\"):
        return f"<code>{text(folded)}</code>"
    return f"`{folded}`"


def prose(words: str) -> str:
    """Text in which pairs of backticks set code apart, as help texts and findings are written."""
    parts, done, folded = [], 0, " ".join(words.split())
    for found in _CODE.finditer(folded):
        parts += [_inert(folded[done : found.start()]), code(found[1] or found[2])]
        done = found.end()
    return "".join([*parts, _inert(folded[done:])])


def fenced(block: str, language: str = "text") -> str:
    """A block of code; its fence is longer than any in it."""
    longest = max((len(run) for run in _RUNS.findall(block)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{block.strip(chr(10))}\n{fence}\n"


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as Git hosts make it: lower case, no punctuation, spaces as hyphens."""
    plain = re.sub(r"<[^>]*>", "", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", separator)
