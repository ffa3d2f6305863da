"""A rank of a plan that needs only what the nodes are: no torch, no process group, no steps."""

import platform
from dataclasses import asdict

from wirespeed import __version__
from wirespeed.plan import Plan
from wirespeed.world.identity import Identity
from wirespeed.world.seats import own_seat
from wirespeed.world.survey import survey_node
from wirespeed.world.watch.beacon import Beacon

__all__ = ["tell_facts"]


def tell_facts(identity: Identity, plan: Plan, beacon: Beacon) -> None:
    """Tell where this rank is and, as the first of its node, what is there.

    Where the launcher tells no local rank every rank tells, and the console keeps the first of each
    node. Raises WorldError when the console is gone.
    """
    beacon.phase("running", bound_s=plan.startup_timeout_s)
    host, space = own_seat()
    beacon.record("seat", {"rank": identity.rank, "host": host, "space": space})
    if not identity.local_rank:
        node = survey_node((identity.rank,))
        beacon.record("node", asdict(node))
        if identity.rank == 0:
            beacon.record("versions", _versions(node.facts))


def _versions(facts: dict[str, object]) -> dict[str, str]:
    found = {"wirespeed": __version__, "python": platform.python_version()}
    return found | {name: str(facts[name]) for name in ("torch", "cuda", "nccl") if name in facts}
