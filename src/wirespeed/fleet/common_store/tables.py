"""The tables of a common store: rows as the index has them (`runs/rows.py`), and each run's files.

All are in the schema `wirespeed` of the database. A store says of which version it is; this program
reads and writes its own version alone, and brings an older one up to it where its owner asks for that.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints
from zlib import crc32

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from wirespeed import __version__
from wirespeed.errors import StorageError
from wirespeed.fleet.common_store.connection import connected
from wirespeed.fleet.common_store.content import packed
from wirespeed.model.field_types import field_docs
from wirespeed.runs.loading import load
from wirespeed.runs.rows import STAMP_LENGTH, FigureRow, FindingRow, NodeRow, RunRow, rows_of
from wirespeed.runs.unsent import label

VERSION = 2
IDLE_S = 120
"""That a sender may stand still with a run half sent: then the server ends it, so that others may."""
_NAMES_NODE = "n.run = f.run AND n.host IN (f.host, f.peer) AND n.host <> ''"
_FINDINGS_OF = f"""
    (SELECT string_agg(DISTINCT f.id, ',') FROM wirespeed.findings f
     WHERE f.status = '{{status}}' AND {_NAMES_NODE})"""
_JUDGED = f"""
    f.status IN ('pass', 'fail', 'warn') AND (CASE WHEN f.status = 'pass' AND r.nodes <= 1 THEN true ELSE
    (f.status <> 'pass') = EXISTS (SELECT 1 FROM wirespeed.nodes n WHERE {_NAMES_NODE}) END)"""
STEPS: Mapping[int, Sequence[str]] = {
    1: (
        """ALTER TABLE wirespeed.runs
             ADD judged text COLLATE "C" NOT NULL DEFAULT '',
             ADD unjudged text COLLATE "C" NOT NULL DEFAULT '',
             ADD nodes_good boolean NOT NULL DEFAULT false,
             ADD detail text COLLATE "C" NOT NULL DEFAULT ''""",
        """ALTER TABLE wirespeed.nodes
             ADD failed text COLLATE "C" NOT NULL DEFAULT '',
             ADD warned text COLLATE "C" NOT NULL DEFAULT ''""",
        f"""UPDATE wirespeed.nodes n SET
              failed = coalesce({_FINDINGS_OF.format(status="fail")}, ''),
              warned = coalesce({_FINDINGS_OF.format(status="warn")}, '')""",
        f"""UPDATE wirespeed.runs r SET
              judged = coalesce(found.judged, ''), unjudged = coalesce(found.unjudged, '')
            FROM (
              SELECT run, string_agg(id, ',') FILTER (WHERE good) AS judged,
                string_agg(id, ',') FILTER (WHERE NOT good) AS unjudged
              FROM (
                SELECT f.run, f.id, bool_and({_JUDGED}) AS good
                FROM wirespeed.findings f JOIN wirespeed.runs r ON r.run = f.run
                WHERE NOT r.injected GROUP BY f.run, f.id
              ) each GROUP BY run
            ) found WHERE found.run = r.run""",
        # The tables do not say what `check --only` was asked for; a whole check has all three.
        """UPDATE wirespeed.runs r SET nodes_good = true
           WHERE verdict = 'READY' AND finished AND NOT injected AND (
             command IN ('locate', 'gate') OR command = 'check' AND 3 = (
               SELECT count(DISTINCT f.id) FROM wirespeed.findings f
               WHERE f.run = r.run AND f.id IN ('WORLD-001', 'NODE-001', 'COL-001')))""",
        """ALTER TABLE wirespeed.runs ALTER judged DROP DEFAULT, ALTER unjudged DROP DEFAULT,
             ALTER nodes_good DROP DEFAULT, ALTER detail DROP DEFAULT""",
        "ALTER TABLE wirespeed.nodes ALTER failed DROP DEFAULT, ALTER warned DROP DEFAULT",
    ),
}
"""Statements that make of a store of that version one of the next."""
SCHEMA = "wirespeed"
_ONE_AT_A_TIME = 0x77697265
"""Of the advisory lock under which tables are made, and the first half of those under which a run is put
there; any number that others do not use."""
_TYPES: Mapping[Any, Any] = {
    str: sa.Text(collation="C"),
    int: sa.BigInteger,
    bool: sa.Boolean,
    float: sa.Double,
    float | None: sa.Double,
}

METADATA = sa.MetaData(schema=SCHEMA)


def _columns(row: type) -> list[sa.Column[Any]]:
    hints, docs = get_type_hints(row), field_docs(row)
    return [
        sa.Column(
            one.name,
            _TYPES[hints[one.name]],
            nullable=hints[one.name] == float | None,
            primary_key=one.name == "run" and row is RunRow,
            comment=" ".join(docs[one.name].split()),
        )
        for one in fields(row)
    ]


def _of_a_run(name: str, row: type, *more: Any) -> sa.Table:
    """A table whose rows go with their run."""
    belongs = sa.ForeignKeyConstraint(["run"], [f"{SCHEMA}.runs.run"], ondelete="CASCADE")
    return sa.Table(name, METADATA, *_columns(row), belongs, *more)


RUNS = sa.Table(
    "runs",
    METADATA,
    *_columns(RunRow),
    sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of the run's files."),
    sa.Column(
        "received",
        sa.DateTime(timezone=True),
        nullable=False,
        server_default=sa.func.now(),
        comment="When the store got it.",
    ),
    sa.Index("runs_by_start", "started"),
    sa.Index("runs_by_id", "id"),
)
sa.Index("runs_in_order", sa.func.substr(RUNS.c.run, 1, STAMP_LENGTH), RUNS.c.started, RUNS.c.run)


def _place() -> sa.Column[Any]:
    return sa.Column(
        "place", sa.BigInteger, nullable=False, comment="Its place in the run, from 0."
    )


FIGURES = _of_a_run(
    "figures",
    FigureRow,
    _place(),
    sa.PrimaryKeyConstraint("run", "place"),
    sa.Index("figures_by_name", "name", "run"),
)
FINDINGS = _of_a_run(
    "findings",
    FindingRow,
    sa.PrimaryKeyConstraint("run", "number"),
    sa.Index("findings_by_id", "id"),
    sa.Index("findings_by_host", "host"),
)
NODES = _of_a_run(
    "nodes",
    NodeRow,
    _place(),
    sa.PrimaryKeyConstraint("run", "place"),
    sa.Index("nodes_by_host", "host"),
)
FILES = sa.Table(
    "files",
    METADATA,
    sa.Column("run", _TYPES[str], sa.ForeignKey(RUNS.c.run, ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True, comment="In the run's folder: `run.json`, …"),
    sa.Column("data", sa.LargeBinary, nullable=False, comment="Compressed by zstd."),
)
ROWS: Mapping[type, sa.Table] = {
    RunRow: RUNS,
    FigureRow: FIGURES,
    FindingRow: FINDINGS,
    NodeRow: NODES,
}
VERSIONS = sa.Table(
    "versions",
    METADATA,
    sa.Column("version", sa.Integer, primary_key=True, comment="Of these tables."),
    sa.Column("wirespeed", sa.Text, nullable=False, comment="Which version of it made them."),
    sa.Column("since", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)


def set_up(url: str) -> int:
    """Make the tables, or bring those of an older version up to this one; the version before, 0: none.

    StorageError where they are of a newer one, or where this role may not.
    """
    with connected(url) as connection, connection.begin():
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ONE_AT_A_TIME)))
        before = _version(connection)
        if before > VERSION:
            raise _newer(before, url)
        if before == 0:
            connection.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))
            METADATA.create_all(connection)
        for version in range(before or VERSION, VERSION):
            for statement in STEPS[version]:
                connection.exec_driver_sql(statement)
        if before != VERSION:
            made = {"version": VERSION, "wirespeed": __version__}
            connection.execute(sa.insert(VERSIONS).values(made))
        return before


def refuse_other_version(connection: sa.Connection, url: str) -> None:
    """StorageError where its tables are not of this program's version."""
    found = _version(connection)
    if found > VERSION:
        raise _newer(found, url)
    if found < VERSION:
        saw = f"is of version {found}" if found else "has no tables yet"
        raise StorageError(
            f"the store {label(url)} {saw}",
            expected=f"version {VERSION}",
            next=f"wirespeed runs send --set-up --store {shlex.quote(url)}   (as the role that owns it)",
        )


def _newer(found: int, url: str) -> StorageError:
    return StorageError(
        f"the store {label(url)} is of version {found}, newer than this wirespeed {__version__}",
        expected=f"version {VERSION}",
        next="pip install --upgrade 'wirespeed[store]'",
    )


def _version(connection: sa.Connection) -> int:
    """0 where there are no tables."""
    there = sa.select(sa.func.to_regclass(f"{SCHEMA}.versions"))
    if connection.execute(there).scalar() is None:
        return 0
    return connection.execute(sa.select(sa.func.max(VERSIONS.c.version))).scalar() or 0


def put_run(connection: sa.Connection, folder: Path) -> bool | None:
    """Put the run of that folder in the tables, in place of what they held of it, within the caller's
    transaction; False where they held the same, None where another sender is about to put it there.

    InputError where it cannot be read.
    """
    # Before it is read: who was stopped in between would put there what meanwhile is old.
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_S * 1000}")
    lock = sa.func.pg_try_advisory_xact_lock(
        _ONE_AT_A_TIME, crc32(folder.name.encode()) - (1 << 31)
    )
    if not connection.execute(sa.select(lock)).scalar():
        return None
    files, digest = packed(folder)
    rows = rows_of(load(folder), folder.name)
    new = insert(RUNS).values(**_told(rows.run), digest=digest)
    put = new.on_conflict_do_update(
        index_elements=[RUNS.c.run],
        set_={one.name: new.excluded[one.name] for one in RUNS.c if one.name != "received"},
        where=RUNS.c.digest != new.excluded.digest,
    ).returning(RUNS.c.run)
    if connection.execute(put).first() is None:
        return False
    for table, told in (
        (FIGURES, [{**_told(one), "place": n} for n, one in enumerate(rows.figures)]),
        (FINDINGS, [_told(one) for one in rows.findings]),
        (NODES, [{**_told(one), "place": n} for n, one in enumerate(rows.nodes)]),
        (FILES, [{"run": folder.name, "name": k, "data": v} for k, v in files.items()]),
    ):
        connection.execute(sa.delete(table).where(table.c.run == folder.name))
        if told:
            connection.execute(sa.insert(table), told)
    return True


def _told(row: Any) -> dict[str, Any]:
    """By column; PostgreSQL's text holds neither NUL nor halves of surrogate pairs."""
    return {
        name: value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
        if isinstance(value, str)
        else value
        for name, value in asdict(row).items()
    }
