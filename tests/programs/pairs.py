"""Runs as a rank: two rounds of pairs of ranks, by plain TCP and by the backend's own sockets.

Every rank writes what it got to RESULT.<rank>, as JSON: {"tcp" or "backend": {readings, seconds, own}}.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

import torch.distributed as dist

from wirespeed.plan import Plan
from wirespeed.ranks.join import join, leave
from wirespeed.ranks.pairs.fabric import RankFabric
from wirespeed.world.identity import Identity

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
identity = Identity(
    rank=rank,
    world_size=size,
    local_rank=rank,
    local_world_size=size,
    launcher="local",
    reason="a test",
)
store = dist.FileStore(os.environ["STORE"], size)
place = join(
    identity, Plan(command="locate", steps=()), store, "gloo", lambda: None, lambda bound: None
)
result = {}
for way, own_sockets in (("tcp", True), ("backend", False)):
    fabric = RankFabric(place, "ranks", lambda label: None, own_sockets=own_sockets)
    readings = fabric.round([(0, 2)]) + fabric.round([(0, 1)])
    result[way] = {"readings": [asdict(one) for one in readings], **asdict(fabric.compute())}
    fabric.close()
Path(f"{os.environ['RESULT']}.{rank}").write_text(json.dumps(result))
leave(place)
