"""Many worlds of ranks, one after the other, each with an environment of its own."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from wirespeed.console.book import Book
from wirespeed.console.holding import STOPPING, held
from wirespeed.console.local import ran_local
from wirespeed.console.remote import note_nodes, ordered, ran_remote
from wirespeed.console.session import Session
from wirespeed.launchers.base import Engine, Job
from wirespeed.plan import Plan
from wirespeed.world.watch import Outcome

__all__ = ["Place", "StartWorld", "Variables", "local_place", "remote_place"]

Variables = Mapping[str, str | None]
"""Variables to set, or (None) to leave unset; what wirespeed or an engine sets by itself stays."""
StartWorld = Callable[[Book, Plan, Variables], Outcome]
"""Starts one world of ranks and watches it to its end."""
Place = Callable[[Session], AbstractContextManager[StartWorld | None]]
"""Holds what the worlds run on; None: nothing can run there, and the session knows why."""


def local_place(ranks: int, backend: str) -> Place:
    """Processes of this machine."""

    def start(book: Book, plan: Plan, variables: Variables) -> Outcome:
        environ = {k: v for k, v in os.environ.items() if k not in variables}
        environ |= {k: v for k, v in variables.items() if v is not None}
        return ran_local(book, plan, ranks, backend, environ)

    @contextmanager
    def place(_: Session) -> Iterator[StartWorld]:
        yield start

    return place


def remote_place(engine: Engine, job: Job, plan: Plan, backend: str) -> Place:
    """Ranks that the engine starts, on nodes that are held until the last world has ended.

    job: prepared. The context raises Interrupted where a signal comes while nodes are brought up.
    """

    @contextmanager
    def place(session: Session) -> Iterator[StartWorld | None]:
        first = ordered(job, plan, backend, sys.executable)
        with held(engine, first, session.phase) as nodes:
            prepared = nodes.prepared
            note_nodes(session, prepared)

            def start(book: Book, plan: Plan, variables: Variables) -> Outcome:
                one = ordered(prepared.job, plan, backend, sys.executable, variables)
                return ran_remote(book, engine, nodes, one, plan)

            stopped = any(one.status in STOPPING for one in prepared.findings)
            yield None if stopped else start
        session.note(nodes.after)

    return place
