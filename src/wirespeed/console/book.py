"""Who writes down what ranks tell, who shows it: the shapes that the console's parts meet by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wirespeed.records import Finding
from wirespeed.records_lasting import Soak

__all__ = ["Book", "Ledger", "ProgressView"]


class ProgressView(Protocol):
    """Shows what is running; never on stdout."""

    def step(self, index: int, of: int, label: str) -> None: ...

    def phase(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Book(Protocol):
    """Where one world of ranks is written down: a whole run's session, or one turn of many."""

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        ...

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None: ...

    def phase(self, text: str) -> None: ...


class Ledger(Protocol):
    """The book of a soak within a session (`console.soaking`)."""

    @property
    def seconds_before(self) -> float: ...

    def take(self, kind: str, data: Mapping[str, Any]) -> None: ...

    def findings(self) -> list[Finding]: ...

    def soak(self) -> Soak: ...
