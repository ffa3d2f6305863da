"""Where a part of the page stands, and what the list of contents needs to know of it."""

from dataclasses import dataclass

__all__ = ["Section", "Spot"]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a run stands in the page: a page of several runs holds the same sections several times."""

    at: str = ""
    """What every id of this run begins with: empty, or `91ae33fe-`; never foreign text."""
    level: int = 2
    """Of the headings of its sections."""

    @property
    def below(self) -> int:
        """Of the headings within a section."""
        return self.level + 1

    def id(self, name: str) -> str:
        return f"{self.at}{name}"


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page; `html` is empty where it has nothing to say."""

    id: str
    title: str
    """As the list of contents names it."""
    html: str
