"""The figures that findings were held against, for reference lines in charts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from wirespeed.records import Finding
from wirespeed.units import GIGA

__all__ = ["Expected", "expectations"]

Quantity = Literal["busbw", "time"]

_OPERATION = re.compile(r"(\w+)(?: (?P<size>[\d.,]+ [KMGT]?i?B))?(?=[: ])")
_RATE = re.compile(r"([\d.,]+) GB/s")
_TIME = re.compile(r"([\d.,]+) (µs|ms|s)\b")
_SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Expected:
    """One reference line."""

    op: str
    quantity: Quantity
    value: float
    """Bytes a second, or seconds."""
    said: str
    """The expectation in the finding's own words, shortened."""
    size: str = ""
    """The size it holds for, as the finding writes it; empty: not told."""


def expectations(findings: Iterable[Finding]) -> list[Expected]:
    """Of the findings about bandwidth and latency that name a figure; the others are left out."""
    found = (_read(finding) for finding in findings)
    return [one for one in found if one is not None]


def _read(finding: Finding) -> Expected | None:
    family = finding.id.partition("-")[0]
    about = _OPERATION.match(finding.title)
    if about is None or family not in ("BW", "LAT"):
        return None
    figure = (_RATE if family == "BW" else _TIME).search(finding.expected)
    value = _value(figure) if figure else 0.0
    if not value:
        return None
    quantity: Quantity = "busbw" if family == "BW" else "time"
    return Expected(about[1], quantity, value, _short(finding.expected), about["size"] or "")


def _value(figure: re.Match[str]) -> float:
    try:
        number = float(figure[1].replace(",", ""))
    except ValueError:
        return 0.0
    return number * (_SECONDS[figure[2]] if figure.re is _TIME else GIGA)


def _short(text: str) -> str:
    clean = " ".join(text.split())
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 1]}…"
