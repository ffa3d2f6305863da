"""The session of a watched job: takes what its ranks tell, shows it live, and judges it at the end.

`JobWatch` is fed by the thread that supervises the job; a thread of its own looks once a second. What
goes wrong here is told and never ends the job.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.checks.registry import tell
from wirespeed.errors import harmless
from wirespeed.model.codec import to_json
from wirespeed.model.records import Finding
from wirespeed.model.watch_records import Watched
from wirespeed.process import returncode_text
from wirespeed.runs import jsontext
from wirespeed.runs.folder import PatientFolder
from wirespeed.runs.place import LIVE
from wirespeed.views.live import LiveJob
from wirespeed.watch.hang import STILL_S, Liveness
from wirespeed.watch.judge import Judged, judge
from wirespeed.watch.live import live_job
from wirespeed.watch.messages import MOST_BYTES, read_other
from wirespeed.watch.sampled import SampledSteps
from wirespeed.watch.stream import StepStore

LOOK_S = 1.0
_JUDGE_S = 5.0
_KEEP_S = 3.0
"""How old what `wirespeed serve` shows of the job may be."""
_STORE_S = 10.0
_MOST_PART = 1 << 17
_SHARE = 0.1
"""Of its time that the thread may use; on larger worlds it looks less often."""


@dataclass(slots=True)
class _Hung:
    """A hang that was told, and may be over."""

    findings: list[Finding]
    since: float
    lasted_s: float = 0.0


@dataclass(eq=False)
class JobWatch:
    """One job, from its first rank to its end."""

    size: int
    folder: PatientFolder
    show: Callable[[LiveJob], None]
    """Called once a second with what is known."""
    say: Callable[[str], None]
    """Called with a line that stays: something was found."""
    _store: StepStore = field(init=False)
    _live: Liveness = field(init=False, default_factory=Liveness)
    _sampled: SampledSteps = field(init=False, default_factory=SampledSteps)

    def __post_init__(self) -> None:
        self._store = StepStore(self.size)
        self._launches = 1
        self._parts: dict[int, str] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._judged: Judged | None = None
        self._judged_at = self._stored_at = self._kept_at = time.monotonic()
        self._told: dict[tuple[str, str], int] = {}
        self._hung: list[_Hung] = []
        self._broken = ""
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    # What the ranks tell, in the thread that supervises them.

    def take(self, rank: int, text: str, *, whole: bool) -> None:
        """A message of that rank's wrapper, or a part of one."""
        message = self._parts.pop(rank, "") + text
        if not whole:
            if len(message) <= _MOST_PART:
                self._parts[rank] = message
            return
        with self._lock:
            self._add(message)

    def _add(self, message: str) -> None:
        other = self._store.add(message) if len(message) <= MOST_BYTES else read_other(message)
        if self._store.launches != self._launches:
            self._launches, self._live = self._store.launches, Liveness()
        now = time.monotonic()
        self._live.take(message, now)
        if other is not None:
            self._sampled.take(other)

    def ended(self, rank: int, code: int) -> None:
        with self._lock:
            self._live.over(rank, returncode_text(code))

    def _some_ended(self) -> bool:
        """Then what moves is no step any more, but a job that comes to its end."""
        with self._lock:
            return any(one.ended for one in self._live.ranks.values())

    def all_ended(self, size: int) -> bool:
        """Whether so many ranks have said that they end."""
        with self._lock:
            ended = [one for one in self._live.ranks.values() if one.ended]
        return len(ended) >= size

    # What is made of it.

    def _look(self) -> None:
        wait_s = LOOK_S
        while not self._over.wait(wait_s):
            began = time.monotonic()
            try:
                self._once(began)
            except Exception as error:
                self._broken = f"{type(error).__name__}: {error}"[:200]
                self.say(f"the watch is broken, the job is not: {harmless(self._broken)}")
                return
            wait_s = max(LOOK_S, (time.monotonic() - began) / _SHARE)

    def _once(self, now: float) -> None:
        with self._lock:
            table, hosts = self._store.table(), self._hosts()
            still, working = self._live.still_s(now), self._live.working(now)
            found = self._live.hang(now, hosts)
            known = self._known()
        self._note_hang(found, still, now)
        if now - self._judged_at >= _JUDGE_S:
            self._judged_at = now
            self._judged = judge(table, **known)
            self._announce(self._judged.findings)
        findings = [one for hung in self._hung for one in hung.findings]
        findings += [one for one in self._judgements() if one.status in ("warn", "fail")]
        job = live_job(table, self._judged, findings)
        words = working
        if still >= STILL_S / 2:
            words = working or f"nothing has moved for {still:.0f} s"
        shown = replace(job, now=replace(job.now, words=words, alarm=bool(found)))
        self.show(shown)
        if now - self._kept_at >= _KEEP_S:
            self._kept_at = now
            self.folder.keep(LIVE, jsontext.dump(to_json(shown)))
        if now - self._stored_at >= _STORE_S and self._judged is not None:
            self._stored_at = now
            self.folder.append("watched", to_json(self._judged.watched))

    def _hosts(self) -> dict[int, str]:
        return {rank: hello.host for rank, hello in self._store.who.items()}

    def _known(self) -> dict[str, Any]:
        return {
            "world_size": self._store.world_size,
            "launches": self._store.launches,
            "traffic": self._sampled.traffic(),
            "unseen": (*self._store.unseen, *self._unseen()),
        }

    def _unseen(self) -> list[str]:
        hurt = [one for one in self._live.ranks.values() if one.hurt]
        told = [f"rank {one.rank} is no longer watched: {one.hurt}" for one in hurt[:4]]
        silent = self._store.world_size - len(self._store.who)
        if silent and self._store.who:
            told.append(f"{silent} of {self._store.world_size} ranks told nothing")
        if self._broken:
            told.append(f"the watch broke off: {self._broken}")
        return told

    def _judgements(self) -> Sequence[Finding]:
        return self._judged.findings if self._judged else ()

    def _announce(self, findings: Sequence[Finding]) -> None:
        """A failure that two judgements in a row have found is told once."""
        keys = {(one.id, one.subject.name): one for one in findings if one.status == "fail"}
        self._told = {key: self._told.get(key, 0) + 1 for key in keys} | {
            key: 9 for key, count in self._told.items() if count >= 2
        }
        for key, one in keys.items():
            if self._told[key] == 2:
                self.say(f"{one.title}  {one.id}")

    def _note_hang(self, found: list[Finding], still: float, now: float) -> None:
        going_on = self._hung[-1] if self._hung and not self._hung[-1].lasted_s else None
        if found and going_on is None:
            self._hung.append(_Hung(found, now - still))
            for one in found:
                lines = [f"{one.title}  {one.id}", one.saw, *one.evidence[:_SHOWN]]
                self.say("\n  ".join(lines))
        elif found and going_on is not None:
            going_on.findings = found
        elif going_on is not None and still < STILL_S and not self._some_ended():
            going_on.lasted_s = now - going_on.since
            self.say(f"the job goes on, after {going_on.lasted_s:.0f} s")

    def close(self) -> tuple[list[Finding], Watched | None]:
        """What it came to; nothing moves any more."""
        self._over.set()
        self._thread.join(timeout=30)
        with suppress(OSError):
            (self.folder.path / LIVE).unlink(missing_ok=True)
        with self._lock:
            if not self._store.who:
                return [tell("WATCH-014", "nobody told")], None
            table, known = self._store.table(), self._known()
            files = self._sampled.files(self._hosts())
        judged = judge(table, **known)
        for name, text in files.items():
            self.folder.keep(name, text)
        hangs = [one for hung in self._hung for one in _ended(hung)] or self._live.ended_apart()
        seen = replace(judged.watched, gradients=self._sampled.gradients)
        return [*hangs, *judged.findings], seen


_SHOWN = 14


def _ended(hung: _Hung) -> list[Finding]:
    """Of a hang that the job came out of, as warnings."""
    if not hung.lasted_s:
        return hung.findings
    costs = f"the job stood still for {hung.lasted_s:.0f} s, then it went on"
    return [replace(one, status="warn", costs=costs) for one in hung.findings]
