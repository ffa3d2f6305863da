"""Figures that somebody measured or asks for: one a row of CSV, in the package and of the user.

The package's own (`data/busbw.csv`) were collected from public results; each names its source, when
that was published and when it was read. Files in repositories and pages that are kept up to date tell
no date: it stays empty, since when a file was last changed says little of when its figure was got. The
user's have the same columns, so what `reference export` writes `reference add` reads.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal, TypeVar, get_args

from wirespeed.collectives.catalogue import collective_named
from wirespeed.errors import InputError, UsageError, unformulated
from wirespeed.model.units import GIGA, format_size, parse_size

T = TypeVar("T")
Kind = Literal["measured", "gate", "rule", "untuned"]
"""measured: somebody got it; gate: below it the source warns; rule: a rule of thumb of the maker;
untuned: what a known wrong set-up gives, never an expectation."""

INTERCONNECTS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "gaudi": "Gaudi's own Ethernet",
    "pcie": "PCIe",
    "memory": "memory of the machine",
    "mnnvl": "multi-node NVLink",
    "mnnvl+ib": "multi-node NVLink and InfiniBand",
    "mnnvl+roce": "multi-node NVLink and RoCE",
    "ib": "InfiniBand",
    "roce": "RoCE",
    "rdma": "InfiniBand or RoCE",
    "efa": "EFA",
    "tcpxo": "TCPXO",
    "tcp": "TCP",
}
"""What carries the traffic that decides: between nodes where there are several, else within one."""

COLUMNS = (
    *("name", "system", "gpu", "gpus_per_node", "nodes", "interconnect", "nics", "nic_Gbitps"),
    *("switch", "collective", "size", "busbw_GBps", "low_GBps", "high_GBps", "time_us"),
    *("time_low_us", "time_high_us", "kind", "site", "source", "published", "read"),
)
_US = 1e6
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure and what it holds for."""

    name: str = ""
    """Of the user's set that it belongs to; empty for the package's."""
    system: str = ""
    gpu: str = ""
    """Product as in data/gpus.csv, `cpu` where no GPU takes part; empty: any."""
    gpus_per_node: int | None = None
    """Ranks a node; None: any."""
    nodes: int | None = None
    """None: any number above 1."""
    interconnect: str
    nics: int | None = None
    nic_Gbitps: float | None = None
    switch: str = ""
    """`nvls`, `nvls off`, `sharp`, `sharp off`: whether switches added up; empty: not told."""
    collective: str
    size_bytes: int | None = None
    """None: the peak over sizes."""
    busbw: float | None = None
    """Bytes a second."""
    busbw_range: tuple[float, float] | None = None
    """What the source says it lies between; for the user's, the 95 % interval of the median."""
    time_s: float | None = None
    time_range: tuple[float, float] | None = None
    kind: Kind = "measured"
    site: str = ""
    """Of a gate: whose clusters it is for, such as `azure`; empty: any."""
    source: str
    published: str = ""
    read: str = ""

    @property
    def dated(self) -> str:
        """The source with when it was published and when it was read; what is unknown is said."""
        if not self.read:
            return f"{self.source}, {self.published}" if self.published else self.source
        return f"{self.source}, {self.published or 'date unknown'}, read {self.read}"


def data_text(file: str) -> str:
    """A table of the package."""
    return files("wirespeed.reference").joinpath(f"data/{file}").read_text("utf-8")


def rows_of(file: str) -> list[dict[str, str]]:
    """Its rows, without the cells that are empty."""
    reader = csv.DictReader(io.StringIO(data_text(file), newline=""))
    return [{name: cell for name, cell in row.items() if cell} for row in reader]


@lru_cache(maxsize=1)
def shipped_figures() -> tuple[Figure, ...]:
    """The figures in the package."""
    return figures_from_csv(data_text("busbw.csv"), source="busbw.csv")


def figures_from_csv(text: str, *, source: str, name: str = "") -> tuple[Figure, ...]:
    """The rows of `text`; InputError names `source`, the line and the column where one is wrong.

    name: of the set that all of them belong to from now on; empty: as the rows say.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        missing = {"collective", "interconnect", "source"} - set(reader.fieldnames or ())
        if missing:
            raise InputError(
                f"{source}: no column {', '.join(sorted(missing))}",
                expected=f"a first line with names of columns, of {', '.join(COLUMNS)}",
                next="wirespeed reference list -o csv",
            )
        return tuple(_figure(row, f"{source}:{reader.line_num}", name) for row in reader)
    except csv.Error as error:
        raise InputError(f"{source}:{reader.line_num}: {error}", expected="CSV") from error


def figures_to_csv(figures: Iterable[Figure]) -> str:
    """All columns; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in _row(one)] for one in figures)
    return stream.getvalue()


def _row(one: Figure) -> list[object]:
    size = "" if one.size_bytes is None else format_size(one.size_bytes, exact=True)
    low, high = _scaled(one.busbw_range, 1 / GIGA)
    return [
        *(one.name, one.system, one.gpu, one.gpus_per_node, one.nodes, one.interconnect),
        *(one.nics, one.nic_Gbitps, one.switch, one.collective, size),
        *(_number(one.busbw, 1 / GIGA), low, high, _number(one.time_s, _US)),
        *_scaled(one.time_range, _US),
        *(one.kind, one.site, one.source, one.published, one.read),
    ]


def _scaled(pair: tuple[float, float] | None, scale: float) -> tuple[str, str]:
    return (_number(pair[0], scale), _number(pair[1], scale)) if pair else ("", "")


def _number(value: float | None, scale: float) -> str:
    return "" if value is None else f"{value * scale:.6g}"


def _cell(value: object) -> object:
    if isinstance(value, str):
        return unformulated(value)
    return "" if value is None else value


def _figure(row: Mapping[str | None, str | list[str] | None], where: str, name: str) -> Figure:
    cells = {k: _plain(v) for k, v in row.items() if k is not None and isinstance(v, str)}
    read = _Cells(cells, where)
    figure = Figure(
        name=name or cells.get("name", ""),
        system=cells.get("system", ""),
        gpu=cells.get("gpu", ""),
        gpus_per_node=read.count("gpus_per_node"),
        nodes=read.count("nodes"),
        interconnect=read.one_of("interconnect", INTERCONNECTS),
        nics=read.count("nics"),
        nic_Gbitps=read.number("nic_Gbitps"),
        switch=read.one_of("switch", ("", "nvls", "nvls off", "sharp", "sharp off")),
        collective=read.parsed("collective", collective_named).name,
        size_bytes=read.parsed("size", parse_size) if cells.get("size") else None,
        busbw=read.number("busbw_GBps", GIGA),
        busbw_range=read.pair("low_GBps", "high_GBps", GIGA),
        time_s=read.number("time_us", 1 / _US),
        time_range=read.pair("time_low_us", "time_high_us", 1 / _US),
        kind=read.kind(),
        site=cells.get("site", "").lower(),
        source=cells.get("source") or read.wrong("source", "a text that is not empty"),
        published=cells.get("published", ""),
        read=cells.get("read", ""),
    )
    if figure.busbw is None and figure.time_s is None:
        read.wrong("busbw_GBps", "a figure, there or in time_us")
    return figure


def _plain(cell: str) -> str:
    text = cell.strip()[:_LONGEST]
    return text[1:] if text[:1] == "'" and text[1:2] in _FORMULA else text


@dataclass(frozen=True, slots=True)
class _Cells:
    """One row, and where it stands."""

    cells: Mapping[str, str]
    where: str

    def wrong(self, column: str, expected: str) -> str:
        seen = self.cells.get(column, "")
        raise InputError(f"{self.where}: {column} is {seen[:60]!r}", expected=expected)

    def one_of(self, column: str, known: Iterable[str]) -> str:
        text = self.cells.get(column, "").lower()
        if text not in known:
            self.wrong(column, "one of " + ", ".join(filter(None, known)))
        return text

    def kind(self) -> Kind:
        text = self.cells.get("kind") or "measured"
        for kind in get_args(Kind):
            if text == kind:
                return kind  # type: ignore[no-any-return]
        raise InputError(f"{self.where}: kind is {text!r}", expected=", ".join(get_args(Kind)))

    def parsed(self, column: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.cells.get(column, ""))
        except UsageError as error:
            raise InputError(f"{self.where}: {error.saw}", expected=error.expected) from error

    def number(self, column: str, scale: float = 1.0) -> float | None:
        """A finite number above 0, or None where the cell is empty."""
        text = self.cells.get(column, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e15:
            self.wrong(column, "a number above 0")
        return value * scale

    def count(self, column: str) -> int | None:
        value = self.number(column)
        if value is not None and value != int(value):
            self.wrong(column, "a whole number")
        return None if value is None else int(value)

    def pair(self, low: str, high: str, scale: float) -> tuple[float, float] | None:
        first, second = self.number(low, scale), self.number(high, scale)
        if first is None or second is None:
            return None
        return min(first, second), max(first, second)
