"""A rank of a world: two rounds of pairs of ranks, by plain TCP and by the backend's own sockets."""

import os
from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from wirespeed.node.identity import Identity
from wirespeed.plan import Plan
from wirespeed.rank.joining import join, leave
from wirespeed.rank.pairs.fabric import RankFabric


def rounds(rank: int, size: int, store: str) -> dict[str, Any]:
    """{"tcp" or "backend": {readings, seconds, own}}."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    identity = Identity(
        rank=rank,
        world_size=size,
        local_rank=rank,
        local_world_size=size,
        launcher="local",
        reason="a test",
    )
    plan, met = Plan(command="locate", steps=()), dist.FileStore(store, size)
    place = join(identity, plan, met, "gloo", lambda: None, lambda bound: None)
    result = {}
    for way, own_sockets in (("tcp", True), ("backend", False)):
        fabric = RankFabric(place, "ranks", lambda label: None, own_sockets=own_sockets)
        readings = fabric.round([(0, 2)]) + fabric.round([(0, 1)])
        result[way] = {"readings": [asdict(one) for one in readings], **asdict(fabric.compute())}
        fabric.close()
    leave(place)
    return result
