"""Backend × workload: a backend starts worlds of ranks, a workload says what they are started for.

Backends are this machine (`local.py`) and an engine's nodes (`remote.py`); a world that somebody else
started is joined instead (`joined_world.py`). Workloads are one world (here), worlds until a time is
over (`RestartLoop`), worlds of several settings (`settings.py`) and of several sizes (`grids.py`).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import mkdtemp
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


# Work that outlives its ranks: one world of them after the other until the time is over. A world that
# fails is an incident, not the end: the next one goes on where it stopped. Only where world after world
# gets nowhere, the last one's failure is the run's.

FRUITLESS = 3
"""So many worlds that get nowhere, one after the other, end the work."""
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
"""Before the next world, after one that failed: doubled while they get nowhere."""
_POLL_S = 0.1
_LEAST_S = 1.0
"""A world for less is not worth its start."""


class Work(Protocol):
    """What is to be done, in as many worlds as it takes."""

    def plan(self, left_s: float) -> Plan | None:
        """For the next world, which has so long; None where all is done."""
        ...

    def recorder(self, number: int) -> Recorder:
        """Where that world is written down; from 1."""
        ...

    def ended(self, outcome: Outcome, seconds: float) -> bool:
        """Take in how the last world ended, after so long; whether it had got the work on."""
        ...

    def settle(self) -> None:
        """Hand the session what all of them came to."""
        ...


def log_folder(logs: Path, world: int) -> Path:
    """For the ranks' logs of that world, from 1; where there is no room, in the temporary folder.

    logs: the run's own folder for them.
    """
    folder = logs / f"world-{world}" if world > 1 else logs
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rank-0.log").touch()
    except OSError:
        return Path(mkdtemp(prefix="wirespeed-logs-"))
    return folder


class RestartLoop(ManyWorlds):
    """A `Workload`: worlds until `for_s` seconds are over. A signal ends it; what is known stays."""

    def __init__(self, work: Work, for_s: float) -> None:
        self._work = work
        self._deadline = time.monotonic() + for_s
        self._number = 0
        self._fruitless = 0

    def run(self, start: StartWorld) -> Outcome:
        while not self.word:
            left = self._deadline - time.monotonic()
            if left < _LEAST_S and self._number:
                break
            plan = self._work.plan(left)
            if plan is None:
                break
            outcome = self._world(start, plan)
            if outcome.kind == "interrupted" or self._fruitless >= FRUITLESS:
                return outcome
            if not outcome.ok:
                self._pause()
        return self._over()

    def settle(self, outcome: Outcome) -> None:
        self._work.settle()

    def _world(self, start: StartWorld, plan: Plan) -> Outcome:
        self._number += 1
        begin = time.monotonic()
        outcome = start(self._work.recorder(self._number), plan, {})
        got_on = self._work.ended(outcome, time.monotonic() - begin)
        self._fruitless = 0 if got_on else self._fruitless + 1
        return outcome

    def _pause(self) -> None:
        """Waits for what a failure leaves behind (ports, memory, a node that starts again)."""
        pause = min(_PAUSE_S * 2**self._fruitless, _LONGEST_PAUSE_S)
        end = min(time.monotonic() + pause, self._deadline)
        while not self.word and time.monotonic() < end:
            time.sleep(_POLL_S)

    def _over(self) -> Outcome:
        if not self.word:
            return Outcome(kind="finished")
        entry = "interrupted_between" if self._number else "interrupted_before"
        return interrupted(f"interrupted by {self.word}", entry)
