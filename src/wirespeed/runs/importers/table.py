"""A table of nccl-tests as read, before it becomes a run. Seconds and bytes, as everywhere."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from wirespeed.records import TimeStats

__all__ = ["Device", "Row", "Side", "Table"]


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
