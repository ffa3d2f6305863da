"""Text from elsewhere (files, nodes, pods, logs), made harmless for the terminal that shows it."""

import re

# Whatever steers a terminal: C0 and C1 controls, and the marks that turn text around.
_STEERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]+"
)
_STEERS_JSON = re.compile(_STEERS.pattern.replace(r"\x00-\x1f", ""))
_FORMULA = ("=", "+", "-", "@")


def harmless(text: str) -> str:
    """One line of it, without what steers a terminal, in UTF-8 whatever it held."""
    return _STEERS.sub(" ", text).encode("utf-8", "replace").decode()


def harmless_lines(text: str) -> str:
    """The same, line by line."""
    return "\n".join(map(harmless, text.split("\n")))


def escaped(text: str) -> str:
    """JSON with the same meaning, in which nothing steers a terminal."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _STEERS_JSON.sub(lambda told: "".join(f"\\u{ord(one):04x}" for one in told[0]), text)


def unformulated(text: str) -> str:
    """A cell for spreadsheets: what they would take for a formula gets an apostrophe in front."""
    clean = harmless(text)
    return f"'{clean}" if clean.lstrip().startswith(_FORMULA) else clean
