"""Where stored runs are read from: this user's folders, by their index, or a common store.

One seam for all commands: they ask `opened` for rows, and `runs.store` for a run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from wirespeed.errors import UsageError
from wirespeed.runs.index import Index, RunFilter
from wirespeed.runs.place import runs_home
from wirespeed.runs.rows import FigureRow, FindingRow, NodeMark, NodeRow, RunMark, RunRow, id_in

RUNS_LIST = "wirespeed runs list"
_T = TypeVar("_T")


class StoredRuns(Protocol):
    """Rows of many runs, always in the order in which these started: `Index` says what each gives."""

    missing: int

    def runs(self, which: RunFilter = ...) -> list[RunRow]: ...

    def count(self, which: RunFilter = ...) -> int: ...

    def figures(self, names: Iterable[str] = ..., which: RunFilter = ...) -> list[FigureRow]: ...

    def findings(
        self,
        *,
        node: str = ...,
        ids: Iterable[str] = ...,
        status: Iterable[str] = ...,
        which: RunFilter = ...,
    ) -> list[FindingRow]: ...

    def nodes(self, *, node: str = ..., which: RunFilter = ...) -> list[NodeRow]: ...

    def pages(self, kind: type[_T], which: RunFilter = ...) -> Iterator[list[_T]]: ...

    def hosts(self) -> list[str]: ...

    def spans(self) -> dict[str, tuple[str, str, int]]: ...

    def latest(self) -> list[NodeRow]: ...

    def marks(self, since: str = ..., *, troubled: bool = ...) -> list[NodeMark]: ...

    def run_marks(self, since: str = ..., *, node: str = ...) -> list[RunMark]: ...

    def blames(self, since: str = ...) -> dict[tuple[str, str], int]: ...


class RunSource(Protocol):
    """Where runs are read from in place of this machine's folders: a common store."""

    def opened(
        self, *, seconds: float | None = ..., say: Callable[[str], None] = ...
    ) -> AbstractContextManager[StoredRuns]: ...

    def find(self, reference: str) -> Path | None:
        """A folder with what it has of that run; None where it has no such run."""
        ...

    def fetched(self, run: str) -> Path:
        """The same by the full name of the run's folder."""
        ...


_sources: list[RunSource] = []
"""The last one counts; none: this user's folders."""


def elsewhere() -> RunSource | None:
    """What is read in place of this user's folders."""
    return _sources[-1] if _sources else None


@contextmanager
def reading_from(source: RunSource) -> Iterator[None]:
    """Within, stored runs are found and read there; storing, removing and `past_runs` stay here."""
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)


def opened(
    *, seconds: float | None = None, say: Callable[[str], None] = lambda text: None
) -> AbstractContextManager[StoredRuns]:
    """The rows of the stored runs: of this user's, or of the store that is read from."""
    return (_sources[-1] if _sources else Index).opened(seconds=seconds, say=say)


def folder_of(run: str) -> Path:
    """The folder of that name, wherever the run is read from."""
    return _sources[-1].fetched(run) if _sources else runs_home() / run


def place() -> str:
    """Where stored runs are looked for, for people."""
    return str(_sources[-1] if _sources else runs_home())


def named(reference: str, names: Sequence[str]) -> str | None:
    """Which of these run folders a full id, a folder's name or the start of one names; None: none.

    UsageError where several match.
    """
    exact = [name for name in names if reference in (name, id_in(name))]
    if len(exact) == 1:
        return exact[0]
    matching = [n for n in names if id_in(n).startswith(reference) or n.startswith(reference)]
    if not reference or len(matching) > 1:
        raise UsageError(
            f"{reference!r} matches {len(matching)} runs: {', '.join(map(id_in, matching[:5]))}",
            expected="enough of an id to match one run",
            next=RUNS_LIST,
        )
    return matching[0] if matching else None
