"""One key of a discovered cluster file, with where its value comes from."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Entry", "Guess"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value."""

    path: tuple[str, ...]
    """`("network", "rdma", "resource")`."""
    value: Any
    """Text, numbers, and lists and mappings of them."""
    why: str
    guessed: bool = False
    """Chosen by us from what was found; else it is as the cluster told."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What one part of the cluster gave: keys, and remarks that belong to no key."""

    entries: tuple[Entry, ...] = ()
    remarks: tuple[str, ...] = ()
