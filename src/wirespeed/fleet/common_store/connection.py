"""Connections to a common store, in bounded time, and what its server answers told as our own errors."""

import os
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from wirespeed import __version__
from wirespeed.errors import InputError, StorageError, UsageError, harmless
from wirespeed.node.redact import redact_value
from wirespeed.runs.unsent import checked_address, label

if TYPE_CHECKING:
    from sqlalchemy import Connection

CONNECT_S = 3
"""For the server to answer; libpq takes 2 at least."""
STATEMENT_S = 60
"""For one statement, which the server ends then."""
SILENT_S = 30
"""After so long without a sign of life from the other machine the connection is given up, and where the
server should have ended a statement so long ago."""


@contextmanager
def connected(url: str, *, statement_s: float = STATEMENT_S) -> Iterator["Connection"]:
    """A connection, closed at the end; what is not committed by then is undone.

    StorageError where the server cannot be reached or refuses, UsageError for an address that is none
    or where the libraries are missing.
    """
    checked_address(url)
    with told(url):
        from sqlalchemy import create_engine, event, pool

        engine = create_engine(
            "postgresql+psycopg://",
            creator=partial(_open, url, statement_s),
            poolclass=pool.NullPool,
        )
        limit = f"SET LOCAL statement_timeout = {int(statement_s * 1000)}"
        event.listen(engine, "begin", lambda begun: begun.exec_driver_sql(limit))
        with engine.connect() as connection:
            yield connection


def _open(url: str, statement_s: float) -> Any:
    import psycopg

    class Bounded(psycopg.Connection[Any]):
        """A server's process that stands still acknowledges what it gets, and ends no statement."""

        def wait(self, *words: Any, **named: Any) -> Any:
            bound = threading.Timer(statement_s + SILENT_S, _hang_up, [self])
            bound.daemon = True
            bound.start()
            try:
                return super().wait(*words, **named)
            finally:
                bound.cancel()

    # Where a pool such as pgbouncer stands between, nothing outlives a transaction: neither prepared
    # statements nor settings.
    return Bounded.connect(
        url,
        connect_timeout=CONNECT_S,
        keepalives_idle=SILENT_S,
        keepalives_interval=SILENT_S // 3,
        keepalives_count=3,
        tcp_user_timeout=SILENT_S * 1000,
        fallback_application_name=f"wirespeed {__version__}",
        prepare_threshold=None,
    )


def _hang_up(connection: Any) -> None:
    """Who waits for an answer sees the end of the connection."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def libraries() -> None:
    """UsageError where they are missing; before a module is imported that needs them."""
    try:
        import psycopg  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"a common store needs a library that is not here: {error.name or error}",
            expected="SQLAlchemy and psycopg",
            next="pip install 'wirespeed[store]'",
        ) from error


@contextmanager
def told(url: str) -> Iterator[None]:
    """What SQLAlchemy, the driver and the server raise within, as errors of ours."""
    from psycopg import Error
    from sqlalchemy.exc import DataError, SQLAlchemyError

    try:
        yield
    except (DataError, UnicodeError) as error:
        raise InputError(f"the store does not take it: {_said(error)}") from error
    except (Error, SQLAlchemyError) as error:
        raise _refused(url, error) from error


_KINDS = {
    "28P01": "password",
    "28000": "password",
    "3D000": "database",
    "42P01": "empty",
    "3F000": "empty",
    "42501": "rights",
    "25006": "rights",
}
"""What the server means, by its SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html"""
_CONNECTING = {"password": "password", "does not exist": "database"}
_WAY_ON = {
    "password": (
        "the right password, in ~/.pgpass (mode 0600) or in PGPASSWORD",
        "psql URL",
    ),
    "database": ("a database and a role that are there", "psql -l, or ask whoever looks after it"),
    "empty": (
        "a store that was set up, by the role that shall own it",
        "wirespeed runs send --set-up --store URL",
    ),
    "rights": (
        "a role that may do this: reading needs SELECT, sending also INSERT, UPDATE and DELETE",
        "the GRANTs of docs/common-store.md",
    ),
    "": ("a PostgreSQL server that answers", "pg_isready -d URL"),
}


def _refused(url: str, error: Exception) -> StorageError:
    said = _said(error)
    kind = _KINDS.get(getattr(getattr(error, "orig", error), "sqlstate", None) or "", "")
    if not kind:  # while connecting there is no SQLSTATE to be had
        kind = next((one for word, one in _CONNECTING.items() if word in said), "")
    expected, way_on = _WAY_ON[kind]
    way_on = way_on.replace("URL", shlex.quote(url))
    return StorageError(f"the store {label(url)}: {said}", expected=expected, next=way_on)


def _said(error: Exception) -> str:
    words = " ".join(str(getattr(error, "orig", None) or error).split())
    return harmless(redact_value(words))[:300]
