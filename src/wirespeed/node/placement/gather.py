"""All sources at once, bounded as a whole; the best answer, filled up from the others."""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wirespeed.node.placement.clouds import ask_aws, ask_azure, ask_gcp
from wirespeed.node.placement.kubernetes import ask_kubernetes
from wirespeed.node.placement.located import FACTS, NAME, Asked, NoAnswer, Placement, valued
from wirespeed.node.reading import Notes

_VARIABLES = {
    "zone": "WIRESPEED_ZONE",
    "zone_id": "WIRESPEED_ZONE_ID",
    "region": "WIRESPEED_REGION",
    "placement_group": "WIRESPEED_PLACEMENT_GROUP",
    "rack": "WIRESPEED_RACK",
    "physical_host": "WIRESPEED_PHYSICAL_HOST",
}


def ask_environment(asked: Asked) -> Placement | None:
    """The variables that are set; None: none is. Raises NoAnswer."""
    found = {
        field: valued(asked.environ[name], NAME, name)
        for field, name in _VARIABLES.items()
        if asked.environ.get(name)
    }
    if not found:
        return None
    known = "zone" in found or "zone_id" in found
    return Placement(
        source="environment", reason="" if known else "WIRESPEED_ZONE is not set", **found
    )


_PART = re.compile(r"[\w\[\],:-]{1,255}", re.ASCII)


def ask_slurm(asked: Asked) -> Placement | None:
    """The leaf switch or block as the rack; None: not in a Slurm step. Raises NoAnswer.

    srun sets the variables on each node. A launcher that copies the environment of the first node
    to the others makes them all alike, so an address that names another node is not believed.
    """
    address = asked.environ.get("SLURM_TOPOLOGY_ADDR", "")
    if not address:
        return None
    kinds = asked.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    levels = len(kinds) - 1 if kinds[-1] == "node" else address.count(".")
    *above, node = address.split(".", levels)
    here = socket.gethostname()
    if node.partition(".")[0] != here.partition(".")[0]:
        raise NoAnswer(f"SLURM_TOPOLOGY_ADDR was not set on this node ({here}): start it with srun")
    if not above:
        raise NoAnswer("SLURM_TOPOLOGY_ADDR has no switch: no topology plugin is configured")
    if len(above) != levels or not all(_PART.fullmatch(part) for part in above):
        raise NoAnswer("SLURM_TOPOLOGY_ADDR does not fit SLURM_TOPOLOGY_ADDR_PATTERN")
    return Placement(source="slurm", rack=above[-1], reason="Slurm's topology tells no zone")


BOUND_S = 1.0
"""Seconds that every source has; all run at once."""
_GRACE_S = 0.1
"""For a source that was cut off to say so in its own words."""
_ROOT = Path("/")

_SOURCES: dict[str, Callable[[Asked], Placement | None]] = {
    "environment": ask_environment,
    "aws": ask_aws,
    "azure": ask_azure,
    "gcp": ask_gcp,
    "kubernetes": ask_kubernetes,
    "slurm": ask_slurm,
}
"""In the order of their word: what a person set, the cloud itself, then what is told of it."""
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
    threads = {name: _started(name, asked, answers) for name in _SOURCES}
    for thread in threads.values():
        thread.join(max(0.0, asked.deadline + _GRACE_S - time.monotonic()))
    for name, thread in threads.items():
        if thread.is_alive():  # name resolution has no bound of its own
            answers.setdefault(name, Placement(source=name, reason="no answer in time"))
    return _best([answers[name] for name in _SOURCES if name in answers])


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
            found = _SOURCES[name](asked)
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
