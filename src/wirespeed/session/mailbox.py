"""What ranks that cannot reach the session tell it all the same: letters in the world's store.

Where only the master port is open, the store is the one thing that every rank can reach. A letter is
what a node is, what it can reach, or the error that ends a rank; rank 0 reads them while it waits for
the ranks. Others may write there, too: what is no letter of this job is left alone, and told once.
"""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
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


def _letter(text: bytes, ranks: int) -> Letter:
    """ValueError for anything that no rank of this version would write."""
    if len(text) > _MOST_BYTES:
        raise ValueError("it is too long")
    try:
        letter = Letter(**json.loads(text))
        sound = _is_sender(letter, ranks) and _SHAPES[letter.kind](letter, ranks)
    except (TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it has another shape ({type(error).__name__})") from error
    if not sound:
        raise ValueError("it holds a value that cannot be")
    return letter


def _is_sender(letter: Letter, ranks: int) -> bool:
    return (
        _is_rank(letter.rank, ranks)
        and letter.rank > 0
        and isinstance(letter.host, str)
        and letter.host.isprintable()
        and isinstance(letter.data, dict)
    )


def _is_rank(value: Any, ranks: int) -> bool:
    return type(value) is int and 0 <= value < ranks


def _is_failure(letter: Letter, _: int) -> bool:
    return letter.data.keys() == {"error"} and isinstance(letter.data["error"], str)


def _is_node(letter: Letter, ranks: int) -> bool:
    node = from_json(NodeFacts, letter.data)
    words = (*node.environment.values(), *node.unknown.values(), node.host)
    devices = (*node.gpus, *node.nics, *node.rdma)
    return (
        letter.data.keys() <= set(NodeFacts.__slots__)
        and node.ranks[0] == letter.rank
        and all(_is_rank(rank, ranks) for rank in node.ranks)
        and all(isinstance(word, str) for word in words)
        and all(isinstance(one, dict) for one in devices)
        and not (node.peers or node.counters)
        and _is_flat(letter.data, _DEEPEST)
    )


def _is_flat(value: Any, depth: int) -> bool:
    """Whether lists and mappings lie in each other no deeper than that."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not inner or (depth > 0 and all(_is_flat(one, depth - 1) for one in inner))


def _is_peers(letter: Letter, ranks: int) -> bool:
    return (
        letter.data.keys() == {"rank", "peers"}
        and letter.data["rank"] == letter.rank
        and all(_is_peer(one, ranks) for one in letter.data["peers"])
    )


def _is_peer(peer: dict[str, Any], ranks: int) -> bool:
    texts = [peer[name] for name in ("host", "address", "tcp", "resolve_error")]
    numbers = [peer[name] for name in _FIGURES if name in peer]
    return (
        _is_rank(peer["rank"], ranks)
        and all(isinstance(text, str) for text in (*texts, *peer["resolves"], peer.get("why", "")))
        and all(type(number) in (int, float) for number in (peer["port"], *numbers))
        and peer.keys() <= {*_PEER, *_FIGURES}
        and ("passes" in peer) <= ("mtu" in peer)
        and ("clock_offset_s" in peer) == ("clock_error_s" in peer)
    )


_FIGURES = ("mtu", "passes", "clock_offset_s", "clock_error_s")
_PEER = ("rank", "host", "address", "port", "tcp", "resolves", "resolve_error", "why")
_SHAPES: dict[str, Callable[[Letter, int], bool]] = {
    "node": _is_node,
    "peers": _is_peers,
    FAILED: _is_failure,
}
