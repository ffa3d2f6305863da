"""`check -l soak`: worlds of ranks that call and check until the time is over, and the recorder of it.

The ledger takes what rank 0 tells, says when and in which world it was, keeps it in bounded memory
and in the run folder, and tells each incident at once. It serves a single world inside somebody else's
launcher as well as many worlds of our own.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.checks.soaking import soak_findings, stall_incident, wrong_incident
from wirespeed.compare.estimate import cuts
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.lasting_records import Incident, Soak, SoakStall, SoakWrong
from wirespeed.model.records import Finding
from wirespeed.model.units import format_duration
from wirespeed.plan import Plan
from wirespeed.runs.folder import PatientFolder, now_text
from wirespeed.runs.recovery import SoakTally
from wirespeed.session.backends import log_folder
from wirespeed.session.recording import Recorder, Session, TurnRecorder
from wirespeed.session.run_builder import ProgressView
from wirespeed.watchdog import Outcome

_CHECKPOINT_S = 30.0
"""So often run.json is written anew, at most; each record is in records.jsonl at once."""
_TELL_S, _TELL_LINES_S = 1.0, 15.0
_TURNS_A_WORLD = 1_000_000
"""A world's data are its own: its turns are numbered from here times its number."""
_KEPT_LOGS = 4
"""Folders of logs of the first worlds, and of the last ones; the others are removed."""
_ONCE = ("kill", "stop", "raise", "abort", "absent")
"""Injected faults that end a world: they strike in the first only."""


class SoakLedger:
    """The recorder of one soak. Rank 0's records come in the monitor's thread."""

    def __init__(
        self, plan: Plan, folder: PatientFolder, teller: ProgressView, start: Soak
    ) -> None:
        self._plan, self._folder, self._teller = plan, folder, teller
        self._tally = SoakTally(start)
        self._before_s = start.elapsed_s
        self._begin: float | None = None
        """When the first world soaked."""
        self._lock = threading.RLock()
        self._written = self._told_at = 0.0
        self._down: Incident | None = None
        self._full: Incident | None = None
        self._skipped: dict[str, str] = {}
        self._beat = (0, 0)
        self.world = max(1, start.worlds + 1)
        self.alive = False
        """Whether ranks of this world have soaked."""
        self.for_s = start.for_s
        folder.on_change = self._on_disk
        folder.checkpoint(start)

    def since_s(self) -> float:
        """Seconds of soak, without the time in which nobody soaked between a kill and --resume."""
        if self._begin is None:
            return self._before_s
        return self._before_s + time.monotonic() - self._begin

    @property
    def seconds_before(self) -> float:
        """Of the sessions before this one."""
        return self._before_s

    def begin_world(self, number: int) -> None:
        with self._lock:
            self.world, self.alive, self._beat = number, False, (0, 0)

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """What rank 0 tells."""
        with self._lock:
            match kind:
                case "soak_begin":
                    self._begin = self._begin or time.monotonic()
                case "soak_beat":
                    self._on_beat(data)
                case "soak_window":
                    self._on_window(data)
                case "soak_stall":
                    told = self._stamped(data)
                    self._store(kind, told)
                    incident = stall_incident(from_json(SoakStall, told))
                    if incident is not None:
                        self.incident(incident)
                case "soak_wrong":
                    told = self._stamped(data)
                    self._store(kind, told)
                    self.incident(wrong_incident(from_json(SoakWrong, told)))
                case "soak_skipped":
                    self._skipped[str(data["label"])] = str(data["reason"])

    def failed(self, outcome: Outcome) -> None:
        """A world of ranks ended before its time."""
        first = next(iter(outcome.findings), None)
        with self._lock:
            incident = Incident(
                at=now_text(),
                since_s=self.since_s(),
                id=first.id if first else "SOAK-004",
                title=first.title if first else f"the ranks ended: {outcome.kind}",
                subject_kind=first.subject.kind if first else "job",
                subject=first.subject.name if first else "job",
                saw=first.saw if first else "",
                because=first.because if first else "",
                world=self.world,
            )
            self._down = incident
            self.incident(incident)

    def incident(self, incident: Incident) -> None:
        """Keep it and tell it at once."""
        with self._lock:
            self._store_incident(incident)
            who = "" if incident.subject in (incident.title, "job") else f"{incident.subject}: "
            who = "" if incident.subject in incident.title else who
            at = format_elapsed(incident.since_s)
            self._teller.say(f"! {incident.at} (+{at}) {who}{incident.title}  {incident.id}")

    def soak(self) -> Soak:
        with self._lock:
            return self._tally.soak()

    def close(self) -> None:
        """What is open ends with the soak."""
        with self._lock:
            self._folder.retry()
            if self._full is not None:
                self._store_incident(
                    replace(self._full, lost_s=self.since_s() - self._full.since_s)
                )

    def findings(self) -> list[Finding]:
        """The judgement on all that came in."""
        return soak_findings(self.soak(), self._plan, skipped=self._skipped, change_points=_levels)

    def _on_beat(self, data: Mapping[str, Any]) -> None:
        self._beat = int(data["calls"]), int(data["checked_bytes"])
        self._woke()
        self._progress()
        self._folder.retry()

    def _woke(self) -> None:
        """The first sign of a world: what the one before cost is known now."""
        self.alive = True
        if self._down is not None:
            self._store_incident(replace(self._down, lost_s=self.since_s() - self._down.since_s))
            self._down = None

    def _on_window(self, data: Mapping[str, Any]) -> None:
        self._woke()
        seconds = float(data["seconds"])
        told = {k: v for k, v in data.items() if k != "turn"}
        told |= {"since_s": max(0.0, self.since_s() - seconds), "world": self.world}
        self._beat = 0, 0
        self._store("soak_window", told)
        if time.monotonic() - self._written > _CHECKPOINT_S:
            self._checkpoint()
        self._progress()

    def _checkpoint(self) -> None:
        self._written = time.monotonic()
        self._folder.checkpoint(self._tally.soak())

    def _progress(self) -> None:
        """At most a line in some seconds where each stays, as in a file of a whole night."""
        now = time.monotonic()
        if now < self._told_at + (_TELL_S if sys.stderr.isatty() else _TELL_LINES_S):
            return
        self._told_at = now
        soak, elapsed = self._tally.soak(), self.since_s()
        calls, checked = (
            soak.calls + self._beat[0],
            (soak.checked_bytes + self._beat[1]) / 1e9,
        )
        left = format_elapsed(max(0.0, self.for_s - elapsed))
        count = self._tally.incidents
        self._teller.phase(
            f"soaked {format_elapsed(elapsed)}, {left} left: {calls:,} calls, "
            f"{checked:,.1f} GB checked, {count} incident" + ("" if count == 1 else "s")
        )

    def _stamped(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {**data, "at": now_text(), "since_s": self.since_s(), "world": self.world}

    def _store_incident(self, incident: Incident) -> None:
        self._store("soak_incident", to_json(incident))

    def _store(self, kind: str, data: Mapping[str, Any]) -> None:
        self._tally.take(kind, data)
        self._folder.append(kind, data)

    def _on_disk(self, why: str) -> None:
        """The disk is full, or has room again: an incident with begin and end."""
        with self._lock:
            if why and self._full is None:
                self._full = Incident(
                    at=now_text(),
                    since_s=self.since_s(),
                    id="SOAK-006",
                    title="records cannot be written; they wait in memory",
                    saw=why,
                    world=self.world,
                )
                self.incident(self._full)
            elif not why and self._full is not None:
                lasted = self.since_s() - self._full.since_s
                self._store_incident(replace(self._full, lost_s=lasted))
                self._full = None
                self._teller.say(
                    f"  records are written again, after {format_duration(lasted)}; "
                    f"{self._folder.given_up} were given up"
                )
                self._checkpoint()


class SoakWork:
    """What the restart loop asks for: the next world's plan, its recorder, what its end means."""

    def __init__(self, session: Session, ledger: SoakLedger, plan: Plan) -> None:
        self._session, self._ledger, self._plan = session, ledger, plan
        self._first = ledger.world
        self._made: list[Path] = []
        self._logs = BoundedLogs(session.logs)
        self._logs.start()

    def plan(self, left_s: float) -> Plan | None:
        soak = self._plan.soak
        if soak is None:
            return None
        world = self._ledger.world if not self._made else self._ledger.world + 1
        again = world > 1
        kept = tuple(
            one for one in self._plan.faults if not again or one.partition(":")[0] not in _ONCE
        )
        turn = world * _TURNS_A_WORLD
        return replace(self._plan, soak=replace(soak, for_s=left_s, turn=turn), faults=kept)

    def recorder(self, number: int) -> Recorder:
        world = self._first + number - 1
        self._ledger.begin_world(world)
        kind = TurnRecorder if number == 1 else _LaterWorld
        return kind(self._session, self._folder_of(world))

    def ended(self, outcome: Outcome, seconds: float) -> bool:
        if outcome.kind in ("finished", "interrupted"):
            return True
        got_on = self._ledger.alive
        self._ledger.failed(outcome)
        return got_on

    def settle(self) -> None:
        self._logs.stop()
        self._ledger.close()

    def _folder_of(self, world: int) -> Path:
        folder = log_folder(self._session.logs, world)
        self._made.append(folder)
        if len(self._made) > 2 * _KEPT_LOGS:
            _remove_logs(self._made.pop(_KEPT_LOGS))
        return folder


def _levels(values: Sequence[float]) -> list[int]:
    """Where a series changes its level: the index of the first value of each new one."""
    return [cut.at for cut in cuts(values)]


def _remove_logs(folder: Path) -> None:
    with suppress(OSError):
        for file in folder.glob("*.log"):
            file.unlink()
        folder.rmdir()


class _LaterWorld(TurnRecorder):
    """The recorder of a later world: only what soaks, as the facts are known."""

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        if kind == "counters" or kind.startswith("soak"):
            super().on_record(rank, kind, data)


def format_elapsed(seconds: float) -> str:
    """`1:02:03`, below an hour `2:03`."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


BOUND_BYTES = 16 << 20
_HEAD, _TAIL = 1 << 20, 4 << 20
_EVERY_S = 2.0


class BoundedLogs(threading.Thread):
    """Looks at the logs under a folder all the time, and cuts the large ones where they lie."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="logs", daemon=True)
        self._folder = folder
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_EVERY_S):
            with suppress(OSError):
                for file in self._folder.rglob("*.log"):
                    cut(file)

    def stop(self) -> None:
        self._over.set()
        self.join(10.0)


def cut(file: Path, bound: int = BOUND_BYTES, head: int = _HEAD, tail: int = _TAIL) -> bool:
    """Cut a file larger than `bound` bytes; who writes appends, so it may go on meanwhile.

    A few lines that come in between the reading and the cut are lost with the middle.
    """
    with suppress(OSError):
        if file.is_symlink() or file.stat().st_size <= bound:
            return False
        with file.open("r+b") as log:
            first = log.read(head)
            size = log.seek(0, os.SEEK_END)
            log.seek(size - tail)
            last = log.read(tail)
            log.seek(0)
            # Never empty, so that the head is there whatever happens.
            log.truncate(len(first))
            log.seek(len(first))
            log.write(f"\n[wirespeed cut {size - head - tail} bytes here]\n".encode())
            log.write(last)
        return True
    return False
