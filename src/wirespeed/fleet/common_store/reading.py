"""Reading a common store by the words in which this machine's runs are read.

Rows as the index gives them, in its order; a run that is needed whole is fetched into a folder of its
own, which the rest reads like any run folder, and which goes with the command.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, TypeVar

import sqlalchemy as sa

from wirespeed.errors import InputError, UsageError
from wirespeed.fleet.common_store.connection import connected, told
from wirespeed.fleet.common_store.content import unpacked
from wirespeed.fleet.common_store.tables import (
    FIGURES,
    FILES,
    FINDINGS,
    NODES,
    ROWS,
    RUNS,
    refuse_other_version,
)
from wirespeed.runs.index import EVERYTHING, RunFilter
from wirespeed.runs.place import FOLDER_NAME
from wirespeed.runs.rows import (
    STAMP_LENGTH,
    FigureRow,
    FindingRow,
    NodeMark,
    NodeRow,
    RunMark,
    RunRow,
)
from wirespeed.runs.source import named
from wirespeed.runs.unsent import label

_T = TypeVar("_T")
_PAGE = 5000
_MOST_FETCHED = 200
"""Runs at a time whose files lie here; a page that is served may ask for any number."""
_MOST_NAMED = 6
"""Runs of which a reference may be the start, where it is told that there are several."""


class CommonStore:
    """As `runs.store.reading_from` takes it."""

    def __init__(self, url: str, folder: Path) -> None:
        """folder: where fetched runs are put."""
        self._url, self._folder = url, folder
        self._fetched: dict[tuple[str, str], Path] = {}

    @classmethod
    @contextmanager
    def of(cls, url: str) -> Iterator["CommonStore"]:
        """What was fetched goes at the end."""
        with TemporaryDirectory(prefix="wirespeed-") as folder:
            yield cls(url, Path(folder))

    @contextmanager
    def opened(
        self, *, seconds: float | None = None, say: Callable[[str], None] = lambda text: None
    ) -> Iterator["StoredRows"]:
        """As `Index.opened`; StorageError where the store cannot be read."""
        with connected(self._url) as connection, told(self._url):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            refuse_other_version(connection, self._url)
            yield StoredRows(connection)

    def find(self, reference: str) -> Path | None:
        """The run's folder, fetched; None where the store has no such run.

        UsageError where several match, InputError for one whose files are damaged.
        """
        with self.opened() as rows:
            name = rows.named(reference)
            if name is None and reference == "last":
                raise UsageError(f"no runs in {self}", next="wirespeed runs send")
            return self._fetched_of(rows, name) if name else None

    def fetched(self, run: str) -> Path:
        with self.opened() as rows:
            return self._fetched_of(rows, run)

    def _fetched_of(self, rows: "StoredRows", name: str) -> Path:
        key = (name, rows.digest(name))
        if key not in self._fetched:
            folder = Path(mkdtemp(dir=self._folder)) / name
            folder.mkdir(0o700)
            unpacked(rows.files(name), folder)
            self._fetched[key] = folder
        while len(self._fetched) > _MOST_FETCHED:
            rmtree(self._fetched.pop(next(iter(self._fetched))).parent, ignore_errors=True)
        return self._fetched[key]

    def __str__(self) -> str:
        return label(self._url)


class StoredRows:
    """The rows of a store, as of one moment; what `Index` reads, by the same names."""

    missing = 0
    in_memory = ""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def runs(self, which: RunFilter = EVERYTHING) -> list[RunRow]:
        """Oldest first."""
        asked = _columns(RUNS, RunRow).where(*_conditions(which)).order_by(*_newest_first(RUNS))
        found = self._connection.execute(asked.limit(which.last))
        return [RunRow(**row._mapping) for row in found][::-1]

    def count(self, which: RunFilter = EVERYTHING) -> int:
        """How many there are, whatever `last` says."""
        asked = sa.select(sa.func.count()).select_from(RUNS).where(*_conditions(which))
        return int(self._connection.execute(asked).scalar_one())

    def figures(self, names: Iterable[str] = (), which: RunFilter = EVERYTHING) -> list[FigureRow]:
        return self._of_runs(FigureRow, _any_of(FIGURES.c.name, names), which)

    def findings(
        self,
        *,
        node: str = "",
        ids: Iterable[str] = (),
        status: Iterable[str] = (),
        which: RunFilter = EVERYTHING,
    ) -> list[FindingRow]:
        about = [sa.or_(FINDINGS.c.host == node, FINDINGS.c.peer == node)] if node else []
        about += _any_of(FINDINGS.c.id, ids) + _any_of(FINDINGS.c.status, status)
        return self._of_runs(FindingRow, about, which)

    def nodes(self, *, node: str = "", which: RunFilter = EVERYTHING) -> list[NodeRow]:
        about = _any_of(NODES.c.host, [node] if node else ())
        return self._of_runs(NodeRow, about, which)

    def hosts(self) -> list[str]:
        asked = sa.select(NODES.c.host).distinct().order_by(NODES.c.host)
        return list(self._connection.execute(asked).scalars())

    def spans(self) -> dict[str, tuple[str, str, int]]:
        run = NODES.c.run
        asked = sa.select(NODES.c.host, sa.func.min(run), sa.func.max(run), sa.func.count())
        found = self._connection.execute(asked.group_by(NODES.c.host))
        return {host: (first, last, count) for host, first, last, count in found}

    def latest(self) -> list[NodeRow]:
        newest = sa.select(NODES.c.host, sa.func.max(NODES.c.run)).group_by(NODES.c.host)
        asked = _columns(NODES, NodeRow).where(sa.tuple_(NODES.c.host, NODES.c.run).in_(newest))
        found = self._connection.execute(asked.order_by(NODES.c.host))
        return [NodeRow(**row._mapping) for row in found]

    def marks(self, since: str = "", *, troubled: bool = False) -> list[NodeMark]:
        asked = sa.select(*(NODES.c[name] for name in NodeMark._fields))
        wanted = NODES.c.started >= since
        if troubled:
            trouble = sa.or_(NODES.c.failed != "", NODES.c.warned != "")
            earlier = sa.select(NODES.c.host).where(NODES.c.started < since, trouble)
            wanted = sa.or_(wanted, NODES.c.host.in_(earlier))
        asked = asked.where(wanted).order_by(NODES.c.run, NODES.c.host)
        return [NodeMark(*row) for row in self._connection.execute(asked)]

    def run_marks(self, since: str = "", *, node: str = "") -> list[RunMark]:
        asked = sa.select(*(RUNS.c[name] for name in RunMark._fields))
        asked = asked.where(RUNS.c.started >= since).order_by(RUNS.c.run)
        if node:
            asked = asked.where(RUNS.c.run.in_(sa.select(NODES.c.run).where(NODES.c.host == node)))
        return [RunMark(*row) for row in self._connection.execute(asked)]

    def blames(self, since: str = "") -> dict[tuple[str, str], int]:
        host, id, count = FINDINGS.c.host, FINDINGS.c.id, sa.func.count()
        asked = sa.select(host, id, count).where(host != "", FINDINGS.c.status == "fail")
        asked = asked.where(FINDINGS.c.started >= since).group_by(host, id)
        return {(row[0], row[1]): row[2] for row in self._connection.execute(asked)}

    def pages(self, kind: type[_T], which: RunFilter = EVERYTHING) -> Iterator[list[_T]]:
        """All rows of that kind, some thousands at a time."""
        asked = _asked(kind, [], which).execution_options(yield_per=_PAGE)
        for part in self._connection.execute(asked).partitions():
            yield [kind(**found._mapping) for found in part]

    def _of_runs(self, row: type[_T], about: Sequence[Any], which: RunFilter) -> list[_T]:
        found = self._connection.execute(_asked(row, about, which))
        return [row(**one._mapping) for one in found]

    # One run.

    def named(self, reference: str) -> str | None:
        """Name of its folder; UsageError where several match."""
        asked = sa.select(RUNS.c.run).order_by(*_newest_first(RUNS))
        if reference == "last":
            return _folder_name(self._connection.execute(asked.limit(1)).scalar())
        asked = asked.where(
            sa.or_(
                RUNS.c.id.startswith(reference, autoescape=True),
                RUNS.c.run.startswith(reference, autoescape=True),
            )
        )
        exact = sa.or_(RUNS.c.id == reference, RUNS.c.run == reference).desc()
        found = self._connection.execute(asked.order_by(None).order_by(exact).limit(_MOST_NAMED))
        return _folder_name(named(reference, list(found.scalars())))

    def digest(self, name: str) -> str:
        asked = sa.select(RUNS.c.digest).where(RUNS.c.run == name)
        return str(self._connection.execute(asked).scalar_one())

    def files(self, name: str) -> Iterator[tuple[str, bytes]]:
        """Name and compressed content of each, one after the other."""
        asked = sa.select(FILES.c.name).where(FILES.c.run == name)
        for file in self._connection.execute(asked).scalars().all():
            data = sa.select(FILES.c.data).where(FILES.c.run == name, FILES.c.name == file)
            yield file, self._connection.execute(data).scalar_one()


def _folder_name(found: str | None) -> str | None:
    if found is not None and FOLDER_NAME.fullmatch(found) is None:
        raise InputError(f"the store has a run {found[:80]!r}", expected="the name of a run folder")
    return found


def _columns(table: sa.Table, row: type) -> sa.Select[Any]:
    return sa.select(*(table.c[one.name] for one in fields(row)))


def _asked(row: type, about: Sequence[Any], which: RunFilter) -> sa.Select[Any]:
    """Rows that fulfil `about`, of the runs that are meant, in order."""
    table = ROWS[row]
    asked = _columns(table, row).where(*about)
    if which != EVERYTHING:
        chosen = sa.select(RUNS.c.run).where(*_conditions(which))
        if which.last is not None:
            having = RUNS.c.run.in_(sa.select(table.c.run).where(*about))
            chosen = chosen.where(having).order_by(*_newest_first(RUNS)).limit(which.last)
        asked = asked.where(table.c.run.in_(chosen))
    within = [table.c[name] for name in ("number", "place") if name in table.c]
    return asked.order_by(_second(table), table.c.started, table.c.run, *within)


def _second(table: sa.Table) -> sa.ColumnElement[str]:
    return sa.func.substr(table.c.run, 1, STAMP_LENGTH)


def _newest_first(table: sa.Table) -> list[sa.ColumnElement[Any]]:
    return [_second(table).desc(), table.c.started.desc(), table.c.run.desc()]


def _any_of(column: sa.ColumnElement[str], values: Iterable[str]) -> list[Any]:
    told = list(values)
    return [column.in_(told)] if told else []


def _conditions(which: RunFilter) -> list[sa.ColumnElement[bool]]:
    """What `RunFilter.where` says to SQLite."""
    runs = RUNS.c
    found: list[sa.ColumnElement[bool]] = []
    if which.node:
        found.append(runs.run.in_(sa.select(NODES.c.run).where(NODES.c.host == which.node)))
    if which.command:
        found.append(runs.command == which.command)
    if which.gpu:
        found.append(sa.func.strpos(sa.func.lower(runs.gpu), which.gpu.lower()) > 0)
    if which.since:
        found.append(runs.started >= which.since)
    if which.until:
        found.append(runs.started < which.until)
    if which.before:
        earlier = [_second(RUNS), runs.started, runs.run]
        of_that = sa.select(*earlier).where(runs.run == which.before).scalar_subquery()
        found.append(sa.tuple_(*earlier) < of_that)
    if words := which.verdict_words:
        found += [runs.damaged == "", runs.verdict.in_(words)]
    if which.finished is not None:
        found.append(runs.finished == which.finished)
    if which.world is not None:
        found += [runs.backend == which.world[0], runs.world_size == which.world[1]]
    return found
