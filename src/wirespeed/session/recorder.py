"""Who writes down what ranks tell, who shows it: the shapes that the session's parts meet by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wirespeed.model.lasting_records import Soak
from wirespeed.model.records import Finding

OF_THE_WORLD = frozenset(
    ("joined", "node", "seat", "peers", "choices", "versions", "environment", "identity")
)
"""Kinds of records that every world tells, about itself."""


class ProgressView(Protocol):
    """Shows what is running; never on stdout."""

    def step(self, index: int, of: int, label: str) -> None: ...

    def phase(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Recorder(Protocol):
    """Where one world of ranks is written down: a whole run's session, or one turn of many."""

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        ...

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None: ...

    def phase(self, text: str) -> None: ...


class Ledger(Protocol):
    """The recorder of a soak within a session (`session.soaking`)."""

    @property
    def seconds_before(self) -> float: ...

    def take(self, kind: str, data: Mapping[str, Any]) -> None: ...

    def findings(self) -> list[Finding]: ...

    def soak(self) -> Soak: ...
