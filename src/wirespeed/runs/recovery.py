"""A run rebuilt from its records, when it never wrote its end or lost it."""

from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.bench_records import Replay, Shape
from wirespeed.model.codec import from_json, validated
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate
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
from wirespeed.model.storage_records import Storage
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.model.watch_records import Watched
from wirespeed.node.reading import read_whole
from wirespeed.runs import jsontext
from wirespeed.runs.findings import make_finding
from wirespeed.runs.jsontext import damage
from wirespeed.runs.place import FOLDER_NAME, LARGEST

# A soak put together from its records, in bounded memory: as they come, or read again later.

MOST_WINDOWS = 240
"""With more, each is put together with the next."""
MOST_EVENTS = 200
"""Of each kind: the first half stays, and of the rest the newest."""
SOAK_KINDS: dict[str, Any] = {
    "soak_window": SoakWindow,
    "soak_stall": SoakStall,
    "soak_wrong": SoakWrong,
    "soak_incident": Incident,
}
"""Kinds of records that a tally takes, with what they hold."""

_EVENTS = {"soak_stall": "stalls", "soak_wrong": "wrong", "soak_incident": "incidents"}
"""Where a soak keeps the records of a kind."""


class SoakTally:
    """Takes records that know when they were; gives the whole at any time."""

    def __init__(self, start: Soak) -> None:
        self._known_s = start.elapsed_s
        self._soak = start

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """One record of those kinds; others are passed over."""
        if kind == "soak_window":
            self._take_window(from_json(SoakWindow, data))
        elif kind in _EVENTS:
            self._take_event(_EVENTS[kind], from_json(SOAK_KINDS[kind], data))

    def take_again(self, kind: str, data: Mapping[str, Any]) -> None:
        """As `take`, of a record that the start may hold already."""
        end = float(data["since_s"]) + (float(data["seconds"]) if kind == "soak_window" else 0.0)
        if end > self._known_s or kind == "soak_incident":
            self.take(kind, data)

    def _take_window(self, window: SoakWindow) -> None:
        soak = self._soak
        windows = (*soak.windows, window)
        self._put(
            window.since_s + window.seconds,
            window.world,
            calls=soak.calls + window.calls,
            checked_bytes=soak.checked_bytes + window.checked_bytes,
            wrong_calls=soak.wrong_calls + window.wrong,
            stall_calls=soak.stall_calls + window.stalls,
            windows=_halved(windows) if len(windows) > MOST_WINDOWS else windows,
        )

    def _take_event(self, name: str, one: Any) -> None:
        """What is known better later, as what an incident cost, takes the place of the earlier."""
        events, uncounted = list(getattr(self._soak, name)), dict(self._soak.uncounted)
        known = [_same(one) for one in events] if name == "incidents" else []
        if name == "incidents" and _same(one) in known:
            events[known.index(_same(one))] = one
        else:
            events.append(one)
        if len(events) > MOST_EVENTS:
            del events[MOST_EVENTS // 2]
            uncounted[name] = uncounted.get(name, 0) + 1
        self._put(one.since_s, one.world, uncounted=uncounted, **{name: tuple(events)})

    def _put(self, since_s: float, world: int, **changes: Any) -> None:
        elapsed_s, worlds = max(self._soak.elapsed_s, since_s), max(self._soak.worlds, world)
        self._soak = replace(self._soak, elapsed_s=elapsed_s, worlds=worlds, **changes)

    @property
    def incidents(self) -> int:
        return len(self._soak.incidents) + self._soak.uncounted.get("incidents", 0)

    def soak(self) -> Soak:
        in_order = sorted(self._soak.incidents, key=lambda one: one.since_s)
        return replace(self._soak, incidents=tuple(in_order))


def _same(one: Incident) -> tuple[object, ...]:
    return one.id, one.since_s, one.subject


def _halved(windows: Sequence[SoakWindow]) -> tuple[SoakWindow, ...]:
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
    return tuple(found)


def merged(first: SoakWindow, second: SoakWindow) -> SoakWindow:
    """Two windows, one after the other, as one."""
    cells = {(one.op, one.dtype, one.size_bytes): one for one in first.cells}
    for one in second.cells:
        key = one.op, one.dtype, one.size_bytes
        cells[key] = _both(cells[key], one) if key in cells else one
    total, seconds = max(1, first.calls + second.calls), first.seconds + second.seconds
    last = zip(first.last_share, second.last_share, strict=False)
    waited = zip(first.waited, second.waited, strict=False)
    return replace(
        second,
        since_s=first.since_s,
        seconds=seconds,
        calls=first.calls + second.calls,
        checked_bytes=first.checked_bytes + second.checked_bytes,
        wrong=first.wrong + second.wrong,
        stalls=first.stalls + second.stalls,
        stalled_s=first.stalled_s + second.stalled_s,
        cells=tuple(cells.values()),
        last_share=tuple((a * first.calls + b * second.calls) / total for a, b in last),
        waited=tuple(
            (a * first.seconds + b * second.seconds) / max(seconds, 1e-9) for a, b in waited
        ),
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
    records, lost = read_records(folder / "records.jsonl")
    parts, damaged = _by_kind(records)
    last = {kind: values[-1] for kind, values in parts.items()}
    start = header or last.get("run") or _from_name(folder, bool(records), reason)
    pairs = tuple(chain.from_iterable(parts["pairs"]))
    training = {one.key: one for one in parts["training"]}
    recovered = (
        len(parts["measurement"])
        + len(pairs)
        + len(training)
        + ("goodput" in last)
        + ("watched" in last)
        + len(parts["compute_rate"])
    )
    return replace(
        start,
        unfinished=False,
        verdict="UNKNOWN",
        exit_code=3,
        seconds=max([start.seconds, *(record.at for record in records)]),
        world=last.get("world", start.world),
        versions=dict(ChainMap(*reversed(parts["versions"]))) or start.versions,
        environment=dict(ChainMap(*reversed(parts["environment"]))) or start.environment,
        choices=(*start.choices, *chain.from_iterable(parts["choices"])),
        findings=(_note(recovered, damaged + lost, reason), *start.findings, *parts["finding"]),
        measurements=(*start.measurements, *parts["measurement"]),
        verifications=(*start.verifications, *parts["verification"]),
        located=replace(last["located"], pairs=pairs) if "located" in last else None,
        training=(*start.training, *training.values()),
        under_load=(*start.under_load, *parts["under_load"]),
        soak=_soak_of(start, parts["soak"]),
        goodput=last.get("goodput", start.goodput),
        replay=last.get("replay", start.replay),
        shape=last.get("shape", start.shape),
        compute=Compute(rates=tuple(parts["compute_rate"]), proofs=tuple(parts["compute_proof"]))
        if parts["compute_rate"] or parts["compute_proof"]
        else start.compute,
        storage=last.get("storage", start.storage),
        watched=last.get("watched", start.watched),
    )


def _soak_of(start: Run, records: Iterable[tuple[str, Mapping[str, Any]]]) -> Soak | None:
    """What run.json held last, and what the records tell beyond."""
    if start.soak is None:
        return None
    tally = SoakTally(start.soak)
    for kind, data in records:
        tally.take_again(kind, data)
    return tally.soak()


_KINDS: dict[str, Any] = SOAK_KINDS | {
    "run": Run,
    "world": World,
    "choices": tuple[Choice, ...],
    "versions": dict[str, str],
    "environment": dict[str, str],
    "measurement": Measurement,
    "verification": Verification,
    "finding": Finding,
    "located": Located,
    "pairs": tuple[PairFigures, ...],
    "training": Training,
    "under_load": LoadFigures,
    "goodput": Goodput,
    "replay": Replay,
    "shape": Shape,
    "compute_rate": ComputeRate,
    "compute_proof": ComputeProof,
    "storage": Storage,
    "watched": Watched,
}
"""What a record of that kind holds."""


def _by_kind(records: Iterable[Record]) -> tuple[dict[str, list[Any]], int]:
    """(what the records hold, how many are damaged); kinds of a later version are passed over.

    Those of a soak, as (kind, data), are `soak` together: they are taken in their order.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    damaged = 0
    for record in (one for one in records if one.kind in _KINDS):
        kind, data = record.kind, record.data
        try:
            with damage("record"):
                told = data.get("pairs") if kind == "pairs" and isinstance(data, dict) else data
                part = validated(_KINDS[kind], told, source="record")
        except InputError:
            damaged += 1
            continue
        if kind in SOAK_KINDS:
            found["soak"].append((kind, data))
        else:
            found[kind].append(part)
    return found, damaged


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
    return make_finding("unfinished", recovered=f"{recovered} {noun}", saw=reason + lost)
