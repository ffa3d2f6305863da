"""A table of nccl-tests as read, before it becomes a run. Seconds and bytes, as everywhere."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.model.records import Choice, TimeStats, ToldShape


@dataclass(frozen=True, slots=True)
class Device:
    """One line of the device list."""

    rank: int
    group: int
    host: str
    index: int
    bus: str
    """PCIe address as printed: `0000:0f:00`, or `0x27` in old versions."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One half of a row: out-of-place or in-place."""

    time: float
    algbw: float
    busbw: float
    wrong: int | None = None
    error: float | None = None
    """Largest relative error, as versions before `#wrong` print it."""
    stats: TimeStats | None = None
    """Where the tool was asked for a report an iteration."""
    time_step: float = 0.0
    """Half of the last printed digit of `time`."""
    busbw_step: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    size: int
    count: int
    dtype: str
    """As printed: `float`, `half`, …"""
    redop: str
    """Empty where the column is."""
    root: int | None
    """None where there is no such column."""
    sides: dict[bool, Side]
    """By `in_place`."""
    iterations: int | None = None


@dataclass(slots=True)
class Table:
    """One table with what stands around it."""

    program: str = ""
    devices: list[Device] = field(default_factory=list)
    all_devices: bool = True
    """False where the list was shortened by hand."""
    rows: list[Row] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    """`iters`, `warmup iters`, `agg iters`, `validation`, `graph`, `minBytes`, `maxBytes`."""
    blocking: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    """Whether the closing lines were there."""
    out_of_bounds: int | None = None
    damaged: int = 0
    """Rows that began and could not be read, such as rows with a log line in their middle."""
    errors: list[str] = field(default_factory=list)
    """What the tool itself reported."""
    seconds: float = 0.0

    @property
    def ranks(self) -> int:
        """Ranks of one group; 0 where the list is absent, shortened or uneven."""
        if not self.devices or not self.all_devices:
            return 0
        sizes = set(Counter(device.group for device in self.devices).values())
        listed = max(device.rank for device in self.devices) + 1
        if len({device.group for device in self.devices}) == 1:
            return listed  # of a list with holes the last rank tells how many there are
        return sizes.pop() if len(sizes) == 1 and listed == len(self.devices) else 0

    def sides(self) -> Iterator[tuple[Row, Side]]:
        for row in self.rows:
            for side in row.sides.values():
                yield row, side


# Nodes, GPUs a node and what lies between nodes, as far as a log of nccl-tests tells them.

Fabric = tuple[ToldShape, Choice]
"""The interconnect, and how it is known."""

_BOARD = 8
"""GPUs of the larger of the two boards that SXM modules come on; the other has 4."""
_SXM = re.compile(r"\bSXM\d?\b|\bH[12]00\b(?!.*(?:PCIe|NVL))|\bHBM3e?\b")
_PORT = re.compile(r"\[\d+\]\s*[\w.-]+:\d+/(IB|RoCE)\b")
_IB_LINE = re.compile(r"NET/IB : Using (.*)")
_NETWORK = re.compile(r"NCCL INFO Using network (\S[^\r\n]{0,40})")
_NETWORKS = {
    "socket": "tcp",
    "aws libfabric": "efa",
    "fastrak": "tcpxo",
}
"""By what NCCL prints as its network, in small letters."""


def layout_of(table: Table, ranks: int) -> ToldShape | None:
    """Of a table whose list of devices was shortened; None where the list is whole or tells nothing."""
    devices = sorted(table.devices, key=lambda one: one.rank)
    if table.all_devices or not devices or len({one.group for one in devices}) > 1:
        return None
    per_node, why, guessed = _per_node(devices)
    if not per_node or not ranks or ranks % per_node:
        return None
    nodes = ranks // per_node
    return ToldShape(gpus_per_node=per_node, nodes=nodes, why=why, guessed=guessed)


def _per_node(devices: Sequence[Device]) -> tuple[int, str, bool]:
    """(GPUs of the first node, how that is known, whether it is only likely); 0: not known."""
    first = devices[0].host
    listed = [one for one in devices if one.host == first]
    whole = [one.rank for one in devices] == list(range(len(devices)))
    if whole and len(listed) < len(devices):
        why = f"{first} is listed with ranks 0 to {len(listed) - 1}, then another node"
        return len(listed), why, False
    most = max(one.index for one in listed) + 1
    if _BOARD // 2 < most <= _BOARD and all(_SXM.search(one.name) for one in listed):
        why = f"device {most - 1} is listed, and SXM modules mostly come on boards of 4 or 8"
        return _BOARD, why, True
    return 0, "", False


def fabric_in(text: str) -> Fabric | None:
    """What NCCL's own lines say that it uses between nodes; None where they are absent or differ."""
    networks = {found.strip().lower() for found in _NETWORK.findall(text)}
    kinds = {next((v for k, v in _NETWORKS.items() if one.startswith(k)), one) for one in networks}
    if len(kinds) > 1:
        return None
    network = kinds.pop() if kinds else ""
    cards = {tuple(_PORT.findall(line)) for line in _IB_LINE.findall(text)} - {()}
    if network in _NETWORKS.values():
        told, why = ToldShape(interconnect=network), "NCCL's line `Using network`"
    elif network in ("", "ib") and len(cards) == 1:
        (ports,) = cards
        kind = {"IB": "ib", "RoCE": "roce"}[ports[0]] if len(set(ports)) == 1 else "rdma"
        # Their number is not told: the line lists storage cards, too.
        told, why = ToldShape(interconnect=kind), "NCCL's line `NET/IB : Using`"
    else:
        return None
    return told, Choice("interconnect", told.interconnect, why)
