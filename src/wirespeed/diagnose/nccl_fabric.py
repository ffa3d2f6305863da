"""How NCCL connected the ranks, gathered from the lines of all logs in bounded memory.

Rank numbers are those of a communicator, so lines are kept by communicator: a process says which one
it joins (`commId`), and its later lines belong to the one in which it has the rank that the line
names. Where that leaves several, the line is counted and no more.
"""

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from wirespeed.diagnose.prefix import strip

ANCHORS = (
    "INFO Channel ",
    "INFO Ring ",
    "INFO Trees ",
    "CollNet 0",
    "INFO Coll 0",
    " nranks ",
    "localRanks ",
)
"""Lines that hold one of these are read."""
_LONG = 1000
"""Bytes of a line that are looked at."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Who wrote a line: host, process, thread and GPU as NCCL prints them before it."""

    host: str = ""
    pid: int = 0
    thread: int = 0
    gpu: int = -1


@dataclass(frozen=True, slots=True)
class Link:
    """One connection of a channel from one rank to another."""

    channel: int
    index: int
    """0: collectives; 1: point to point."""
    sender: int
    receiver: int
    device: str
    """Of the rank that wrote the line."""
    side: Literal["send", "receive"]
    kind: str
    """`P2P/IPC`, `SHM`, `NET/IB`, `COLLNET/SHARP`, …"""
    gdr: bool

    @property
    def writer(self) -> int:
        return self.receiver if self.side == "receive" else self.sender


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's place in a ring."""

    channel: int
    rank: int
    follower: int


@dataclass(frozen=True, slots=True)
class Order:
    """A whole ring, from rank 0 on; `cut`: the line may not hold all ranks."""

    channel: int
    ranks: tuple[int, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class Trees:
    """How many channels have trees."""

    rank: int
    channels: int


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a communicator."""

    rank: int
    ranks: int
    name: str
    """Same on all ranks of the communicator; empty where that version prints none."""
    nodes: int = 0
    """As NCCL counts them; 0: this line does not tell."""


Said = Link | Part | Order | Trees | Member

_SEAT = re.compile(rb"([\w.-]+):(\d+):(\d+) \[(-?\d+)\]")
_LINK = re.compile(
    rb"(?:Channel|Ring) (\d+)(?:/(\d+))? : (\d+)(?:\[(\w+)\])? -> (\d+)(?:\[(\w+)\])? "
    rb"(?:\[(send|receive)\] )?via (\S[^\r\n]*)"
)
_PART = re.compile(rb"Ring (\d+) : (-?\d+) -> (\d+) -> (-?\d+)")
_ORDER = re.compile(rb"(?:Channel|Ring) (\d+)(?:/\d+)? :((?: +\d+)+)(\.\.\.| ?\.{1,3})?\s*$")
_TREES = re.compile(rb"Trees \[\d+\] .*?->(\d+)->")
_NET = re.compile(rb"NET/([^/]+)/-?\d+(?:\(\d+\))?(/GDRDMA)?")
_PEER = re.compile(rb"P2P/(direct pointer|indirect|\w+)")
_COLLNET = re.compile(
    rb"Coll(?:Net)? (\d+)(?:/\d+)? : (\d+) \[(send|receive)\] via (COLLNET/[^/]+)/-?\d+(/GDRDMA)?"
)
_MEMBER = re.compile(rb"comm 0x\w+ rank (\d+) n[rR]anks (\d+)")
_NODES = re.compile(rb" nNodes (\d+) ")
_COMM_ID = re.compile(rb" commId (0x\w+)")
_SPLIT = re.compile(rb" splitCount (\d+) color (-?\d+)")
_CUT_AT = 20
"""Ranks of a ring that NCCL before 2.18 prints at most, without saying that there are more."""


def read_line(raw: bytes) -> tuple[Seat, Said] | None:
    """Who wrote a line, and what it says; None where it is none of these."""
    line = raw[:_LONG]
    said = _said(line)
    if said is None:
        return None
    who = _SEAT.search(line)
    if who is None:  # another launcher's prefix may stand there instead
        return Seat(strip(line.decode("utf-8", "replace")).host or ""), said
    return Seat(who[1].decode("ascii", "replace"), int(who[2]), int(who[3]), int(who[4])), said


def _said(line: bytes) -> Said | None:
    if (found := _LINK.search(line)) is not None:
        return _link(found)
    if (found := _PART.search(line)) is not None:
        return Part(int(found[1]), int(found[3]), int(found[4]))
    if (found := _ORDER.search(line)) is not None:
        return _order(found)
    if (found := _MEMBER.search(line)) is not None:
        return _member(line, found)
    if (found := _COLLNET.search(line)) is not None:
        rank, side = int(found[2]), found[3] == b"receive"
        kind, gdr = found[4].decode("ascii", "replace"), found[5] is not None
        return Link(int(found[1]), 0, rank, rank, "", "receive" if side else "send", kind, gdr)
    if (found := _TREES.search(line)) is not None:
        return Trees(int(found[1]), line.count(b"->") // 2)
    return None


def _link(found: re.Match[bytes]) -> Link | None:
    kind = _kind(found[8])
    if not kind:
        return None
    received = found[7] == b"receive"
    device = found[6] if received else found[4]
    return Link(
        channel=int(found[1]),
        index=int(found[2] or 0),
        sender=int(found[3]),
        receiver=int(found[5]),
        device=(device or b"").decode("ascii", "replace"),
        side="receive" if received else "send",
        kind=kind,
        gdr=b"/GDRDMA" in found[8],
    )


def _kind(via: bytes) -> str:
    """`NET/IB` of `NET/IB/0(4)/GDRDMA`; empty for what is not known."""
    if (net := _NET.match(via)) is not None:
        return "NET/" + net[1].decode("ascii", "replace")
    if (peer := _PEER.match(via)) is not None:
        return "P2P/" + peer[1].decode("ascii", "replace")
    return "SHM" if via.startswith((b"SHM", b"direct shared memory")) else ""


def _order(found: re.Match[bytes]) -> Order:
    ranks = tuple(int(one) for one in found[2].split())
    return Order(int(found[1]), ranks, found[3] is not None or len(ranks) >= _CUT_AT)


def _member(line: bytes, found: re.Match[bytes]) -> Member:
    nodes, name = _NODES.search(line), ""
    if (id := _COMM_ID.search(line)) is not None:
        name = id[1].decode("ascii")
    elif (split := _SPLIT.search(line)) is not None:
        name = f"split {int(split[1])} color {int(split[2])}"
    return Member(int(found[1]), int(found[2]), name, int(nodes[1]) if nodes else 0)


_LINES_READ = 300_000
"""Lines that are read; more are counted."""
_PAIRS_KEPT = 20_000
"""Pairs of ranks kept of all communicators together; others are counted."""
_COMMS_KEPT = 4_096
_RANKS_KEPT = 65_536
"""A rank number from here on is taken for damage."""
_CHANNELS_KEPT = 64
"""As many as NCCL has at most."""


@dataclass(slots=True)
class Pair:
    """What connects one rank to another, in this direction."""

    channels: int = 0
    """Bit mask."""
    kinds: set[tuple[str, bool, int]] = field(default_factory=set)
    """Transport, GPUDirect RDMA or not, and connection: 0 for collectives, 1 for point to point."""
    where: str = ""
    """The first line: `job.log:41: Channel 00/0 : …`."""

    def of_collectives(self) -> set[str]:
        return {kind for kind, _, index in self.kinds if index == 0}


@dataclass(slots=True)
class Comm:
    """One communicator, as far as the logs tell."""

    name: str
    """`commId`; empty for what no communicator is named for."""
    size: int = 0
    """Ranks; 0: not told."""
    nodes: int = 0
    """As NCCL counts them; 0: not told."""
    mixed: bool = False
    """Lines of several communicators or runs are in it: who is where cannot be told."""
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[tuple[str, str], int] = field(default_factory=dict)
    rings: dict[int, "array[int]"] = field(default_factory=dict)
    """By channel: the rank that follows each rank, -1 where no line tells."""
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By channel: whole rings that one line tells."""
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    links: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """Lines by transport and GPUDirect RDMA."""
    net: dict[tuple[int, str], set[tuple[str, bool]]] = field(default_factory=dict)
    """By rank and side (`send`, `receive`): what its network connections are."""
    trees: int = 0

    def is_known(self) -> bool:
        """Whether ranks can be put on hosts: each on one, and no two with one name for all nodes."""
        some = set(self.hosts.values())
        return not self.mixed and bool(some) and not (self.nodes and len(some) > self.nodes)

    def order_of(self, channel: int) -> tuple[int, ...]:
        """The ring of a channel, from its lowest rank on; empty where it is not whole."""
        if channel in self.orders:
            return self.orders[channel]
        following = self.rings.get(channel, array("i"))
        ranks = [rank for rank, follower in enumerate(following) if follower >= 0]
        if not ranks or (self.size and len(ranks) != self.size):
            return ()
        found = [ranks[0]]
        while len(found) <= len(ranks):
            follower = following[found[-1]] if found[-1] < len(following) else -1
            if follower == found[0]:
                return tuple(found) if len(found) == len(ranks) else ()
            if follower < 0:
                return ()
            found.append(follower)
        return ()

    def channels(self) -> list[int]:
        return sorted({*self.orders, *self.rings})

    def place(self, rank: int, host: str, device: str = "") -> None:
        """Where a rank is; what cannot be so marks the communicator."""
        if not host:
            return
        self.mixed |= self.hosts.setdefault(rank, host) != host
        if device:
            self.mixed |= self.devices.setdefault((host, device), rank) != rank


class Fabric:
    """All communicators of a job. Feed it the lines that hold one of `nccl_lines.ANCHORS`."""

    def __init__(self) -> None:
        self.comms: dict[str, Comm] = {}
        self.more_lines = 0
        """Lines that were not read."""
        self.more_pairs = 0
        """Connections of pairs that are not kept."""
        self.unplaced: Counter[tuple[str, bool]] = Counter()
        """Links of processes in several communicators, which the line does not tell apart."""
        self._lines = 0
        self._pairs = 0
        self._now: dict[Seat, tuple[str, int]] = {}
        """The communicator that a thread joined last, and its rank there."""
        self._joined: dict[tuple[str, int, int], dict[str, int]] = {}
        """All communicators of a process and GPU, with its rank in each."""

    def see(self, raw: bytes, log: str, number: int) -> None:
        """One line, and where it stands."""
        if self._lines >= _LINES_READ:
            self.more_lines += 1
            return
        self._lines += 1
        found = read_line(raw)
        if found is not None:
            self._take(*found, raw, f"{log}:{number}")

    def all(self) -> list[Comm]:
        """Communicators with any line, the largest first."""
        told = [one for one in self.comms.values() if one.pairs or one.rings or one.orders]
        return sorted(told, key=lambda one: (-len(one.hosts), -len(one.pairs), one.name))

    def _take(self, seat: Seat, said: Said, raw: bytes, where: str) -> None:
        match said:
            case Member():
                self._join(seat, said)
            case Link():
                self._connect(seat, said, raw, where)
            case Part() | Trees():
                comm = self._comm_of(seat, said.rank)
                if comm is not None and said.rank < _RANKS_KEPT:
                    comm.place(said.rank, seat.host)
                    _add(comm, said)
            case Order():
                comm = self._comm_of(seat, said.ranks[0])
                if comm is not None and not said.cut and len(set(said.ranks)) == len(said.ranks):
                    _add(comm, said)

    def _join(self, seat: Seat, said: Member) -> None:
        now = self._now.get(seat)
        name = said.name
        if not name and said.nodes and now is not None and now[1] == said.rank:
            name = now[0]
        comm = self._comm(name)
        if comm is None or said.rank >= _RANKS_KEPT:
            return
        comm.mixed |= comm.size not in (0, said.ranks)
        comm.size, comm.nodes = said.ranks, comm.nodes or said.nodes
        comm.place(said.rank, seat.host)
        if said.name:
            self._now[seat] = said.name, said.rank
            process = seat.host, seat.pid, seat.gpu
            self._joined.setdefault(process, {})[said.name] = said.rank

    def _connect(self, seat: Seat, said: Link, raw: bytes, where: str) -> None:
        comm = self._comm_of(seat, said.writer, max(said.sender, said.receiver))
        if comm is None or max(said.sender, said.receiver) >= _RANKS_KEPT:
            self.unplaced[said.kind, said.gdr] += 1
            return
        comm.links[said.kind, said.gdr] += 1
        comm.place(said.writer, seat.host, said.device)
        if said.kind.startswith("COLLNET/"):
            return
        if said.kind.startswith("NET/"):
            comm.net.setdefault((said.writer, said.side), set()).add((said.kind, said.gdr))
        pair = comm.pairs.get((said.sender, said.receiver))
        if pair is None:
            if self._pairs >= _PAIRS_KEPT:
                self.more_pairs += 1
                return
            self._pairs += 1
            text = raw[raw.rfind(b"INFO ") + 5 :][:200].decode("utf-8", "replace").strip()
            pair = comm.pairs[said.sender, said.receiver] = Pair(where=f"{where}: {text}")
        pair.channels |= 1 << min(said.channel, _CHANNELS_KEPT - 1)
        pair.kinds.add((said.kind, said.gdr, said.index))

    def _comm_of(self, seat: Seat, rank: int, highest: int = 0) -> Comm | None:
        """Where this writer has that rank; None where several communicators could be meant."""
        joined = self._joined.get((seat.host, seat.pid, seat.gpu))
        if not joined:
            return self._comm("")
        now = self._now.get(seat)
        if now is not None and now[1] == rank and highest < self.comms[now[0]].size:
            return self._comm(now[0])
        own = [name for name, of in joined.items() if of == rank]
        fitting = [name for name in own if highest < self.comms[name].size]
        return self._comm(fitting[0]) if len(fitting) == 1 else None

    def _comm(self, name: str) -> Comm | None:
        found = self.comms.get(name)
        if found is None and len(self.comms) < _COMMS_KEPT:
            found = self.comms[name] = Comm(name)
        return found


def _add(comm: Comm, said: Part | Trees | Order) -> None:
    if isinstance(said, Trees):
        comm.trees = max(comm.trees, said.channels)
        return
    ranks = said.ranks if isinstance(said, Order) else (said.rank, said.follower)
    if said.channel >= _CHANNELS_KEPT or max(ranks) >= _RANKS_KEPT:
        return
    if isinstance(said, Order):
        whole = not comm.size or len(ranks) == comm.size
        comm.mixed |= whole and comm.orders.setdefault(said.channel, ranks) != ranks
    else:
        following = comm.rings.setdefault(said.channel, array("i"))
        following.extend([-1] * (said.rank + 1 - len(following)))
        following[said.rank] = said.follower
