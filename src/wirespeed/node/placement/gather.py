"""All sources at once, bounded as a whole; the best answer, filled up from the others."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wirespeed.node.placement import FACTS, Asked, NoAnswer, Placement
from wirespeed.node.placement.sources import SOURCES
from wirespeed.node.reading import Notes

BOUND_S = 1.0
"""Seconds that every source has; all run at once."""
_GRACE_S = 0.1
"""For a source that was cut off to say so in its own words."""
_ROOT = Path("/")

_NOBODY = (
    "no source knows: the firmware names no cloud, WIRESPEED_ZONE and WIRESPEED_*_METADATA are not "
    "set, this is no pod and no Slurm step"
)


def gather_placement(environ: Mapping[str, str] | None = None, root: Path = _ROOT) -> Placement:
    """Where this node stands, within about a second; `reason` says why where it is not known.

    `environ` and `root` stand in for os.environ and / in tests.
    """
    known = os.environ if environ is None else environ
    asked = Asked(known, root, time.monotonic() + BOUND_S)
    answers: dict[str, Placement] = {}
    threads = {name: _started(name, asked, answers) for name in SOURCES}
    for thread in threads.values():
        thread.join(max(0.0, asked.deadline + _GRACE_S - time.monotonic()))
    for name, thread in threads.items():
        if thread.is_alive():  # name resolution has no bound of its own
            answers.setdefault(name, Placement(source=name, reason="no answer in time"))
    return _best([answers[name] for name in SOURCES if name in answers])


def note_placement(notes: Notes, environ: Mapping[str, str] | None = None) -> None:
    """Note the placement as facts `placement.zone` and so on; no zone: why, as `placement`."""
    found = gather_placement(environ, notes.root)
    for name in FACTS:
        if value := getattr(found, name):
            notes.keep(f"placement.{name}", value)
    if found.reason:
        notes.unknown["placement"] = found.reason


def _started(name: str, asked: Asked, answers: dict[str, Placement]) -> threading.Thread:
    def ask() -> None:
        try:
            found = SOURCES[name](asked)
        except NoAnswer as why:
            found = Placement(source=name, reason=str(why))
        if found is not None:
            answers[name] = found

    # A daemon, so that one that hangs in name resolution does not keep the process from ending.
    thread = threading.Thread(target=ask, name=f"placement-{name}", daemon=True)
    thread.start()
    return thread


def _best(answers: Sequence[Placement]) -> Placement:
    """The first that has a zone, else the first with any fact, with what the others add."""
    if not answers:
        return Placement(reason=_NOBODY)
    telling = [one for one in answers if _facts(one)]
    zoned = [one for one in telling if one.zone or one.zone_id]
    if not telling:
        return Placement(reason=_reasons(answers))
    best = (zoned or telling)[0]
    filled = _filled(best, [one for one in telling if one is not best])
    return filled if zoned else replace(filled, reason=_reasons(answers))


def _facts(placement: Placement) -> list[str]:
    return [name for name in FACTS if name != "source" and getattr(placement, name)]


def _reasons(answers: Sequence[Placement]) -> str:
    return "; ".join(f"{one.source}: {one.reason}" for one in answers if one.reason)


def _filled(best: Placement, others: Sequence[Placement]) -> Placement:
    """`best` with fields that only others know; zones only from one that means the same zone."""
    for other in others:
        same = bool(best.zone) and best.zone == other.zone
        wanted = set(_facts(other)) - set(_facts(best))
        added = {
            name: getattr(other, name)
            for name in sorted(wanted)
            if same or name not in ("zone", "zone_id", "region")
        }
        if added:
            best = replace(best, source=f"{best.source}, {other.source}", **added)
    return best
