"""The file of the index: rows in and out of SQLite, and what is done where the file is lost or damaged.

A rollback journal, never a write-ahead log: that one needs memory which all readers share, which a
network's file system does not have (https://www.sqlite.org/wal.html), nor does it open in a folder that
cannot be written. Locks are SQLite's own; on NFS they need version 4, or lockd. Where the file cannot be
had or written (a read-only home, a full disk, locks that do not work) the rows are in memory, for this
process alone.
"""

import fcntl
import json
import os
import secrets
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from wirespeed.errors import StorageError
from wirespeed.runs.rows import FigureRow, FindingRow, NodeRow, Rows, RunRow

VERSION = 2
"""Of the tables; another one has a file of its own."""
TABLES: dict[str, type] = {"runs": RunRow, "findings": FindingRow, "nodes": NodeRow}
"""Rows by the name of their table; of findings those in `FLAT`."""
FLAT = ("fail", "warn")
"""Findings that are looked for in all runs. The others, ten times as many, and the figures are read of
some runs only: they are packed, a value a run, for a tenth of the room and of the time to write."""

_T = TypeVar("_T")
_BUSY_S = 5.0
_ATTEMPTS = 6
_UNUSABLE = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS),
}
"""Errors that say nothing of what is in the file: it cannot be had, or written, now."""
_PAGE_BYTES = 4096
_SMALL_BYTES = 4 << 20
"""A file that is checked in some 20 ms."""
_QUICK, _GOOD = "quick_check(1)", [("ok",)]
_LOOK = (sys.executable, "-P", "-m", "wirespeed.runs.look_over")
_TRIED_S, _DAY_S = 600, 86400
"""Until a file is looked over again: where that was begun, and where it was found good."""
_LOCKED_BYTES = 512
_FIRST_LOCKED = 0x40000000
"""The bytes that SQLite locks to read or write (https://www.sqlite.org/fileformat2.html, 1.2.1)."""
_KEYS = {"runs": "run", "findings": "run, number", "nodes": "run, host"}
"""A table is one tree in the order of its runs: with a second beside it, damage could hide a row from
those who look there, and from nobody else."""
_BEYOND = {"runs": ("crc", "seen", "measured")}
"""Columns beside a row's own: `seen` tells whether its files changed, `measured` is names of figures."""
_INDEXES = (
    "runs (run) WHERE finished = 0",
    "findings (host, run) WHERE host <> ''",
    "findings (peer, run) WHERE peer <> ''",
    "nodes (host, run)",
    "nodes (run, host) WHERE failed <> '' OR warned <> ''",
)


class Damaged(Exception):
    """A row is not what was written."""


class Remade(Exception):
    """Another process has emptied the file since this one filled it."""


class IndexFile:
    """A connection that answers whatever has become of the file."""

    def __init__(self, path: Path, renew: Callable[[], None]) -> None:
        """renew: called after the tables were made anew, to fill them."""
        self._path, self._renew = path, renew
        self.made = ""
        """Which making of the tables `renew` has filled; one of `told`."""
        self.in_memory = ""
        """Why the file is not used; empty while it is."""
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def use_memory(self, why: str, *, copy: bool = False) -> None:
        """Go on without the file; copy: with what stands in it."""
        self.close()
        self.in_memory = why
        if copy:
            with suppress(sqlite3.Error, Damaged):
                self._db = _copied(self._path)
        if self._db is None:
            self._db = sqlite3.connect(":memory:", isolation_level=None)
            _make(self._db)

    def mended(self, action: Callable[[], _T]) -> _T:
        """What the action gives: where the file is damaged once more after it was opened again, then
        after it was emptied, at last in memory."""
        last: Exception | None = None
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    self._renew()
                return action()
            except Remade as error:
                last = error
            except (sqlite3.Error, Damaged) as error:
                last = error
                self._step_back(attempt, error)
        raise StorageError(f"the index {self._path} cannot be read: {last}") from last

    def steady(self, action: Callable[[], _T]) -> _T:
        """What an action gives that only reads; Remade where the tables may not be full yet."""
        with self.transaction("BEGIN"):
            if self.told().get("made", "") != self.made:
                raise Remade("another process makes it anew")
            return action()

    def told(self) -> dict[str, str]:
        """What is kept of the whole, by name."""
        return dict(self.ask("SELECT name, value FROM told"))

    def tell(self, **told: str) -> None:
        """Keep that."""
        self.change("INSERT OR REPLACE INTO told VALUES (?, ?)", list(told.items()))

    def known(self, after: str) -> set[str]:
        """Names of the runs that come after that one, read or to be read."""
        sql = "SELECT group_concat(run, '/') FROM {} WHERE run > ?"  # quicker than a row for each
        told = [self.ask(sql.format(one), [after])[0][0] for one in ("runs", "pending")]
        return set("/".join(filter(None, told)).split("/")) - {""}

    def look_over(self, *, patient: bool) -> None:
        """Damaged where SQLite finds it so: garbage in a branch of a tree hides rows, and says nothing.

        A small file each time; a larger one, where somebody is patient, once a day by another process.
        """
        size = 0
        if not self.in_memory:
            with suppress(OSError):
                size = self._path.stat().st_size
        if 0 < size <= _SMALL_BYTES:
            self._look("integrity_check(1)")
        elif size and patient and not _in(0) < str(self.told().get("look")) <= _in(_DAY_S):
            with suppress(OSError, sqlite3.Error):
                self.tell(look=_in(_TRIED_S))
                _begin_to_look()

    def look_closely(self) -> None:
        """The same of any file, in the time that it takes: nobody who writes waits for it."""
        name = f"file:{quote(bytes(self._path))}?mode=ro&immutable=1"
        found = None
        with suppress(sqlite3.Error), closing(sqlite3.connect(name, uri=True)) as unlocked:
            found = unlocked.execute(f"PRAGMA {_QUICK}").fetchall()
        if found != _GOOD:
            self._look(_QUICK)  # it may be that somebody wrote meanwhile
        self.tell(look=_in(_DAY_S))

    def _look(self, how: str) -> None:
        found = self.ask(f"PRAGMA {how}")
        if found != _GOOD:
            raise Damaged(str(found[0][0]))

    def _step_back(self, attempt: int, error: Exception) -> None:
        self.close()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _UNUSABLE or attempt == _ATTEMPTS - 2:
            self.use_memory(str(error), copy=code in _UNUSABLE)
        elif attempt and not self.in_memory:
            self._empty()

    def _empty(self) -> None:
        """Take all out of the file while nobody reads or writes it.

        It stays the same file: who has it open would write the journal of a removed one beside the new
        (https://www.sqlite.org/howtocorrupt.html, 2.4).
        """
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return  # opening it will tell
        try:
            if _locked(handle):
                journal = self._path.with_name(f"{self._path.name}-journal")
                journal.unlink(missing_ok=True)
                os.ftruncate(handle, 0)
        except OSError:
            pass
        finally:
            os.close(handle)

    # Statements.

    @property
    def db(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._opened()
        return self._db

    def _opened(self) -> sqlite3.Connection:
        if self._path.parent.is_dir():
            # SQLite itself would let others read it. One that is there is not opened: to close it would
            # end the locks of this process's other threads (howtocorrupt.html, 2.2).
            with suppress(OSError):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        size = 0
        with suppress(OSError):
            size = self._path.stat().st_size
        if size % _PAGE_BYTES:
            raise Damaged("it is cut")
        name = f"file:{quote(bytes(self._path))}?mode=rw"
        db = sqlite3.connect(name, uri=True, timeout=_BUSY_S, isolation_level=None)
        try:
            # Nothing of it is lost for good: one wait for the disk less.
            db.execute("PRAGMA journal_mode = TRUNCATE")
            db.execute("PRAGMA synchronous = NORMAL")
            _make(db)
        except BaseException:
            db.close()
            raise
        return db

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All at once: a statement that is not at its end would keep the file locked."""
        return self.db.execute(sql, values).fetchall()

    def change(self, sql: str, values: Sequence[Sequence[Any]] = ((),)) -> None:
        self.db.executemany(sql, values) if values else None

    def rows(self, kind: type[_T], sql: str, values: Sequence[Any]) -> list[_T]:
        """Of a statement that asks for the columns of that row, then for `crc`."""
        return [made(kind, found) for found in self.ask(sql, values)]

    def insert(self, table: str, rows: Iterable[Any], *more: str) -> None:
        """Rows, with what a table has beyond them."""
        values = [(*(told := _told(row)), _crc(told), *more) for row in rows]
        if values:
            places = ",".join("?" * len(values[0]))
            self.db.executemany(f"INSERT INTO {table} VALUES ({places})", values)

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile; within another it is a part of that."""
        db = self.db
        if db.in_transaction:
            yield
            return
        db.execute(begin)
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise


def any_of(column: str, values: Iterable[str]) -> tuple[str, list[Any]]:
    """A condition of SQL, and its values; no values: any."""
    told = list(values)
    return (f"{column} IN ({','.join('?' * len(told))})", told) if told else ("1", [])


def _in(seconds: int) -> str:
    return str(int(time.time()) + seconds)


def _begin_to_look() -> None:
    from subprocess import DEVNULL, Popen  # once a day

    Popen(_LOOK, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)


def _copied(path: Path) -> sqlite3.Connection:
    """The file's content in memory."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    name = f"file:{quote(bytes(path))}?mode=ro"
    there = sqlite3.connect(name, uri=True, timeout=_BUSY_S, isolation_level=None)
    try:
        there.execute("BEGIN")  # else `backup` waits for a lock without a bound
        there.execute("SELECT count(*) FROM sqlite_master").fetchall()
        there.backup(db)
        _make(db)
    except BaseException:
        db.close()
        raise
    finally:
        there.close()
    return db


def _make(db: sqlite3.Connection) -> None:
    """The tables, where there are none yet; Damaged where they are of another version."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        return
    if version:
        raise Damaged(f"it is of version {version}")
    db.execute("BEGIN IMMEDIATE")
    for table, kind in TABLES.items():
        names = ", ".join((*columns(kind), *_BEYOND.get(table, ("crc",))))
        key = f"PRIMARY KEY ({_KEYS[table]})) WITHOUT ROWID"
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names}, {key}")
    db.execute("CREATE TABLE IF NOT EXISTS details (run PRIMARY KEY, packed)")
    db.execute("CREATE TABLE IF NOT EXISTS pending (run PRIMARY KEY)")
    db.execute("CREATE TABLE IF NOT EXISTS told (name PRIMARY KEY, value)")
    for number, place in enumerate(_INDEXES):
        db.execute(f"CREATE INDEX IF NOT EXISTS by_{number} ON {place}")
    db.execute("INSERT OR REPLACE INTO told VALUES ('made', ?)", (secrets.token_hex(8),))
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def _locked(handle: int) -> bool:
    """Whether the file is ours alone now, waited for in bounded time; until it is closed."""
    end = time.monotonic() + _BUSY_S
    while time.monotonic() < end:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCKED_BYTES, _FIRST_LOCKED)
        except OSError:
            time.sleep(0.01)
        else:
            return True
    return False


# A row as values of SQLite, and back: with a checksum, since SQLite keeps none.


_KINDS: tuple[type, ...] = (RunRow, FigureRow, FindingRow, NodeRow)
_COLUMNS = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS}
_FLAGS = {kind: tuple(one.name for one in fields(kind) if one.type is bool) for kind in _KINDS}


def columns(kind: type) -> tuple[str, ...]:
    return _COLUMNS[kind]


def _values(row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in columns(type(row)))


def _told(row: Any) -> tuple[Any, ...]:
    return tuple(int(value) if value is True or value is False else value for value in _values(row))


def made(kind: type[_T], found: Sequence[Any]) -> _T:
    """Damaged where the values are not what was written."""
    *values, crc = found
    if crc != _crc(tuple(values)):
        raise Damaged("a row is not what was written")
    told = dict(zip(columns(kind), values, strict=True))
    return kind(**told | {name: bool(told[name]) for name in _FLAGS[kind]})


def _crc(values: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(values).encode("utf-8", "surrogatepass"))


_PACKED: dict[type, str] = {FigureRow: "figures", FindingRow: "findings"}
_OF_RUN = 2
"""The first columns, which are those of the run itself."""


def packed(rows: Rows) -> bytes:
    """A run's figures and findings; zlib sees damage by its checksum."""
    told = {
        name: [_values(row)[_OF_RUN:] for row in getattr(rows, name)] for name in _PACKED.values()
    }
    return zlib.compress(json.dumps(told).encode(), 1)


def unpacked(kind: type[_T], run: str, started: str, data: bytes) -> list[_T]:
    """The rows of one kind; Damaged where it is not what was packed."""
    try:
        told = json.loads(zlib.decompress(data))[_PACKED[kind]]
    except (zlib.error, TypeError) as error:
        raise Damaged(str(error)) from error
    return [kind(**dict(zip(columns(kind), (run, started, *one), strict=True))) for one in told]
