"""Sending runs to a common store: each once, however often it is tried, and nobody waits for it long."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from wirespeed.errors import InputError, StorageError, WirespeedError, harmless_lines
from wirespeed.fleet.common_store import outbox
from wirespeed.fleet.common_store.connection import connected, libraries, told
from wirespeed.fleet.common_store.outbox import SEND, Unsent
from wirespeed.model.units import counted
from wirespeed.node.identity import detect
from wirespeed.runs.unsent import label

if TYPE_CHECKING:
    from sqlalchemy import Connection

PATIENCE_S = 5.0
"""That a command takes longer at its end, at most, where a store does not answer."""


@dataclass(slots=True)
class Sent:
    """What came of it."""

    names: list[str] = field(default_factory=list)
    """Of run folders that the store has now."""
    known: int = 0
    """Runs that it had before, as they are."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Why not, by name: the run cannot be read, or holds what no table takes."""
    busy: list[str] = field(default_factory=list)
    """Runs that another sender is about to put there: they wait until it has."""
    refused: WirespeedError | None = None
    """By the store: the rest still waits."""


def send(waiting: Sequence[Unsent], sent: Sent, until: float = float("inf")) -> None:
    """Send them, each in a transaction of its own; told in `sent` as it goes.

    until: by the monotonic clock; what has not begun by then still waits.
    """
    from wirespeed.fleet.common_store.tables import refuse_other_version

    for url, runs in groupby(sorted(waiting, key=lambda one: one.store), lambda one: one.store):
        try:
            with connected(url) as connection:
                with connection.begin():
                    refuse_other_version(connection, url)
                outbox.reached()
                for one in runs:
                    if time.monotonic() > until:
                        return
                    _send(connection, one, sent)
        except WirespeedError as error:
            sent.refused = error


def _send(connection: "Connection", one: Unsent, sent: Sent) -> None:
    from wirespeed.fleet.common_store.tables import put_run

    if one.folder.is_dir():  # else it was removed: nobody wants it kept
        try:
            with told(one.store), connection.begin():
                new = put_run(connection, one.folder)
        except InputError as error:
            sent.unfit[one.name] = error.saw
            return
        if new is None:
            sent.busy.append(one.name)
            return
        sent.known += not new
        sent.names += [one.name] * new
    outbox.done(one)


def send_now(waiting: Sequence[Unsent]) -> Sent:
    """Send them, however long it takes."""
    sent = Sent()
    if waiting:
        libraries()
        send(waiting, sent)
    return sent


def send_at_end() -> None:
    """At the end of a command: what waits, for a few seconds, and a word on stderr where it stays."""
    with suppress(WirespeedError, KeyboardInterrupt, OSError, ValueError):  # stderr may be closed
        identity = detect(os.environ)
        if identity is not None and identity.rank != 0:
            return
        waiting = outbox.waiting()
        if waiting and (why := _sent_soon(waiting)):
            left = len(outbox.waiting())
            where = label(waiting[0].store)
            sys.stderr.write(
                f"wirespeed: warning: {counted(left, 'run')} not sent yet to {where}, and kept here: "
                f"{harmless_lines(why)}\n  next      {SEND}\n"
            )


def _sent_soon(waiting: Sequence[Unsent]) -> str:
    """Why some are left; nothing where all are sent."""
    if outbox.to_be_left_alone():
        return "it could not be had within the last minute, and is left alone meanwhile"
    sent = Sent()
    until = time.monotonic() + PATIENCE_S

    def work() -> None:
        try:
            libraries()
            send(waiting, sent, until)
        except WirespeedError as error:
            sent.refused = error
        except Exception as error:  # the run is stored here, and its verdict stands
            sent.refused = StorageError(f"{type(error).__name__}: {error}")

    # A server that is stopped acknowledges and never answers: only a thread can be left behind.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(PATIENCE_S)
    if sent.refused is None and worker.is_alive() and not (sent.names or sent.known):
        sent.refused = StorageError(f"no answer within {PATIENCE_S:g} s")
    if sent.refused is not None:
        outbox.unreachable()
        return sent.refused.saw
    return next(iter(sent.unfit.values()), "")
