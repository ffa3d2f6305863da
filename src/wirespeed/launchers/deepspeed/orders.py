"""What the leash must know of ranks that start elsewhere: a file in the job's scratch folder."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.deepspeed.delivery import Node

__all__ = ["Orders", "orders_text", "read_orders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Names only: the values are the leash's own environment."""

    names: tuple[str, ...]
    """Variables that ranks shall get."""
    folder: str = ""
    """Where a node's ranks find them, under pdsh."""
    nodes: Sequence[Node] = ()
    """Under pdsh: to whom they are brought."""


def orders_text(orders: Orders) -> str:
    """As a file, for `read_orders`."""
    nodes = [asdict(node) for node in orders.nodes]
    told = {"names": sorted(orders.names), "folder": orders.folder, "nodes": nodes}
    return json.dumps(told) + "\n"


def read_orders(path: str) -> Orders:
    """UsageError where there are none."""
    try:
        told = json.loads(Path(path).read_text("utf-8"))
        nodes = [
            Node(tuple(one["words"]), int(one["number"]), tuple(map(int, one["ranks"])))
            for one in told["nodes"]
        ]
        return Orders(names=tuple(told["names"]), folder=told["folder"], nodes=nodes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: {error}", expected="orders for DeepSpeed's leash") from error
