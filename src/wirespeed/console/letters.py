"""What ranks that cannot reach the console tell it all the same: letters in the world's store.

Where only the master port is open, the store is the one thing that every rank can reach. A letter is
a record or the error that ends a rank; rank 0 reads them while it waits for the ranks.
"""

import json
import socket
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wirespeed.errors import WorldError
from wirespeed.world.identity import Identity

if TYPE_CHECKING:
    import torch.distributed as dist

__all__ = ["Letters", "Postman", "explain_by_letter"]

_BOX = "wirespeed/letters"
_FAILED = "failed"


class Letters:
    """Writes letters of one rank."""

    def __init__(self, store: "dist.Store", rank: int, host: str) -> None:
        self._store = store
        self._sender = {"rank": rank, "host": host}

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """As `Beacon.record`."""
        number = self._store.add(f"{_BOX}/count", 1) - 1
        letter = {**self._sender, "kind": kind, "data": data}
        self._store.set(f"{_BOX}/{number}", json.dumps(letter))

    def failed(self, exception: BaseException) -> None:
        """As `Beacon.failed`."""
        self.record(_FAILED, {"error": f"{type(exception).__name__}: {exception}"})


class Postman:
    """Rank 0's reader; it has a connection of its own, since the main thread's may be waited on."""

    def __init__(self, store: "dist.Store") -> None:
        clone = getattr(store, "clone", None)
        self._store: dist.Store | None = clone() if clone is not None else None
        self._read = 0

    def letters(self) -> Iterator[tuple[int, str, str, dict[str, Any]]]:
        """(rank, host, kind, data) of those that came since; `failed` ends a rank."""
        while self._store is not None and self._store.check([f"{_BOX}/{self._read}"]):
            letter = json.loads(self._store.get(f"{_BOX}/{self._read}"))
            self._read += 1
            yield letter["rank"], letter["host"], letter["kind"], letter["data"]


def explain_by_letter(
    identity: Identity, store: "dist.Store", error: WorldError, bound_s: float
) -> None:
    """Tell why this rank cannot take part: its error and, on a node's first rank, what it can reach."""
    from wirespeed.ranks.doors import Doors
    from wirespeed.world.facts import gather_node

    letters = Letters(store, identity.rank, socket.gethostname())
    if not identity.local_rank:
        first = identity.rank
        node = gather_node(range(first, first + (identity.local_world_size or 1)))
        letters.record("node", asdict(node))
        with Doors(identity, node, store, letters, 0.0) as doors:
            doors.wait(bound_s)
    letters.failed(error)
