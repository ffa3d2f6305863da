"""A run rebuilt from its records, when it never wrote its end or lost it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from wirespeed.errors import InputError
from wirespeed.model.codec import from_json, validated
from wirespeed.model.lasting_records import (
    Goodput,
    Incident,
    Soak,
    SoakCell,
    SoakStall,
    SoakWindow,
    SoakWrong,
)
from wirespeed.model.records import (
    Choice,
    Finding,
    Located,
    Measurement,
    PairFigures,
    Run,
    Verification,
    World,
)
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.node.reading import read_whole
from wirespeed.runs import jsontext
from wirespeed.runs.folder import FOLDER_NAME, LARGEST
from wirespeed.runs.jsontext import damage

# A soak put together from its records, in bounded memory: as they come, or read again later.

MOST_WINDOWS = 240
"""With more, each is put together with the next."""
MOST_EVENTS = 200
"""Of each kind: the first half stays, and of the rest the newest."""
SOAK_KINDS = {
    "soak_window": SoakWindow,
    "soak_stall": SoakStall,
    "soak_wrong": SoakWrong,
    "soak_incident": Incident,
}
"""Kinds of records that a tally takes, with what they hold."""

_Event = TypeVar("_Event", Incident, SoakStall, SoakWrong)


class SoakTally:
    """Takes records that know when they were; gives the whole at any time."""

    def __init__(self, start: Soak) -> None:
        self._start = start
        self._known_s = start.elapsed_s
        self._windows = list(start.windows)
        self._incidents = list(start.incidents)
        self._stalls = list(start.stalls)
        self._wrong = list(start.wrong)
        self._more = dict(start.uncounted)
        self.calls = start.calls
        self.checked_bytes = start.checked_bytes
        self.wrong_calls = start.wrong_calls
        self.stall_calls = start.stall_calls
        self.elapsed_s = start.elapsed_s
        self.worlds = start.worlds

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """One record of those kinds; others are passed over."""
        match kind:
            case "soak_window":
                self._take_window(from_json(SoakWindow, data))
            case "soak_stall":
                self._event("stalls", self._stalls, from_json(SoakStall, data))
            case "soak_wrong":
                self._event("wrong", self._wrong, from_json(SoakWrong, data))
            case "soak_incident":
                self._take_incident(from_json(Incident, data))

    def take_again(self, kind: str, data: Mapping[str, Any]) -> None:
        """As `take`, of a record that the start may hold already."""
        end = float(data["since_s"]) + (float(data["seconds"]) if kind == "soak_window" else 0.0)
        if end > self._known_s or kind == "soak_incident":
            self.take(kind, data)

    def _take_window(self, window: SoakWindow) -> None:
        self.calls += window.calls
        self.checked_bytes += window.checked_bytes
        self.wrong_calls += window.wrong
        self.stall_calls += window.stalls
        self._reach(window.since_s + window.seconds, window.world)
        self._windows.append(window)
        if len(self._windows) > MOST_WINDOWS:
            self._windows = _halved(self._windows)

    def _take_incident(self, incident: Incident) -> None:
        """What is known better later (what it cost) takes the place of what was known at once."""
        for index, known in enumerate(self._incidents):
            if (known.id, known.since_s, known.subject) == (
                incident.id,
                incident.since_s,
                incident.subject,
            ):
                self._incidents[index] = incident
                return
        self._event("incidents", self._incidents, incident)

    def _event(self, name: str, events: list[_Event], one: _Event) -> None:
        self._reach(one.since_s, one.world)
        events.append(one)
        if len(events) > MOST_EVENTS:
            del events[MOST_EVENTS // 2]
            self._more[name] = self._more.get(name, 0) + 1

    def _reach(self, since_s: float, world: int) -> None:
        self.elapsed_s = max(self.elapsed_s, since_s)
        self.worlds = max(self.worlds, world)

    @property
    def incidents(self) -> int:
        return len(self._incidents) + self._more.get("incidents", 0)

    def soak(self) -> Soak:
        return replace(
            self._start,
            elapsed_s=self.elapsed_s,
            worlds=self.worlds,
            calls=self.calls,
            checked_bytes=self.checked_bytes,
            wrong_calls=self.wrong_calls,
            stall_calls=self.stall_calls,
            windows=tuple(self._windows),
            incidents=tuple(sorted(self._incidents, key=lambda one: one.since_s)),
            stalls=tuple(self._stalls),
            wrong=tuple(self._wrong),
            uncounted=dict(self._more),
        )


def _halved(windows: Sequence[SoakWindow]) -> list[SoakWindow]:
    """Neighbours put together, of one world where that does: a world's memory is its own."""
    for alike in (True, False):
        found: list[SoakWindow] = []
        joined = True  # the first has nobody to be put together with
        for one in windows:
            if not joined and (not alike or found[-1].world == one.world):
                found[-1], joined = merged(found[-1], one), True
            else:
                found.append(one)
                joined = False
        if len(found) < MOST_WINDOWS:
            break
    return found


def merged(first: SoakWindow, second: SoakWindow) -> SoakWindow:
    """Two windows, one after the other, as one."""
    cells = {(one.op, one.dtype, one.size_bytes): one for one in first.cells}
    for one in second.cells:
        key = one.op, one.dtype, one.size_bytes
        cells[key] = _both(cells[key], one) if key in cells else one
    last = zip(first.last_share, second.last_share, strict=False)
    total = max(1, first.calls + second.calls)
    seconds = first.seconds + second.seconds
    return SoakWindow(
        since_s=first.since_s,
        seconds=seconds,
        world=second.world,
        calls=first.calls + second.calls,
        checked_bytes=first.checked_bytes + second.checked_bytes,
        wrong=first.wrong + second.wrong,
        stalls=first.stalls + second.stalls,
        stalled_s=first.stalled_s + second.stalled_s,
        cells=tuple(cells.values()),
        last_share=tuple((a * first.calls + b * second.calls) / total for a, b in last),
        rss_bytes=second.rss_bytes,
        waited=tuple(
            (a * first.seconds + b * second.seconds) / max(seconds, 1e-9)
            for a, b in zip(first.waited, second.waited, strict=False)
        ),
        free_bytes=second.free_bytes,
    )


def _both(a: SoakCell, b: SoakCell) -> SoakCell:
    """Medians by their weight: what a list of all calls would give is not kept."""
    total = max(1, a.calls + b.calls)

    def mean(first: float, second: float) -> float:
        return (first * a.calls + second * b.calls) / total

    slower = a if a.max >= b.max else b
    return replace(
        slower,
        calls=a.calls + b.calls,
        wrong=a.wrong + b.wrong,
        low=mean(a.low, b.low),
        median=mean(a.median, b.median),
        p99=max(a.p99, b.p99),
    )


_FOREVER = 1e12
_NOWHERE = World(size=0, nodes=(), backend="", launcher="")


@dataclass(frozen=True, slots=True)
class Record:
    """One line of `records.jsonl`."""

    kind: str
    at: float
    """Seconds since the run's start."""
    data: Any


def read_records(path: Path) -> tuple[list[Record], int]:
    """The whole records in order, and how many lines could not be read.

    A last line without its end was being written when the run ended: it is left out, uncounted.
    """
    try:
        lines = read_whole(path, LARGEST, links=False).split(b"\n")
    except OSError:
        return [], 0
    whole = [line for line in lines[:-1] if line.strip()]
    records = [record for record in map(_record, whole) if record is not None]
    return records, len(whole) - len(records)


def _record(line: bytes) -> Record | None:
    try:
        data = jsontext.parse(line.decode(), source="record")
    except (UnicodeDecodeError, InputError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or "data" not in data:
        return None
    at = data.get("at")
    since = float(at) if isinstance(at, (int, float)) and 0 <= at < _FOREVER else 0.0
    return Record(data["kind"], since, data["data"])


def rebuild(folder: Path, header: Run | None, reason: str) -> Run:
    """The run as far as its records tell; verdict UNKNOWN, with a finding RUN-001.

    `reason` says why `run.json` was not enough. InputError where nothing is left at all.
    """
    records, damaged = read_records(folder / "records.jsonl")
    parts = _Parts(records)
    start = header or parts.header or _from_name(folder, bool(records), reason)
    recovered = len(parts.measurements) + len(parts.pairs) + len(parts.training)
    recovered += parts.goodput is not None
    note = _note(recovered, parts.damaged + damaged, reason)
    return replace(
        start,
        unfinished=False,
        verdict="UNKNOWN",
        exit_code=3,
        seconds=max([start.seconds, *(record.at for record in records)]),
        world=parts.world or start.world,
        versions=parts.versions or start.versions,
        environment=parts.environment or start.environment,
        choices=(*start.choices, *parts.choices),
        findings=(note, *start.findings, *parts.findings),
        measurements=(*start.measurements, *parts.measurements),
        verifications=(*start.verifications, *parts.verifications),
        located=parts.located and replace(parts.located, pairs=tuple(parts.pairs)),
        training=(*start.training, *parts.training.values()),
        under_load=(*start.under_load, *parts.load),
        soak=_soak_of(start, parts),
        goodput=parts.goodput or start.goodput,
    )


def _soak_of(start: Run, parts: "_Parts") -> Soak | None:
    """What run.json held last, and what the records tell beyond."""
    if start.soak is None:
        return None
    tally = SoakTally(start.soak)
    for kind, data in parts.soak:
        tally.take_again(kind, data)
    return tally.soak()


_KINDS = {
    "run": Run,
    "world": World,
    "choices": tuple[Choice, ...],
    "versions": dict[str, str],
    "environment": dict[str, str],
    "measurement": Measurement,
    "verification": Verification,
    "finding": Finding,
    "located": Located,
    "training": Training,
    "under_load": LoadFigures,
    "goodput": Goodput,
}
"""What a record of that kind holds."""


class _Parts:
    """The records sorted by kind; kinds of a later version are passed over."""

    def __init__(self, records: list[Record]) -> None:
        self.damaged = 0
        self.header: Run | None = None
        self.world: World | None = None
        self.versions: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.choices: list[Choice] = []
        self.findings: list[Finding] = []
        self.measurements: list[Measurement] = []
        self.verifications: list[Verification] = []
        self.located: Located | None = None
        self.pairs: list[PairFigures] = []
        self.training: dict[tuple[object, ...], Training] = {}
        self.load: list[LoadFigures] = []
        self.soak: list[tuple[str, Mapping[str, Any]]] = []
        self.goodput: Goodput | None = None
        for record in records:
            try:
                with damage("record"):
                    self._take(record.kind, record.data)
            except InputError:
                self.damaged += 1

    def _take(self, kind: str, data: Any) -> None:
        if kind == "pairs":
            told = data.get("pairs") if isinstance(data, dict) else None
            self.pairs += _valid(tuple[PairFigures, ...], told)
        elif kind in SOAK_KINDS:
            _valid(SOAK_KINDS[kind], data)
            self.soak.append((kind, data))
        elif kind in _KINDS:
            self._take_part(kind, _valid(_KINDS[kind], data))

    def _take_part(self, kind: str, part: Any) -> None:
        match kind:
            case "run":
                self.header = part
            case "world" | "located" | "goodput":
                setattr(self, kind, part)
            case "versions" | "environment":
                getattr(self, kind).update(part)
            case "choices":
                self.choices += part
            case "training":
                self.training[part.key] = part
            case "under_load":
                self.load.append(part)
            case _:
                getattr(self, f"{kind}s").append(part)


def _valid(kind: Any, data: Any) -> Any:
    return validated(kind, data, source="record")


def _from_name(folder: Path, has_records: bool, reason: str) -> Run:
    """A header from the folder's name, the last resort."""
    name = FOLDER_NAME.fullmatch(folder.name)
    if name is None or not has_records:
        raise InputError(
            f"{folder}: {reason}, and nothing could be recovered from records.jsonl",
            expected="a run folder that wirespeed wrote",
            next="wirespeed runs list",
        )
    stamp = name[1]
    day = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}"
    clock = f"{stamp[9:11]}:{stamp[11:13]}:{stamp[13:]}"
    return Run(
        id=name[2],
        command="unknown",
        verdict="UNKNOWN",
        exit_code=3,
        started=f"{day}T{clock}Z",
        seconds=0.0,
        world=_NOWHERE,
    )


def _note(recovered: int, damaged: int, reason: str) -> Finding:
    lost = f"; {damaged} damaged records were left out" if damaged else ""
    noun = "measurement was" if recovered == 1 else "measurements were"
    return Finding(
        id="RUN-001",
        status="warn",
        title=f"this run did not finish; {recovered} {noun} recovered",
        saw=reason + lost,
        expected="run.json with the whole run",
        because="it was killed, its disk was full, or it is still running",
    )
