"""Troubles that ended by themselves: a pod that found a node, an image that was pulled in the end."""

import re
from collections.abc import Iterable

from wirespeed.diagnose.scan import Hit, Line

__all__ = ["Episodes", "is_over"]

_POD = re.compile(
    r"\bpods?/(?P<event>[\w.-]+)|\bassigned [\w.-]+/(?P<assigned>[\w.-]+) to "
    r"|^(?:[\w-]+\s+)?(?P<row>[a-z0-9][\w.-]*)\s+\d+/\d+\s+[A-Z]\w+"
)
_ROW = re.compile(r"\s\d+/\d+\s+[A-Z]\w+\s")
_AGE = re.compile(r"(?:^|\s)(?=\d+[dhms])(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?=[\s(]|$)")
_AGE_WITHIN = 120
"""Characters at a line's beginning in which an event's age stands."""
_PODS = 4_096


class Episodes:
    """The latest line on each pod that one rule saw; a line that names none is of the pod ``."""

    def __init__(self) -> None:
        self.latest: dict[str, Hit] = {}

    def add(self, hit: Hit) -> None:
        pod = _pod(hit.line)
        known = self.latest.get(pod)
        if known is None and len(self.latest) >= _PODS:
            return
        if known is None or _is_later(hit.line, known.line):
            self.latest[pod] = hit


def is_over(trouble: Hit, ends: Iterable[Episodes]) -> bool:
    """Whether a later line tells that what `trouble` says of its pod ended well."""
    pod = _pod(trouble.line)
    for end in ends:
        for name, hit in end.latest.items():
            if (name == pod or not name or not pod) and _is_later(hit.line, trouble.line):
                return True
    return False


def _pod(line: Line) -> str:
    found = _POD.search(line.text)
    return next((name for name in found.groups() if name), "") if found else ""


def _is_later(one: Line, other: Line) -> bool:
    """By time, else by the ages that kubectl shows, else by reading order."""
    if one.time is not None and other.time is not None and one.clock == other.clock:
        return (one.time, one.order) > (other.time, other.order)
    mine, theirs = _age(one.text), _age(other.text)
    if mine is not None and theirs is not None and one.source == other.source and mine != theirs:
        return mine < theirs
    return one.order > other.order


def _age(text: str) -> int | None:
    """Seconds of `40s`, `3m12s`, `2d4h`; of `40s (x2 over 5m)` the latest.

    None for the row of a pod: its age is not that of an event.
    """
    if _ROW.search(text):
        return None
    found = _AGE.search(text[:_AGE_WITHIN])
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
