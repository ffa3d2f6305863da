"""How long work says where it is."""

from typing import Protocol

__all__ = ["Progress", "Silent"]


class Progress(Protocol):
    """Where a lifecycle verb is; shown on stderr, never part of a result."""

    def phase(self, text: str) -> None:
        """A new step, or a new state of the same one."""
        ...


class Silent:
    """Nobody listens."""

    def phase(self, text: str) -> None:
        pass
