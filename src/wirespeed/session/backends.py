"""Backend × workload: a backend starts worlds of ranks, a workload says what they are started for.

Backends are this machine (`local.py`) and an engine's nodes (`remote.py`); a world that somebody else
started is joined instead (`joined_world.py`). Workloads are one world (here), worlds until a time is
over (`restart_loop.py`), worlds of several settings (`settings.py`) and of several sizes (`grids.py`).
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from wirespeed.errors import Interrupted
from wirespeed.model.records import Run
from wirespeed.plan import Plan
from wirespeed.session.findings import make_finding
from wirespeed.session.recording import Recorder, Session
from wirespeed.session.signals import interrupted_by_signals
from wirespeed.watchdog import Outcome

Variables = Mapping[str, str | None]
"""Variables to set, or (None) to leave unset; what wirespeed or an engine sets by itself stays."""
StartWorld = Callable[[Recorder, Plan, Variables], Outcome]
"""Starts one world of ranks and watches it to its end."""
Backend = Callable[[Session], AbstractContextManager[StartWorld | None]]
"""Holds what worlds run on; None: nothing can run there, and the session knows why.

The context raises Interrupted where a signal comes while nodes are brought up.
"""


class Workload(Protocol):
    """What worlds are started for."""

    def interrupt(self, word: str) -> None:
        """A signal came (`Ctrl-C`); within a world, the world itself takes it and tells."""
        ...

    def run(self, start: StartWorld) -> Outcome:
        """All its worlds; may raise Interrupted between two."""
        ...

    def settle(self, outcome: Outcome) -> None:
        """Hand the session what all of them came to; whatever happened."""
        ...


def run_workload(session: Session, backend: Backend, workload: Workload) -> Run:
    """The workload on the backend, and the verdict. A signal ends it; what was measured stays."""
    with interrupted_by_signals(workload.interrupt):
        try:
            with backend(session) as start:
                outcome = Outcome(kind="never_joined") if start is None else workload.run(start)
        except Interrupted as error:
            outcome = interrupted(error.saw)
        workload.settle(outcome)
        return session.close(outcome)


class OneWorld:
    """A plan, carried out once."""

    def __init__(self, session: Session, plan: Plan) -> None:
        self._session, self._plan = session, plan

    def interrupt(self, word: str) -> None:
        """What has been measured is written in any case."""

    def run(self, start: StartWorld) -> Outcome:
        return start(self._session, self._plan, {})

    def settle(self, outcome: Outcome) -> None:
        """The session has all of it."""


class ManyWorlds:
    """A workload of worlds one after the other: a signal between two of them ends it."""

    word = ""
    """The signal that came; within a world, the world itself takes it and tells."""

    def interrupt(self, word: str) -> None:
        self.word = self.word or word


def interrupted(saw: str, entry: str = "interrupted_before") -> Outcome:
    """Between two worlds; entry: the finding that tells it."""
    return Outcome(kind="interrupted", findings=(make_finding(entry, saw=saw),))
