"""What a sync leaves out: patterns as in .gitignore (https://git-scm.com/docs/gitignore)."""

import re
from collections.abc import Iterable, Sequence

from wirespeed.clusters.life.syncing.far.places import OWN, PART

__all__ = ["DEFAULTS", "IGNORE_FILE", "Ignore"]

IGNORE_FILE = ".wirespeedignore"
DEFAULTS = (".git", "__pycache__", "*.pyc", ".venv", "node_modules")
"""Left out unless a later pattern, such as `!.git`, takes it in again."""
_NEVER = frozenset((OWN, PART))


class Ignore:
    """The last pattern that fits decides; what lies in a folder that is left out is left out, too."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def leaves_out(self, path: str, *, folder: bool) -> bool:
        """path: relative, with `/`; the folders above it are known not to be left out."""
        if path.rpartition("/")[2] in _NEVER:
            return True
        out = False
        for pattern, only_folders, takes_in in self._rules:
            if (folder or not only_folders) and out == takes_in and pattern.fullmatch(path):
                out = not takes_in
        return out


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    """(pattern for the whole path, only for folders, takes in what others leave out)"""
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    takes_in = line.startswith("!")
    line = line[1:] if takes_in else line
    only_folders = line.endswith("/")
    line = line.rstrip("/") if only_folders else line
    if not line:
        return None
    anywhere = "" if "/" in line else "(?:.*/)?"
    return re.compile(anywhere + _regex(line.lstrip("/")), re.DOTALL), only_folders, takes_in


def _regex(pattern: str) -> str:
    """`**` stands for any folders where it is a whole part of the path, `*` and `?` for no `/`."""
    parts = pattern.split("/")
    told = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            told += ".+" if last else "(?:.*/)?"
        else:
            told += _part(part) + ("" if last else "/")
    return told


def _part(part: str) -> str:
    told, at = "", 0
    while at < len(part):
        sign = part[at]
        if sign == "[":
            inside, at = _class(part, at + 1)
            told += inside
            continue
        if sign == "\\" and at + 1 < len(part):
            at += 1
            told += re.escape(part[at])
        else:
            told += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
        at += 1
    return re.sub(r"(?:\[\^/\]\*)+", "[^/]*", told)


def _class(part: str, at: int) -> tuple[str, int]:
    """(regex of `[abc]`, `[a-z]`, `[!a]`, where it ends); one that never ends fits nothing."""
    start = at
    negated = part[at : at + 1] in ("!", "^") and at < len(part)
    at += negated
    signs: list[str] = []
    while at < len(part) and (part[at] != "]" or not signs):
        at += part[at] == "\\" and at + 1 < len(part)
        signs.append("-" if part[at] == "-" else re.escape(part[at]))
        at += 1
    if at >= len(part):
        return "(?!)", max(at, start)
    inside = _ranges(signs)
    return f"(?!/)[{'^' if negated else ''}{inside}]" if inside else "(?!)", at + 1


def _ranges(signs: Sequence[str]) -> str:
    """`-` between two signs makes a range, elsewhere it is itself; a range that runs down is empty."""
    told, at = "", 0
    while at < len(signs):
        if at + 2 < len(signs) and signs[at + 1] == "-":
            low, high = signs[at], signs[at + 2]
            low, high = ("\\-" if one == "-" else one for one in (low, high))
            told += f"{low}-{high}" if low[-1] <= high[-1] else ""
            at += 3
        else:
            told += "\\-" if signs[at] == "-" else signs[at]
            at += 1
    return told
