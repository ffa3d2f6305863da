"""What ranks that cannot reach the session tell it all the same: letters in the world's store.

Where only the master port is open, the store is the one thing that every rank can reach. A letter is
what a node is, what it can reach, or the error that ends a rank; rank 0 reads them while it waits for
the ranks. Others may write there, too: what is no letter of this job is left alone, and told once.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert

from wirespeed.errors import WorldError
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import NodeFacts
from wirespeed.node.identity import Identity
from wirespeed.node.secret import SealedStore

FAILED, ODD = "failed", "odd"
_BOX = "wirespeed/letters"
_MOST_A_RANK, _MOST_BYTES, _DEEPEST = 16, 1 << 20, 6
_GET_S = 2.0
"""A letter that was seen to be there is there, unless somebody takes it away."""


class Letter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rank: int
    host: str
    kind: str
    """`node`, `peers`, `failed`, or `odd`: something else stands there."""
    data: dict[str, Any]


class Letters:
    """Writes letters of one rank."""

    def __init__(self, store: SealedStore, rank: int, host: str) -> None:
        self._store = store
        self._sender = {"rank": rank, "host": host}

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """As `Heartbeat.record`."""
        number = self._store.add(f"{_BOX}/count", 1) - 1
        letter = {**self._sender, "kind": kind, "data": data}
        self._store.set(f"{_BOX}/{number}", json.dumps(letter))

    def failed(self, exception: BaseException) -> None:
        """As `Heartbeat.failed`."""
        self.record(FAILED, {"error": f"{type(exception).__name__}: {exception}"})


class Mailbox:
    """Rank 0's reader; it has a connection of its own, since the main thread's may be waited on."""

    def __init__(self, store: SealedStore, ranks: int) -> None:
        self._store = store.clone()
        self._ranks = ranks
        self._read = 0
        if self._store is not None:
            self._store.store.set_timeout(timedelta(seconds=_GET_S))

    def letters(self) -> Iterator[Letter]:
        """Those that came since; `failed` ends a rank. However many there are, it takes so many."""
        with suppress(RuntimeError):  # the store is gone, or somebody has taken the letter away
            while self._read < _MOST_A_RANK * self._ranks and self._store is not None:
                key = f"{_BOX}/{self._read}"
                if not self._store.check([key]):
                    return
                self._read += 1
                try:
                    yield _letter(self._store.get(key), self._ranks)
                except ValueError as error:
                    saw = f"what stands in the store as a letter of a rank is none: {error}"
                    yield Letter(rank=0, host="", kind=ODD, data={"saw": saw})


def explain_by_letter(
    identity: Identity, store: SealedStore, error: WorldError, bound_s: float
) -> None:
    """Tell why this rank cannot take part: its error and, on a node's first rank, what it can reach."""
    from wirespeed.node.facts import gather_node
    from wirespeed.rank.echo_server import EchoServer

    letters = Letters(store, identity.rank, socket.gethostname())
    if not identity.local_rank:
        first = identity.rank
        node = gather_node(range(first, first + (identity.local_world_size or 1)))
        letters.record("node", to_json(node))
        with EchoServer(identity, node, store, letters, 0.0) as echo:
            echo.wait(bound_s)
    letters.failed(error)


# What a letter must be.


class _Peer(Struct, forbid_unknown_fields=True):
    rank: int
    host: str
    address: str
    port: int | float
    tcp: str
    resolves: list[str]
    resolve_error: str
    why: str = ""
    mtu: int | float | UnsetType = UNSET
    passes: int | float | UnsetType = UNSET
    clock_offset_s: int | float | UnsetType = UNSET
    clock_error_s: int | float | UnsetType = UNSET

    def is_sound(self, ranks: int) -> bool:
        bounded = self.passes is UNSET or self.mtu is not UNSET
        return (
            0 <= self.rank < ranks
            and bounded
            and (self.clock_offset_s is UNSET) == (self.clock_error_s is UNSET)
        )


class _Peers(Struct, forbid_unknown_fields=True):
    rank: int
    peers: list[_Peer]


class _Failure(Struct, forbid_unknown_fields=True):
    error: str


def _letter(text: bytes, ranks: int) -> Letter:
    """ValueError for anything that no rank of this version would write."""
    if len(text) > _MOST_BYTES:
        raise ValueError("it is too long")
    try:
        letter = convert(json.loads(text), Letter)
        sound = 0 < letter.rank < ranks and letter.host.isprintable() and _is_told(letter, ranks)
    except (
        ValidationError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise ValueError(f"it has another shape ({type(error).__name__})") from error
    if not sound:
        raise ValueError("it holds a value that cannot be")
    return letter


def _is_told(letter: Letter, ranks: int) -> bool:
    """Whether its data are such as its kind has; ValidationError and others where not."""
    match letter.kind:
        case "failed":
            convert(letter.data, _Failure)
            return True
        case "peers":
            told = convert(letter.data, _Peers)
            return told.rank == letter.rank and all(one.is_sound(ranks) for one in told.peers)
        case "node":
            return _is_node(letter, ranks)
    return False


def _is_node(letter: Letter, ranks: int) -> bool:
    node = from_json(NodeFacts, letter.data)
    words = (*node.environment.values(), *node.unknown.values(), node.host)
    devices = (*node.gpus, *node.nics, *node.rdma)
    return (
        letter.data.keys() <= set(NodeFacts.__slots__)
        and node.ranks[0] == letter.rank
        and all(type(rank) is int and 0 <= rank < ranks for rank in node.ranks)
        and all(isinstance(word, str) for word in words)
        and all(isinstance(one, dict) for one in devices)
        and not (node.peers or node.counters)
        and _is_flat(letter.data, _DEEPEST)
    )


def _is_flat(value: Any, depth: int) -> bool:
    """Whether lists and mappings lie in each other no deeper than that."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not inner or (depth > 0 and all(_is_flat(one, depth - 1) for one in inner))
