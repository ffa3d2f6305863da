"""Expected figures, with their sources: the hook through which `check` grades speed.

A reference answers for one measurement on one world, or says that it does not know. Unknown is an
answer; it is never replaced by a guess.
"""

from dataclasses import dataclass
from typing import Protocol

from wirespeed.records import Measurement, World

__all__ = ["Expectation", "NoReference", "Reference"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a healthy world reaches."""

    time_s: float | None
    """Time of the operation in seconds (for latency), where it is known."""
    busbw: float | None
    """Bytes a second (for bandwidth), where it is known."""
    source: str
    """Where the figure comes from, with its date."""


class Reference(Protocol):
    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        """The expectation for this measurement, or None when there is no figure."""
        ...


class NoReference:
    """Knows nothing; the ranks' own spread is judged then."""

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        return None
