"""A rank of a plan that needs only what the nodes are: no torch, no process group, no steps."""

import platform

from wirespeed import __version__
from wirespeed.model.codec import to_json
from wirespeed.model.node_facts import Facts
from wirespeed.node.facts import survey_node
from wirespeed.node.identity import Identity, own_seat
from wirespeed.plan import Plan
from wirespeed.watchdog.heartbeat import Heartbeat


def tell_facts(identity: Identity, plan: Plan, heartbeat: Heartbeat) -> None:
    """Tell where this rank is and, as the first of its node, what is there.

    Where the launcher tells no local rank every rank tells, and the session keeps the first of each
    node. Raises WorldError when the session is gone.
    """
    heartbeat.phase("running", bound_s=plan.startup_timeout_s)
    host, space = own_seat()
    heartbeat.record("seat", {"rank": identity.rank, "host": host, "space": space})
    if not identity.local_rank:
        node = survey_node((identity.rank,))
        heartbeat.record("node", to_json(node))
        if identity.rank == 0:
            heartbeat.record("versions", _versions(node.facts))


def _versions(facts: Facts) -> dict[str, str]:
    found = {"wirespeed": __version__, "python": platform.python_version()}
    return found | {n: told for n in ("torch", "cuda", "nccl") if (told := getattr(facts, n))}
