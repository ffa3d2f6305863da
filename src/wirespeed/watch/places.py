"""Lines of the program: where a late rank is more than others, and where the code waits for its GPU.

A rank's thread looks some times a second at the line that its program is at, outside of what is timed
anyway (communication, the data loader, backward, the optimizer).
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from wirespeed.watch.steps import RankPlaces, StepTable

_LEAST_LOOKS = 15
_MORE = 0.05
"""Share of the looks by which a place must surely be more frequent than with the others."""
_Z = 1.96
_SYNCHRONISES = re.compile(
    r"\.(item|tolist|cpu|numpy)\(|synchronize\(|\.to\(\s*[\"']cpu|(?<![\w.])(float|int|bool)\("
)
"""The last ones of a tensor: lines that a rank is at for long do more than convert numbers."""


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    """`step (train.py:31)`."""
    text: str
    share: float
    """Of the looks; its 95 % interval is `low` … `high`."""
    low: float
    high: float
    others: float = 0.0
    """The same of all other ranks."""

    @property
    def sentence(self) -> str:
        return f"{self.name} `{self.text}`" if self.text else self.name


def place_of(table: StepTable, ranks: Collection[int]) -> Place | None:
    """The line that those ranks are at surely more often than all others, if there is one."""
    own, own_looks = _sums(one for rank, one in table.places.items() if rank in ranks)
    rest, looks = _sums(one for rank, one in table.places.items() if rank not in ranks)
    if min(own_looks, looks) < _LEAST_LOOKS:
        return None
    found = [
        Place(name, table.texts.get(name, ""), *_share(count, own_looks), rest[name] / looks)
        for name, count in own.items()
    ]
    most = max(found, key=lambda one: one.low - one.others, default=None)
    if most is None or most.low - _share(rest[most.name], looks)[2] < _MORE:
        return None
    return most


def synchronising(table: StepTable) -> list[Place]:
    """Lines at which the code waits for its GPU, the longest first; empty without a device."""
    if not table.device:
        return []
    counts, looks = _sums(table.places.values())
    if looks < _LEAST_LOOKS:
        return []
    found = [
        Place(name, text, *_share(counts[name], looks))
        for name, text in table.texts.items()
        if _SYNCHRONISES.search(text) and counts[name]
    ]
    return sorted((one for one in found if one.low >= _MORE), key=lambda one: -one.share)


def _sums(of: Iterable[RankPlaces]) -> tuple[Counter[str], int]:
    counts: Counter[str] = Counter()
    looks = 0
    for one in of:
        counts.update(one.at)
        looks += one.looks
    return counts, looks


def _share(count: int, of: int) -> tuple[float, float, float]:
    """Share and its 95 % interval (E. B. Wilson, 1927)."""
    share, part = count / of, _Z**2 / of
    middle = (share + part / 2) / (1 + part)
    half = _Z * math.sqrt(share * (1 - share) / of + part / (4 * of)) / (1 + part)
    return share, max(0.0, middle - half), min(1.0, middle + half)
