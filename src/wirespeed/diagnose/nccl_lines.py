"""What one line of NCCL or RCCL tells of channels, rings and communicators, in every version since 2.4.

Read from the formats in NCCL's public sources (src/transport/*.cc, src/init.cc, src/graph/rings.cc):

- `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read`: channel, connection, ranks with their devices
  (GPU index, bus id or NVML index, by version). Until 2.6 `Ring 00 : 0[0] -> 1[1] via …`.
- `… [send] via NET/IB/0(4)/GDRDMA(PCI)/Shared`: device 0, through rank 4 (PXN), without a copy
  through host memory. The sender writes `send` lines and those of P2P and SHM, the receiver `receive`.
- `Ring 00 : 7 -> 0 -> 1`: one rank's neighbours; `Channel 00/02 :  0  1  2`: the whole ring, written
  by rank 0 and cut at 20 ranks or 128 characters.
"""

import re
from dataclasses import dataclass
from typing import Literal

from wirespeed.diagnose.prefix import strip

__all__ = ["ANCHORS", "Link", "Member", "Order", "Part", "Said", "Seat", "Trees", "read_line"]

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
    nodes = _NODES.search(line)
    name = ""
    if (id := _COMM_ID.search(line)) is not None:
        name = id[1].decode("ascii")
    elif (split := _SPLIT.search(line)) is not None:
        name = f"split {int(split[1])} color {int(split[2])}"
    return Member(int(found[1]), int(found[2]), name, int(nodes[1]) if nodes else 0)
