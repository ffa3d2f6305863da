"""The index: rows of all stored runs in one SQLite file beside their folders.

    $WIRESPEED_HOME/index-2.sqlite

The folders are the truth; no run waits for the index, since whoever reads it looks first what has come,
gone or changed: the time of the runs' folder tells whether names did, and run.json and records.jsonl
of runs that have not ended, and of those that are shown, whether their content did.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from wirespeed.model.verdicts import Standing, words_with
from wirespeed.runs.folder_stamps import CHANGING, folder_changes, folder_stamp, is_as
from wirespeed.runs.index_file import (
    FLAT,
    TABLES,
    VERSION,
    IndexFile,
    any_of,
    columns,
    made,
    packed,
    unpacked,
)
from wirespeed.runs.place import home, runs_home
from wirespeed.runs.rows import (
    FigureRow,
    FindingRow,
    NodeMark,
    NodeRow,
    Rows,
    RunMark,
    RunRow,
    order_of,
)

_T = TypeVar("_T")
_ATTEMPTS = 3
_BATCH_S = 0.5
"""So long rows are gathered before they are written: more than that is not lost with the process."""
_ORDER = "substr(run, 1, 15), started, run"
"""Of runs, as SQL: see `order_of`."""
_FALLING = "substr(run, 1, 15) DESC, started DESC, run DESC"
_PAGE, _PART = 500, 1000
_FEW = 8
"""Runs that are read while the file is locked: to lock it again takes longer."""
_MANY = 200
"""Runs to be read that are worth a word."""
STANDINGS: dict[str, Standing] = {
    "pass": "good",
    "measured": "measured",
    "fail": "bad",
    "unknown": "undecided",
}
"""By what a filter is given: what the verdict of a run has to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs; what is empty or None filters nothing."""

    node: str = ""
    """A host that took part."""
    verdict: str = ""
    """`pass`, `measured`, `fail` or `unknown`: what the verdict says; or a word such as `NOT READY`."""
    words: tuple[str, ...] = ()
    """Verdict words, any of them."""
    command: str = ""
    """The verb."""
    gpu: str = ""
    """Part of a GPU's product name, in any case."""
    since: str = ""
    """ISO 8601 in UTC, or the start of it: runs that started then or later."""
    until: str = ""
    """Runs that started before."""
    before: str = ""
    """Name of a run's folder: runs that come before it."""
    finished: bool | None = None
    """Runs that ended, or that did not."""
    world: tuple[str, int] | None = None
    """Backend and ranks."""
    last: int | None = None
    """So many at most, the newest."""

    @property
    def verdict_words(self) -> tuple[str, ...]:
        """The verdict words that `verdict` and `words` ask for; empty: all."""
        if self.verdict in STANDINGS:
            return words_with(STANDINGS[self.verdict])
        return (self.verdict.upper(),) if self.verdict else self.words

    def where(self) -> tuple[str, list[Any]]:
        """A condition of SQL on the table `runs`, and its values."""
        told: list[tuple[Any, str]] = [
            (self.node, "run IN (SELECT run FROM nodes WHERE host = ?)"),
            (self.command, "command = ?"),
            (self.gpu, "instr(lower(gpu), lower(?)) > 0"),
            (self.since, "started >= ?"),
            (self.until, "started < ?"),
            (self.before, f"({_ORDER}) < (SELECT {_ORDER} FROM runs WHERE run = ?)"),
        ]
        told = [(value, condition) for value, condition in told if value]
        if words := self.verdict_words:
            listed = f",{','.join(words)},"
            told.append((listed, "damaged = '' AND instr(?, ',' || verdict || ',') > 0"))
        if self.finished is not None:
            told.append((int(self.finished), "finished = ?"))
        if self.world is not None:
            told += [(self.world[0], "backend = ?"), (self.world[1], "world_size = ?")]
        return " AND ".join(["1", *(one for _, one in told)]), [value for value, _ in told]


_ABOUT = "(host <> '' AND host = ? OR peer <> '' AND peer = ?)"
"""Of a node, in the words of the indexes, which SQLite uses then."""
EVERYTHING = RunFilter()


class Index:
    """Rows of the stored runs; `opened` gives one that is current."""

    def __init__(self, path: Path, folders: Path, say: Callable[[str], None]) -> None:
        self._folders, self._say = folders, say
        self._file = IndexFile(path, self._synchronise)
        self._end = float("inf")
        self.missing = 0
        """Runs that are not in it yet, since the time was over."""
        if not folders.is_dir():
            self._file.use_memory("there are no runs")

    @classmethod
    @contextmanager
    def opened(
        cls, *, seconds: float | None = None, say: Callable[[str], None] = lambda text: None
    ) -> Iterator["Index"]:
        """The index of this user's runs, made current.

        seconds: for making it so, the newest runs first; what is left out is counted as `missing`; 0: it
        is taken as it was made last.
        say: told where that takes long. StorageError where the runs' folder cannot be read.
        """
        index = cls(home() / f"index-{VERSION}.sqlite", runs_home(), say)
        try:
            index.update(seconds)
            yield index
        finally:
            index._file.close()

    @property
    def in_memory(self) -> str:
        """Why the file is not used; empty while it is."""
        return self._file.in_memory

    def update(self, seconds: float | None = None) -> None:
        """Take in what has come, gone or changed since; seconds: as of `opened`."""
        self._end = float("inf") if seconds is None else time.monotonic() + seconds
        self._file.mended(self._synchronise)

    def look_over(self) -> None:
        """Have the whole file looked over; where it is damaged it is made anew."""
        self._file.mended(self._file.look_closely)

    # Reading: always in the order in which the runs started.

    def runs(self, which: RunFilter = EVERYTHING) -> list[RunRow]:
        """The runs, oldest first, each as its folder is now."""
        return self._file.mended(lambda: self._current(which))

    def count(self, which: RunFilter = EVERYTHING) -> int:
        """How many there are, whatever `last` says."""
        where, values = which.where()
        sql = f"SELECT count(*) FROM {'runs' if values else 'details'} WHERE {where}"  # few bytes a name
        return int(self._asked(lambda: self._file.ask(sql, values)[0][0]))

    def figures(self, names: Iterable[str] = (), which: RunFilter = EVERYTHING) -> list[FigureRow]:
        """names: operations or strategies, all if empty. `last`: of the runs that have such figures."""
        wanted = list(names)
        measured = " OR ".join(["instr(measured, ?)"] * len(wanted)) or "1"
        found = self._details(FigureRow, which, f"({measured})", [f" {name} " for name in wanted])
        return [row for row in found if not wanted or row.name in wanted]

    def findings(
        self,
        *,
        node: str = "",
        ids: Iterable[str] = (),
        status: Iterable[str] = (),
        which: RunFilter = EVERYTHING,
    ) -> list[FindingRow]:
        """node: that they are about; ids, status: any of these. Quick in all runs for `fail` and `warn`:
        then `last` is of the runs that have such findings."""
        wanted, said = set(ids), set(status)
        if said and said.issubset(FLAT):
            about = (_ABOUT, [node, node]) if node else any_of("host", ())
            such = [about, any_of("id", wanted), any_of("status", said)]
            return self._of_runs(FindingRow, such, which)
        return [
            row
            for row in self._details(FindingRow, which)
            if (not node or node in (row.host, row.peer))
            and (not wanted or row.id in wanted)
            and (not said or row.status in said)
        ]

    def nodes(self, *, node: str = "", which: RunFilter = EVERYTHING) -> list[NodeRow]:
        """Each node in each run, or that one in each. `last`: of the runs that have such."""
        return self._of_runs(NodeRow, [any_of("host", [node] if node else ())], which)

    def hosts(self) -> list[str]:
        """Every node that took part in a run, sorted."""
        sql = "SELECT DISTINCT host FROM nodes ORDER BY host"
        return [host for (host,) in self._asked(lambda: self._file.ask(sql))]

    def spans(self) -> dict[str, tuple[str, str, int]]:
        """By host its first and its last run (their folders' names), and in how many it took part."""
        sql = "SELECT host, min(run), max(run), count(*) FROM nodes WHERE host > ? GROUP BY host"
        found = self._in_parts(f"{sql} ORDER BY host LIMIT {_PART}", [""], 0)
        return {host: (first, last, count) for host, first, last, count in found}

    def latest(self) -> list[NodeRow]:
        """Of each node the row of its last run, by host."""
        newest = "SELECT host, max(run) FROM nodes WHERE host > ? GROUP BY host ORDER BY host"
        names = columns(NodeRow)
        sql = f"SELECT {', '.join(names)}, crc FROM nodes"
        sql += f" WHERE (host, run) IN ({newest} LIMIT {_PART}) ORDER BY host"
        found = self._in_parts(sql, [""], names.index("host"))
        return self._file.mended(lambda: [made(NodeRow, row) for row in found])

    def marks(self, since: str = "", *, troubled: bool = False) -> list[NodeMark]:
        """What each run since then says of each of its nodes, as little as changes a state; ordered.

        troubled: with the earlier runs of each node that a finding failed or warned of before.
        """
        first = _stamp(since)
        names = NodeMark._fields
        after, places = "(run, host) > (?, ?)", [names.index("run"), names.index("host")]
        sql = f"SELECT {', '.join(names)} FROM nodes WHERE {after}"
        order = f"ORDER BY run, host LIMIT {10 * _PART}"
        found = []
        if troubled:
            before = "run < ? AND host IN (SELECT host FROM nodes WHERE run < ? AND "
            before += "(failed <> '' OR warned <> ''))"
            values = [first, first]
            found = self._in_parts(f"{sql} AND {before} {order}", ["", ""], *places, values=values)
        found += self._in_parts(f"{sql} {order}", [first, ""], *places)
        return [NodeMark(*row) for row in found]

    def run_marks(self, since: str = "", *, node: str = "") -> list[RunMark]:
        """Of each run since then, or of that node's, what changes the states of nodes; ordered."""
        names = RunMark._fields
        sql = f"SELECT {', '.join(names)} FROM runs WHERE run > ?"
        sql += " AND run IN (SELECT run FROM nodes WHERE host = ?)" if node else ""
        sql += f" ORDER BY run LIMIT {_PART}"
        values = [node] if node else []
        found = self._in_parts(sql, [_stamp(since)], names.index("run"), values=values)
        return [RunMark(*row)._replace(nodes_good=bool(row[-1])) for row in found]

    def blames(self, since: str = "") -> dict[tuple[str, str], int]:
        """By host and id how many findings since then failed because of it."""
        sql = "SELECT host, id, count(*) FROM findings WHERE host <> '' AND status = 'fail'"
        sql += " AND started >= ? GROUP BY host, id"
        found = self._asked(lambda: self._file.ask(sql, [since]))
        return {(host, id): count for host, id, count in found}

    def pages(self, kind: type[_T], which: RunFilter = EVERYTHING) -> Iterator[list[_T]]:
        """All rows of that kind, some hundred runs at a time, so that they need not fit into memory."""
        chosen, values = _chosen(which)
        asked = f"SELECT run FROM ({chosen}) ORDER BY run"
        names = [run for (run,) in self._asked(lambda: self._file.ask(asked, values))]
        for first in range(0, len(names), _PAGE):
            within = any_of("run", names[first : first + _PAGE])
            if kind in (FigureRow, FindingRow):
                yield self._details(kind, EVERYTHING, *within)
            else:
                yield self._of_runs(kind, [within], EVERYTHING)

    def _details(
        self, kind: type[_T], which: RunFilter, condition: str = "1", more: Sequence[Any] = ()
    ) -> list[_T]:
        """Rows that are packed, of the runs that also fulfil a condition."""
        chosen, values = _chosen(which, condition, more)
        sql = "SELECT run, started, packed FROM runs JOIN details USING (run)"
        sql += f" WHERE run IN ({chosen}) ORDER BY {_ORDER}"

        def read() -> list[_T]:
            return [row for one in self._file.ask(sql, values) for row in unpacked(kind, *one)]

        return self._asked(read)

    def _asked(self, action: Callable[[], _T]) -> _T:
        return self._file.mended(lambda: self._file.steady(action))

    def _in_parts(
        self, sql: str, after: list[str], *places: int, values: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a statement that gives some thousands, those after some values, which stand at
        these places of a row: a long one would hold up who writes, and who comes after him.

        values: what the statement asks for besides, after those.
        """

        def read() -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = []
            part = self._file.steady(lambda: self._file.ask(sql, [*after, *values]))
            while part:
                found += part
                last = [part[-1][place] for place in places]
                part = self._file.steady(partial(self._file.ask, sql, [*last, *values]))
            return found

        return self._file.mended(read)

    def _of_runs(
        self, kind: type[_T], conditions: Iterable[tuple[str, list[Any]]], which: RunFilter
    ) -> list[_T]:
        table = next(name for name, one in TABLES.items() if one is kind)
        condition = " AND ".join(text for text, _ in conditions)
        values = [value for _, told in conditions for value in told]
        names = ", ".join(columns(kind))
        sql = f"SELECT {names}, crc FROM {table} WHERE {condition}"
        if which != EVERYTHING:
            such = f"EXISTS (SELECT 1 FROM {table} t WHERE t.run = runs.run AND {condition})"
            chosen, more = _chosen(which, such, values) if which.last else _chosen(which)
            sql, values = f"{sql} AND run IN ({chosen})", values + more
        sql += f" ORDER BY {_ORDER}" + ", number" * ("number" in columns(kind))
        return self._asked(lambda: self._file.rows(kind, sql, values))

    def _current(self, which: RunFilter) -> list[RunRow]:
        chosen, values = _chosen(which)
        sql = f"SELECT seen, {', '.join(columns(RunRow))}, crc FROM runs WHERE run IN ({chosen})"
        found: list[tuple[str, RunRow]] = []
        for _ in range(_ATTEMPTS):
            rows = self._file.steady(lambda: self._file.ask(sql, values))
            found = [(seen, made(RunRow, row)) for seen, *row in rows]
            stale = [one.run for seen, one in found if not is_as(seen, self._folders / one.run)]
            if not stale:
                break
            self._take(stale)
        return sorted((one for _, one in found), key=order_of)

    def _synchronise(self) -> None:
        """Until nothing is left to be read, or no time; whatever other processes do to the file."""
        self._file.look_over(patient=self._end == float("inf"))
        for _ in range(_ATTEMPTS):
            self._catch_up()
            with self._file.transaction("BEGIN"):
                told = self._file.told()
                (self.missing,) = self._file.ask("SELECT count(*) FROM pending")[0]
            if "stamp" in told and (not self.missing or time.monotonic() > self._end):
                break
        self._file.made = told.get("made", "")

    def _catch_up(self) -> None:
        file, stamp = self._file, self._file.told().get("stamp")
        if stamp is None or (
            time.monotonic() <= self._end and stamp != folder_stamp(self._folders)
        ):
            self._list()
        open_ones = file.ask("SELECT run, seen FROM runs WHERE finished = 0")
        self._take([run for run, seen in open_ones if not is_as(seen, self._folders / run)])
        (waiting,) = file.ask("SELECT count(*) FROM pending")[0]
        if waiting >= _MANY:
            kept = f", in memory: {file.in_memory}" if file.in_memory else ""
            self._say(f"reading {waiting:,} runs into the index{kept}")
        # Those that come first are written first, which keeps the file small, unless time is short. Page
        # by page: what another process has read meanwhile is not read again.
        order = "ASC" if self._end == float("inf") else "DESC"
        next_ones = f"SELECT run FROM pending ORDER BY run {order} LIMIT {_PAGE}"
        while time.monotonic() <= self._end and (new := file.ask(next_ones)):
            self._take([run for (run,) in new])

    def _list(self) -> None:
        """What has come is pending from now on, what has gone is forgotten.

        In one step: whoever else does this, the stamp that stays belongs to the list that stays. Where
        nothing has, but still may, nothing is written, since others would wait for that.
        """
        file, stamp = self._file, folder_stamp(self._folders)
        told = file.told()
        new, gone, seen = folder_changes(self._folders, file.known, told.get("listed", ""))
        if "stamp" in told and stamp.startswith(CHANGING) and not (new or gone):
            return
        with file.transaction():
            if file.told() != told:
                self._list()
                return
            self._forget(gone)
            file.change("INSERT OR IGNORE INTO pending VALUES (?)", [(run,) for run in new])
            file.tell(stamp=stamp, listed=seen)
            if len(new) <= _FEW:
                self._take(list(new))

    def _take(self, names: Sequence[str]) -> None:
        """Read these runs and keep their rows, in the time that there is."""
        if not names:
            return
        from wirespeed.runs.loading import rows_there  # most often there is nothing to be read

        read: list[tuple[str, str, Rows | None]] = []
        since = time.monotonic()
        for name in names:
            if (now := time.monotonic()) > self._end:
                break
            if now - since > _BATCH_S:
                self._keep(read)
                read, since = [], now
            read.append((name, *rows_there(self._folders / name)))
        self._keep(read)

    def _keep(self, read: Sequence[tuple[str, str, Rows | None]]) -> None:
        if not read:
            return
        with self._file.transaction():
            self._forget(name for name, _, _ in read)
            for _, seen, rows in read:
                if rows is None:  # it may come back under its name
                    self._file.tell(listed="")
                else:
                    names = " ".join(dict.fromkeys(row.name for row in rows.figures))
                    self._file.insert("runs", [rows.run], seen, f" {names} ")
                    told = [row for row in rows.findings if row.status in FLAT]
                    self._file.insert("findings", told)
                    self._file.insert("nodes", rows.nodes)
                    details = [(rows.run.run, packed(rows))]
                    self._file.change("INSERT INTO details VALUES (?, ?)", details)

    def _forget(self, runs: Iterable[str]) -> None:
        gone = [(run,) for run in runs]
        for table in (*TABLES, "details", "pending"):
            self._file.change(f"DELETE FROM {table} WHERE run = ?", gone)


def _stamp(moment: str) -> str:
    """How the name of a run's folder begins that started then."""
    return moment[:19].replace("-", "").replace(":", "").replace("T", "-")


def _chosen(
    which: RunFilter, condition: str = "1", more: Sequence[Any] = ()
) -> tuple[str, list[Any]]:
    """SQL for the names of the runs that also fulfil a condition, and its values.

    Of the newest: of the second that holds the oldest of them all are looked at, no others are sorted.
    """
    where, values = which.where()
    sql, values = f"SELECT run FROM runs WHERE {where} AND {condition}", [*values, *more]
    if which.last is None:
        return sql, values
    second = f"SELECT substr(min(run), 1, 15) FROM ({sql} ORDER BY run DESC LIMIT {which.last})"
    return f"{sql} AND run >= ({second}) ORDER BY {_FALLING} LIMIT {which.last}", values * 2
