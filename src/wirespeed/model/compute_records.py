"""The vocabulary of what devices compute and remember: rates of products and copies, and proofs.

A device is a GPU, or the cores of one NUMA node. Seconds and bytes inside.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from wirespeed.model.field_types import SPARSE, Count, Micros, NotNegative, Share
from wirespeed.model.units import format_bandwidth

ComputeOp = Literal[
    "gemm",
    "chain",
    "copy",
    "triad",
    "numa",
    "h2d",
    "d2h",
    "h2d_pageable",
    "d2h_pageable",
    "both_ways",
    "peer",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfDevice:
    """What was done, and where."""

    host: str
    """Host name."""
    device: str
    """`GPU5` by NVML's index, `cuda:1` where that is not known, or `NUMA node 0`."""
    product: str
    """As the driver or the kernel calls it; devices of one product are compared."""
    rank: Count
    """Global rank that measured it."""
    dtype: str
    """Element type; `tf32` is float32 multiplied with 10 bits of mantissa."""
    shape: str = ""
    """Of a product: `1024x1024x1024`, rows, columns, and what is summed over."""
    reason: Annotated[str, SPARSE] = ""
    """Why it was not done; there are no figures then."""
    broke: Annotated[bool, SPARSE] = False
    """Whether that is an error that the device answered with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeRate(OfDevice):
    """How fast one device did one thing."""

    op: ComputeOp
    """`gemm`: matrix product; `chain`: running sum on a core, which follows its clock; `copy` and
    `triad` (a = b + 2 c) within the device's own memory; `numa`: copy from the next NUMA node; `h2d`,
    `d2h`: from and to pinned memory of the host, or pageable; `both_ways`: both at once; `peer`: to the
    next GPU."""
    size_bytes: Count = 0
    """Of one array of each core, or of the GPU; 0 for products."""
    together: bool = False
    """Whether all devices of the world were at it, or of each node only one at a time."""
    per_second: NotNegative = 0.0
    """Operations a second of products (two a multiply-add) and sums, else bytes a second, read and
    written ones added up (of what crosses a link: bytes that crossed); by the wall clock, median of the
    samples."""
    low: NotNegative = 0.0
    """Lower end of its 95 % interval."""
    high: NotNegative = 0.0
    """Upper end of its 95 % interval."""
    samples: Count = 0
    """How many samples."""
    own_per_second: NotNegative = 0.0
    """The same by the time that the cores were ours, which other programs do not lower, in the best
    tenth of the samples; of GPUs `per_second`. This is what is compared."""
    own_spread: NotNegative = 0.0
    """Half width of its 95 % interval, relative to it."""
    own_share: Share = 1.0
    """Share of the time that the cores were ours."""
    call: Micros[NotNegative] = 0.0
    """Median time of one call of a core, or of the GPU."""
    cores: Annotated[Count, SPARSE] = 0
    """Cores that worked; only rates of as many are compared. 0: a GPU."""
    slowest: Annotated[str, SPARSE] = ""
    """The core that was slowest, such as `core 5`."""
    slowest_share: Annotated[float, SPARSE] = 0.0
    """Its rate over the median core's, by time of its own."""
    peak: Annotated[NotNegative, SPARSE] = 0.0
    """The same by the product's data sheet, of products and of its own memory; 0: not known."""
    held: Annotated[NotNegative, SPARSE] = 0.0
    """Rate of the last third of the time over that of the first; 0: too short to tell."""
    clock_MHz: Annotated[NotNegative, SPARSE] = 0.0
    """Median while it worked; 0: not told, as below."""
    temperature_C: Annotated[NotNegative, SPARSE] = 0.0
    """Highest."""
    power_W: Annotated[NotNegative, SPARSE] = 0.0
    """Mean."""
    slowed_by: Annotated[tuple[str, ...], SPARSE] = ()
    """Why a GPU lowered its clocks meanwhile: `power cap`, `thermal, by hardware`, …"""
    wrong: Count | None = None
    """Elements of the last result that are not what they must be; null: not compared."""

    @property
    def size(self) -> str | int:
        """What tells two of one operation apart: the shape, or the bytes."""
        return self.shape or self.size_bytes

    @property
    def computes(self) -> bool:
        """Whether its rate counts operations, and not bytes."""
        return self.op in ("gemm", "chain")

    def text(self, per_second: float) -> str:
        """`812 TFLOP/s` of products (`TOP/s` of whole numbers), `3020 GB/s` of what moves bytes."""
        if not self.computes:
            return format_bandwidth(per_second)
        prefix, scale = ("T", 1e12) if per_second >= 1e12 else ("G", 1e9)
        digits = max(0, 2 - len(str(int(per_second / scale))) + 1)
        return (
            f"{per_second / scale:.{digits}f} {prefix}{'OP' if self.dtype == 'int8' else 'FLOP'}/s"
        )

    @property
    def felt(self) -> str:
        """`1410 MHz, 71 °C, 640 W, slowed by power cap`; empty where nothing tells."""
        words = (
            f"{self.clock_MHz:.0f} MHz" if self.clock_MHz else "",
            f"{self.temperature_C:.0f} °C" if self.temperature_C else "",
            f"{self.power_W:.0f} W" if self.power_W else "",
            f"slowed by {', '.join(self.slowed_by)}" if self.slowed_by else "",
        )
        return ", ".join(filter(None, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongProducts:
    """Products of one core or GPU that are not what they must be."""

    core: str
    """`core 3`; empty for a GPU."""
    kind: Literal["known", "repeated"]
    """`known`: against the result by whole numbers; `repeated`: against its own first result."""
    products: Count
    """How many products were wrong."""
    made: Count
    """How many it made of that kind."""
    wrong: Count
    """Wrong elements in them."""
    example: str
    """The first: its place, what was seen, what was expected."""
    bits: str
    """Which bits differ in the wrong elements of the first wrong product."""
    pattern: Annotated[str, SPARSE] = ""
    """Where they lie, if that has an order: `every one in columns 3 of each 16`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProof(OfDevice):
    """Products of one device whose results are known, or are repeated, compared bit for bit."""

    software: str
    """What multiplied; only results of the same are compared between devices."""
    products: Count = 0
    """Products made, over its cores."""
    elements: Count = 0
    """Elements compared."""
    seconds: NotNegative = 0.0
    """How long."""
    digest: Annotated[str, SPARSE] = ""
    """Of the first result of the repeated product, of most of its cores; empty: they differ two and
    two."""
    odd: Annotated[tuple[str, ...], SPARSE] = ()
    """Cores that got another first result than most."""
    faults: Annotated[tuple[WrongProducts, ...], SPARSE] = ()
    """What was wrong, by core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What the devices of a world compute and remember."""

    rates: tuple[ComputeRate, ...] = ()
    """How fast: one entry a device and thing done."""
    proofs: tuple[ComputeProof, ...] = ()
    """How right: one entry a device and type."""
