"""A table of nccl-tests as read, before it becomes a run; which operation, ranks and nodes it tells.

Seconds and bytes, as everywhere.
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import BusFactor, Collective
from wirespeed.errors import InputError, UsageError
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
    process: int = 0
    """Its process's id; 0: not known."""


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
    cpu: bool = False
    """Whether `time` is what the host took to enqueue the operation (`-C 1`): no duration of it."""
    processes: tuple[tuple[float, ...], ...] = ()
    """Times of each iteration by process, where the report holds them."""


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
    at: str = ""
    """When it was printed; empty: not told."""


@dataclass(slots=True)
class Table:
    """One table with what stands around it."""

    program: str = ""
    engine: str = "nccl-tests"
    """What measured it, as a measurement has it."""
    launcher: str = "nccl-tests"
    """The tool, as a run's world names it."""
    told: ToldShape | None = None
    """Nodes and ranks per node, where the file names them."""
    copies: int = 1
    """How often the same rows are in the file; they count once."""
    told_ranks: int = 0
    """Ranks, where the file names their number instead of a list of devices."""
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
            return self.told_ranks
        sizes = set(Counter(device.group for device in self.devices).values())
        listed = max(device.rank for device in self.devices) + 1
        if len({device.group for device in self.devices}) == 1:
            return listed  # of a list with holes the last rank tells how many there are
        return sizes.pop() if len(sizes) == 1 and listed == len(self.devices) else 0

    def sides(self) -> Iterator[tuple[Row, Side]]:
        for row in self.rows:
            for side in row.sides.values():
                yield row, side


def one_figure(time: float) -> TimeStats:
    """Of a source that tells one average; its run says that the interval is not known."""
    names = ("median", "mean", "low", "high", "min", "p95", "p99", "max")
    return TimeStats(**dict.fromkeys(names, time))


# Nodes, GPUs a node and what lies between nodes, as far as a log of nccl-tests tells them.

Fabric = tuple[ToldShape, Choice]
"""The interconnect, and how it is known."""

_BOARD = 8
"""GPUs of the larger of the two boards that SXM modules come on; the other has 4."""
_SXM = re.compile(r"\bSXM\d?\b|\bH[12]00\b(?!.*(?:PCIe|NVL))|\bHBM3e?\b")
_PORT = re.compile(r"\[\d+\]\s*[\w.-]+:\d+/(IB|RoCE)\b")
_IB_LINE = re.compile(r"NET/IB : Using (.*)")
_NETWORK = re.compile(r"NCCL INFO Using network (\S[^\r\n]{0,40})")
_NETWORKS = {"socket": "tcp", "aws libfabric": "efa", "fastrak": "tcpxo"}
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


# Which operation a table measured, and over how many ranks, where it does not say.

STDIN = "standard input"
"""The name of what was piped in."""


OPERATIONS = {one.name: one for one in CATALOGUE.values() if one.program} | {
    "hypercube": replace(
        CATALOGUE["all_gather"],
        name="hypercube",
        bus_factor=BusFactor(1, shared=True),
        program="hypercube",
    )
}
"""What nccl-tests has programs for. We have no hypercube of our own: it gathers, as all_gather does."""

_BY_LETTERS = {name.replace("_", ""): name for name in OPERATIONS}
_NAME = re.compile(
    r"(?<![a-z])("
    + "|".join("_?".join(name.split("_")) for name in sorted(OPERATIONS, key=len, reverse=True))
    + r")(?![a-z])"
)
_CLEAR_OF_ONE = 1.05
_LARGEST_WORLD = 1_000_000


def argument(name: str) -> str:
    """The file as it is written in a command."""
    return "-" if name == STDIN else shlex.quote(name)


def operation_in(text: str) -> str:
    """The one operation named in `text` (a program, a path, an option), or an empty text."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower())
    found = {_BY_LETTERS[match.replace("_", "")] for match in _NAME.findall(plain)}
    return found.pop() if len(found) == 1 else ""


def choose_operation(table: Table, *, option: str, name: str) -> tuple[str, Choice]:
    """The operation and why: the table itself, `--op`, the file's name, then busbw over algbw.

    InputError where none of them tells; UsageError where `--op` contradicts the table.
    """
    told = operation_in(table.program)
    if told and option and told != option:
        raise UsageError(
            f"--op {option}, but {name} was written by {table.program}",
            expected=f"--op {told}, or no --op",
        )
    if told:
        return told, Choice("operation", told, f"the file names {table.program}")
    if option:
        return option, Choice("operation", option, "--op")
    if named := operation_in(name.rpartition("/")[2]):
        return named, Choice("operation", named, f"the file's name, {name.rpartition('/')[2]}")
    return _by_ratio(table, name)


def _by_ratio(table: Table, name: str) -> tuple[str, Choice]:
    clearest = max(table.sides(), key=lambda pair: pair[1].busbw, default=None)
    fitting: list[str] = []
    if clearest and clearest[1].algbw > 0 and clearest[1].busbw >= 1e9:
        fitting = [op.name for op in OPERATIONS.values() if _fits(op, table, *clearest)]
    if len(fitting) != 1:
        could = f"; its figures fit {', '.join(fitting)}" if fitting else ""
        raise InputError(
            f"{name}: the table does not tell which operation was measured{could}",
            expected="--op with one of " + ", ".join(OPERATIONS),
            next=f"wirespeed runs import {argument(name)} --op {(fitting or ['all_reduce'])[0]}",
        )
    ratio = clearest[1].busbw / clearest[1].algbw if clearest else 0.0
    reason = f"busbw is {ratio:.3f} × algbw, as in no other operation of this kind"
    return fitting[0], Choice("operation", fitting[0], reason)


def _fits(operation: Collective, table: Table, row: Row, side: Side) -> bool:
    ratio = side.busbw / side.algbw
    if operation.name in ("hypercube", "all_to_all_v"):  # rare; never guessed
        return False
    if row.root is not None and operation.rooted != (row.root >= 0):
        return False
    # send_recv prints a redop that it does not use.
    if row.redop and operation.reduces != (row.redop != "none") and operation.name != "send_recv":
        return False
    if table.ranks < 2:
        return operation.name == "all_reduce" and ratio > _CLEAR_OF_ONE
    return math.isclose(ratio, operation.bus_factor(table.ranks), rel_tol=0.01)


def choose_ranks(table: Table, operation: str, *, option: int) -> tuple[int, Choice | None]:
    """Ranks of one group: as listed, else `--ranks`, else the one number that all rows fit.

    Zero when nothing tells.
    """
    if table.ranks:
        return table.ranks, None
    if option:
        return option, Choice("ranks", str(option), "--ranks; the file lists not all devices")
    fitting = _fitting_ranks(table, OPERATIONS[operation])
    if fitting.start + 1 == fitting.stop:
        reason = "the one number of ranks that fits busbw over algbw in every row"
        return fitting.start, Choice("ranks", str(fitting.start), reason)
    return 0, None


def _fitting_ranks(table: Table, operation: Collective) -> range:
    """The numbers of ranks for which every printed busbw is the rounded one."""
    whole = operation.bus_factor.times
    if not operation.bus_factor.shared:
        return range(0)
    low, high = 0.0, whole
    for row, side in table.sides():
        if side.busbw > 0 and row.size > 0:
            time = side.time
            low = max(low, (side.busbw - side.busbw_step) * (time - side.time_step) / row.size)
            high = min(high, (side.busbw + side.busbw_step) * (time + side.time_step) / row.size)
    # factor = whole × (n-1)/n, so n = whole / (whole - factor)
    if low >= whole or high >= whole or low > high:
        return range(0)
    first, last = math.ceil(whole / (whole - low)), math.floor(whole / (whole - high))
    return range(max(first, 2), min(last, _LARGEST_WORLD) + 1)
