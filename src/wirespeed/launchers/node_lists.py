"""Lists of nodes as Slurm writes them: `node[01-03,07],login`, `rack[1-2]-n[1-4]`.

The one parser of them: for `--hosts`, hostfiles and `fleet --idle`.
"""

import re
from collections.abc import Iterator
from itertools import product

from wirespeed.errors import UsageError

_PART = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]")
_RANGES = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*", re.ASCII)
_MOST = 100_000
"""Nodes of one list."""


def split_list(text: str) -> list[str]:
    """Return the words between the commas that are in no brackets, without spaces around them."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            words.append("")
        else:
            words[-1] += letter
    return [word.strip() for word in words]


def expand(word: str) -> list[str]:
    """Return the names that one word of a list means; UsageError for what is no such word."""
    if "[" not in word and "]" not in word:
        return [word]
    parts: list[list[str]] = []
    at, size = 0, 1
    for found in _PART.finditer(word):
        if found.start() != at or not _RANGES.fullmatch(found[2]):
            raise _refusal(word)
        numbers = list(_numbers(found[2], word))
        parts += [[found[1]], numbers]
        at, size = found.end(), size * len(numbers)
    if size > _MOST:
        raise UsageError(f"{word[:80]!r} is no list of nodes", expected=f"up to {_MOST:,} of them")
    rest = word[at:]
    if "[" in rest or "]" in rest:
        raise _refusal(word)
    return ["".join(one) + rest for one in product(*parts)]


def _refusal(word: str) -> UsageError:
    return UsageError(f"{word[:80]!r} is no list of nodes", expected="names, node-[0-3,7]")


def _numbers(ranges: str, word: str) -> Iterator[str]:
    """Yield each number of `07-12,20`, as wide as its range writes it."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        count = int(last or first) - int(first) + 1
        if not 0 < count <= _MOST:
            raise UsageError(
                f"[{part}] of {word[:80]!r} is no list of nodes",
                expected=f"up to {_MOST:,} of them",
            )
        width = len(first) if first.startswith("0") else 0
        yield from (f"{int(first) + one:0{width}}" for one in range(count))
