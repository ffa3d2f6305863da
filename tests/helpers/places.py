"""A rank's place in a world of tests (worlds.py): all ranks on one node, computing with its cores."""

from typing import Any

import torch
import torch.distributed as dist

from wirespeed.collectives.engines.torch_engine import TorchEngine
from wirespeed.rank.place import Control, Place


def place_of(rank: int, ranks: int, **changes: Any) -> Place:
    """changes: what is other than usual, by the name of its field."""
    told: dict[str, Any] = {
        "rank": rank,
        "world_size": ranks,
        "hosts": ("here",) * ranks,
        "local_ranks": tuple(range(ranks)),
        "racks": ("",) * ranks,
        "gpus": ("",) * ranks,
        "engine": TorchEngine("gloo", torch.device("cpu")),
        "control": Control(dist.new_group(), rank, ranks),
        "store": None,
        "tick": lambda: None,
        "busy": lambda bound: None,
        "cache_bytes": None,
        "groups": {},
    }
    return Place(**told | changes)
