"""Is this figure normal that is no collective's: a copy, one network card, a message of MPI.

Tests are called as their tools call them: `host_to_device_memcpy_ce` (nvbandwidth), `ib_write_bw`
(perftest), `osu_latency` (OSU). The limit is the link that the test uses: the GPU's slot, NVLink or one
xGMI link, one network card; twice that where both directions count. What is usual is a share of it,
and what somebody published of the same product or card refines it (data/transfers.csv).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Literal

from msgspec import convert

from wirespeed.errors import UsageError
from wirespeed.model.units import GIGA, format_bandwidth, format_duration, parse_size
from wirespeed.reference.ask import Place
from wirespeed.reference.figures import INTERCONNECTS, rows_of
from wirespeed.reference.shape import BRIDGE, XGMI_LINKS, Shape, links_are_verified

Path = Literal["slot", "peer", "card", "latency"]
"""What a test uses: a GPU's slot, the link of two GPUs, network cards; `latency`: only time counts."""

_COPY = re.compile(
    r"(host_to_device|device_to_host|device_to_device)(_bidirectional)?_memcpy(_read|_write)?_(ce|sm)"
)
_VERBS = re.compile(r"ib_(write|read|send|atomic)(?:_imm)?_(bw|lat)( bidirectional)?")
_MPI = ("osu_bw", "osu_bibw", "osu_latency")
_SHORT = {
    "h2d": "host_to_device_memcpy_ce",
    "d2h": "device_to_host_memcpy_ce",
    "d2d": "device_to_device_memcpy_read_ce",
    "p2p": "device_to_device_memcpy_read_ce",
}


@dataclass(frozen=True, slots=True)
class Transfer:
    """A test of nvbandwidth, perftest or OSU."""

    name: str
    path: Path
    both_ways: bool = False
    """Whether its figure is the sum of both directions."""


def transfer_named(text: str) -> Transfer | None:
    """Return the test of that name; None: no test that is known here."""
    name = _SHORT.get(text.strip().lower(), text.strip().lower())
    if copy := _COPY.fullmatch(name):
        peer = copy[1] == "device_to_device"
        # Between host and GPU nvbandwidth counts one direction while the other is busy too.
        return Transfer(name, "peer" if peer else "slot", bool(peer and copy[2]))
    if verbs := _VERBS.fullmatch(name):
        return Transfer(name, "latency" if verbs[2] == "lat" else "card", bool(verbs[3]))
    if name in _MPI:
        return Transfer(name, "latency" if name == "osu_latency" else "card", name == "osu_bibw")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of data/transfers.csv."""

    system: str
    test: str
    gpu: str = ""
    interconnect: str = ""
    card_Gbitps: float | None = None
    size: str = ""
    value: float
    unit: Literal["GB/s", "us"]
    kind: Literal["measured", "rule", "untuned"]
    source: str
    published: str = ""
    read: str

    @property
    def base(self) -> float:
        """Bytes a second, or seconds."""
        return self.value * (GIGA if self.unit == "GB/s" else 1e-6)

    @property
    def words(self) -> str:
        """The figure with its source."""
        size = f" {self.size}" if self.size else ""
        value = shown(self.base, self.unit == "us")
        return f"{self.system}: {self.test}{size} {value}, {self.kind} ({self.dated})"

    @property
    def dated(self) -> str:
        """The source with when it was published and when it was read."""
        return f"{self.source}, {self.published or 'date unknown'}, read {self.read}"


@lru_cache(maxsize=1)
def shipped_transfers() -> tuple[Row, ...]:
    """Return the rows of data/transfers.csv."""
    return convert(rows_of("transfers.csv"), tuple[Row, ...], strict=False)


def shown(value: float, time: bool) -> str:
    """Return a rate or a time as text."""
    return format_duration(value) if time else format_bandwidth(value)


@dataclass(frozen=True, slots=True)
class TransferAnswer:
    """What is said of one figure; values in bytes a second, of latencies in seconds."""

    place: Place
    test: Transfer
    shape: Shape
    size_bytes: int
    value: float
    limit: float | None = None
    link: str = ""
    """The link that the limit is of."""
    expected: tuple[float, float, float] | None = None
    """(low, usual, high)."""
    basis: str = ""
    """Where that comes from."""
    published: tuple[Row, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_time(self) -> bool:
        """Whether the figure is a latency, so that less is better."""
        return self.test.path == "latency"


_SHARES: dict[Path, tuple[float, float, float]] = {
    "slot": (0.70, 0.83, 0.92),
    "peer": (0.65, 0.83, 0.92),
    "card": (0.85, 0.95, 1.0),
}
"""(low, usual, high) share of the link: PCIe's and NVLink's headers and protocol, and InfiniBand's.

H200: 52 of 63 and 396 of 450 GB/s; MI300X: 48 of 64; cards of 400 Gbit/s: 49 of 50 (data/transfers.csv).
Between sockets PCIe copies between GPUs reach less: 39 of 63 GB/s.
"""
_HALF, _OF_OTHERS, _SLOW = 0.5, 0.8, 2.0
"""Low is below this share of what is usual, or of the least that others measured; slow is a latency of
that many times theirs or more."""
_ROUNDED = 1.02
_STEADY = {"slot": 2**24, "peer": 2**24, "card": 2**14}
"""Bytes from which on such a test fills its link."""
_SMALL = 64
"""Bytes up to which a message's time is the fabric's latency."""


def ask_transfer(
    test: Transfer,
    shape: Shape,
    size_bytes: int,
    value: float,
    rows: Sequence[Row] | None = None,
) -> TransferAnswer:
    """Return whether a figure is normal; value: bytes a second, of latencies seconds.

    rows: the published figures; None: those of the package.
    """
    known = shipped_transfers() if rows is None else rows
    alike = [row for row in known if row.kind != "untuned" and _is_alike(row, test, shape)]
    answer = TransferAnswer("unknown", test, shape, size_bytes, value, published=tuple(alike[:4]))
    if test.path == "latency":
        return _of_latency(answer, alike)
    return _of_rate(answer, alike)


def _is_alike(row: Row, test: Transfer, shape: Shape) -> bool:
    """Return whether a row is of that test and the same product, card or fabric."""
    if row.test != test.name:
        return False
    if test.path in ("slot", "peer"):
        return row.gpu == shape.gpu
    kinds = {row.interconnect, shape.interconnect}
    fabric = len(kinds) == 1 or kinds <= {"ib", "roce", "rdma"}
    if test.path == "latency":
        return row.interconnect == shape.interconnect
    return fabric and row.card_Gbitps == shape.nic_Gbitps


def _of_rate(answer: TransferAnswer, alike: Sequence[Row]) -> TransferAnswer:
    test, shape, value = answer.test, answer.shape, answer.value
    link, words = _link(test, shape)
    if link is None:
        return replace(answer, missing=(_needed(test, shape),))
    limit = link * (2 if test.both_ways else 1)
    words = f"{words}, both directions" if test.both_ways else words
    low, usual, high = (share * limit for share in _SHARES[test.path])
    others = [row.base for row in alike if row.base <= _ROUNDED * limit]
    basis = f"{_SHARES[test.path][0]:g} to {_SHARES[test.path][2]:g} of it"
    below = _HALF * usual
    if others:
        usual, low = median(others), min(low, *others)
        below = max(below, _OF_OTHERS * min(others))
        basis = f"the median of {len(others)} published, and {basis}"
    answer = replace(
        answer, limit=limit, link=words, expected=(low, usual, max(high, usual)), basis=basis
    )
    sure = test.path == "card" or links_are_verified(shape.gpu)
    if value > _ROUNDED * limit and sure:
        return replace(answer, place="impossible")
    if 0 < answer.size_bytes < _STEADY[test.path]:
        steady = f"{test.name} at {_STEADY[test.path]} bytes or more, where the link is full"
        return replace(answer, missing=(steady,))
    if low <= value <= _ROUNDED * limit:
        return replace(answer, place="normal")
    if value < below and sure:
        return replace(answer, place="low")
    parts = (
        "the same test on the other cards or GPUs of the node, and lspci -vv for the link's width"
    )
    return replace(answer, missing=(parts,))


def _link(test: Transfer, shape: Shape) -> tuple[float | None, str]:
    """Return the rate of the link in one direction, and what it is."""
    if test.path == "slot":
        return shape.slot, f"the slot of {shape.gpu}"
    if test.path == "card":
        cards = (shape.nics or 1) if test.name.startswith("osu_") else 1
        rate = shape.nic_Gbitps
        words = f"{cards} × {rate:g} Gbit/s" if rate else ""
        return (cards * rate * 1e9 / 8 if rate else None), words
    if shape.inside == BRIDGE or shape.gpu_link is None:
        return None, ""
    if shape.inside == "xgmi":
        return shape.gpu_link / XGMI_LINKS, "one xGMI link"
    return shape.gpu_link, f"{INTERCONNECTS[shape.inside]} of {shape.gpu}"


def _needed(test: Transfer, shape: Shape) -> str:
    if test.path == "card":
        return "the rate of the network card: --nics, such as 1x400"
    if shape.inside == BRIDGE:
        return "whether a bridge joins the two cards: --interconnect nvlink, or --interconnect pcie"
    if shape.gpu:
        return f"how fast the links of {shape.gpu} are; the table of GPUs has no such rate"
    return "the GPU: --gpu, such as H100"


def _of_latency(answer: TransferAnswer, alike: Sequence[Row]) -> TransferAnswer:
    if not answer.shape.interconnect:
        return replace(answer, missing=("what connects the nodes: --interconnect",))
    if not alike:
        kind = INTERCONNECTS[answer.shape.interconnect]
        return replace(
            answer, missing=(f"{answer.test.name} between other pairs of nodes over {kind}",)
        )
    if answer.size_bytes > _SMALL:
        return replace(
            answer, missing=(f"{answer.test.name} at 8 bytes, where only latency counts",)
        )
    times = [row.base for row in alike]
    usual = median(times)
    answer = replace(
        answer,
        expected=(min(times) / _SLOW, usual, _SLOW * max(times)),
        basis=f"the median of {len(times)} published; nodes apart by several switches add to it",
    )
    if answer.value > _SLOW * max(times):
        return replace(answer, place="low" if answer.value > 2 * _SLOW * max(times) else "unknown")
    return replace(answer, place="normal")


def size_of(text: str | None) -> int:
    """Return the size that was typed in bytes; 0: none was."""
    return parse_size(text) if text else 0


def value_of(test: Transfer, busbw: float | None, time_us: float | None) -> float:
    """Return the figure that was typed, in bytes a second or seconds."""
    if test.path == "latency":
        if time_us is None:
            raise UsageError("which figure?", expected=f"--time US for {test.name}")
        return time_us * 1e-6
    if busbw is None:
        raise UsageError("which figure?", expected=f"--busbw GB/s for {test.name}")
    return busbw * GIGA
