"""A run shows itself to the others of each node that it measures on, and tells whom it met there."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from wirespeed.node.neighbours import Presence
from wirespeed.plan import Plan
from wirespeed.rank.place import Place
from wirespeed.rank.steps import Reporter


@contextmanager
def present(place: Place, plan: Plan, heartbeat: Reporter) -> Iterator[None]:
    """What is done within is measured; collective. Told by the first rank of a node, if by any."""
    mark = place.control.objects(secrets.token_hex(8), str)[0]
    if place.hosts.index(place.hosts[place.rank]) != place.rank:
        yield
        return
    presence = Presence(plan.command, mark)
    try:
        yield
        if others := [asdict(one) for one in presence.others()]:
            heartbeat.record("neighbours", {"rank": place.rank, "others": others})
    finally:
        presence.leave()
