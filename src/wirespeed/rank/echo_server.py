"""Echo servers of the nodes while the world joins, and after: who can reach whom, and how well.

Joining hangs for as long as the backend likes (gloo: 50 s) when a port is closed, and then names no
machine. So while it takes long, a thread of each node's first rank asks the others' echo servers and
tells what it found; when some door stays shut, it ends the wait.
"""

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, Self

from wirespeed.errors import WorldError
from wirespeed.model.records import NodeFacts
from wirespeed.node.identity import Identity
from wirespeed.node.interfaces import resolve_name
from wirespeed.node.reachability import Caller, Door, knock, path_to_json, probe_path
from wirespeed.node.secret import SealedStore

SCOUT_AFTER_S = 3.0
"""How long joining may take, once every node is there, before anybody knocks."""
GIVE_UP_S = 3.0
"""After a door was found shut: time for the other nodes to tell the same, and for joining to work."""
_POLL_S = 0.5
_KNOCK_S = 2.0
_PATH_S = 3.0
_KNOCKED = 16
"""Nodes that one node knocks at while joining; in larger worlds the next ones in a ring."""
_SERVERS = "wirespeed/echo"
_READY = f"{_SERVERS}/ready"
"""How many servers are in the store. In large worlds nobody asks for more keys than it needs."""
_NEIGHBOURS = 2
"""Nodes whose path is looked at after joining: each node is seen by two others."""


class Voice(Protocol):
    """What is needed of the heartbeat."""

    def record(self, kind: str, data: dict[str, Any]) -> None: ...
    def failed(self, exception: BaseException) -> None: ...


class EchoServer:
    """This node's door, open while the `with` lasts, and the others'. On the node's first rank only.

    `joined()` ends the scout; `neighbours()` then looks at the paths.
    """

    def __init__(
        self, identity: Identity, node: NodeFacts, store: SealedStore, voice: Voice, shift_s: float
    ) -> None:
        self._rank = identity.rank
        self._nodes = identity.world_size // (identity.local_world_size or 1)
        self._host = node.host
        self._voice = voice
        self._joined = threading.Event()
        self._shift = shift_s
        address = _address(identity, node)
        self._bell = Caller(shift_s, address)
        # The thread's own: a connection that the main thread waits on is locked (torch 2.7+).
        self._store = store.clone()
        self._mine = store.add(f"{_SERVERS}/count", 1) - 1
        door = self._bell.door(identity.rank, node.host, address)
        store.set(f"{_SERVERS}/{self._mine}", door.to_json())
        store.add(_READY, 1)
        self._thread = threading.Thread(target=self._scout, name="scout", daemon=True)

    def __enter__(self) -> Self:
        if self._store is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._joined.set()
        self._bell.close()

    def joined(self) -> None:
        """The world is joined: nobody needs to be told why it is not."""
        self._joined.set()

    def wait(self, bound_s: float) -> None:
        """Until the scout has told what it found: for a rank that cannot join."""
        if self._store is not None:
            self._thread.join(bound_s)

    def neighbours(self) -> None:
        """Look at the paths to the next nodes and to the first one's clock, and tell it."""
        if self._all_there():
            chosen = self._next(_NEIGHBOURS)
            first = {0} - {self._mine, *chosen}
            self._tell([*chosen, *first])

    def _scout(self) -> None:
        """The thread: wait for all nodes, knock, tell, and give up when a door stays shut."""
        # Where the session or the store is gone, others say so.
        with suppress(WorldError, RuntimeError):
            self._look_for_shut_doors()

    def _look_for_shut_doors(self) -> None:
        while not self._all_there():
            if self._joined.wait(_POLL_S):
                return
        if self._joined.wait(SCOUT_AFTER_S):
            return
        shut = self._tell(self._next(_KNOCKED))
        if shut and not self._joined.wait(GIVE_UP_S):
            self._voice.failed(_unreachable(self._host, shut))

    def _all_there(self) -> bool:
        """Whether every node's door is in the store."""
        return self._store is not None and self._store.add(_READY, 0) >= self._nodes

    def _next(self, most: int) -> list[int]:
        """The numbers of the servers after mine, in a ring."""
        return [(self._mine + step) % self._nodes for step in range(1, min(most + 1, self._nodes))]

    def _tell(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Record what each door showed; those that are shut, or that large packets do not reach."""
        if self._store is None or not numbers:
            return []
        servers = [door for number in numbers if (door := self._door(self._store, number))]
        if not servers:
            return []
        with ThreadPoolExecutor(len(servers), "knock") as threads:
            peers = list(threads.map(self._look, servers))
        self._voice.record("peers", {"rank": self._rank, "peers": peers})
        return [peer for peer in peers if peer["tcp"] or _loses(peer)]

    def _door(self, store: SealedStore, number: int) -> Door | None:
        """None where somebody else has written there, which is told."""
        try:
            return Door.from_json(store.get(f"{_SERVERS}/{number}"))
        except ValueError as error:
            saw = f"what stands in the store as a node's door is none: {error}"
            self._voice.record("odd", {"saw": saw})
            return None

    def _look(self, door: Door) -> dict[str, Any]:
        """Whether it can be reached, and by what size of packets; its clock; what its name leads to."""
        named = resolve_name(door.host)
        return {
            "rank": door.rank,
            "host": door.host,
            "address": door.address,
            "port": door.port,
            "tcp": knock(door, _KNOCK_S),
            **path_to_json(probe_path(door, _PATH_S, self._shift)),
            "resolves": list(named.addresses),
            "resolve_error": named.reason,
        }


def _address(identity: Identity, node: NodeFacts) -> str:
    """What this node's libraries announce, or the address that leads to the master."""
    if node.facts.net_gloo_address is not None:
        return node.facts.net_gloo_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect((identity.master_addr or "localhost", identity.master_port or 1))
        except OSError:
            return "127.0.0.1"
        return str(udp.getsockname()[0])


def _loses(peer: dict[str, Any]) -> bool:
    """Whether large packets are known not to arrive."""
    return "passes" in peer and bool(peer["passes"] < peer["mtu"])


def _unreachable(host: str, shut: Sequence[dict[str, Any]]) -> WorldError:
    first = shut[0]
    more = f" and {len(shut) - 1} more" if len(shut) > 1 else ""
    problem = first["tcp"] or f"packets above {first['passes']} bytes are lost"
    return WorldError(
        f"{host} cannot reach {first['host']} at {first['address']}:{first['port']} "
        f"({problem}){more}, so that the world cannot be joined",
        expected="TCP between all nodes, at any port",
        next=f"on {host}: nc -vz {first['address']} {first['port']}",
    )
