"""A run rebuilt from its records, when it never wrote its end or lost it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wirespeed.errors import InputError
from wirespeed.records import (
    Choice,
    Finding,
    Located,
    Measurement,
    PairFigures,
    Run,
    Verification,
    World,
)
from wirespeed.records_json import (
    finding_from_json,
    located_from_json,
    measurement_from_json,
    pair_from_json,
    run_from_json,
    verification_from_json,
    world_from_json,
)
from wirespeed.records_lasting import Goodput, Soak
from wirespeed.records_lasting_json import goodput_from_json
from wirespeed.records_training import LoadFigures, Training
from wirespeed.records_training_json import load_from_json, training_from_json
from wirespeed.runs import jsontext
from wirespeed.runs.damage import damage
from wirespeed.runs.folder import FOLDER_NAME, LARGEST
from wirespeed.runs.schema import prune, validate
from wirespeed.runs.soaking import SOAK_KINDS, SoakTally
from wirespeed.world.reading import read_whole

__all__ = ["Record", "read_records", "rebuild"]

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
                    self._take(record)
            except InputError:
                self.damaged += 1

    def _take(self, record: Record) -> None:
        match record.kind:
            case "pairs":
                told = record.data.get("pairs") if isinstance(record.data, dict) else None
                self.pairs += [pair_from_json(_valid(item, "pair")) for item in _items(told)]
            case "measurement" | "verification" | "finding" | "world" | "located" | "training":
                self._take_part(record.kind, _valid(record.data, record.kind))
            case "under_load":
                self.load.append(load_from_json(_valid(record.data, "load")))
            case "goodput":
                self.goodput = goodput_from_json(_valid(record.data, "goodput"))
            case kind if kind in SOAK_KINDS:
                self.soak.append((kind, _valid(record.data, SOAK_KINDS[kind])))
            case "choices":
                self.choices += [Choice(**_valid(item, "choice")) for item in _items(record.data)]
            case "versions":
                self.versions |= _texts(record.data)
            case "environment":
                self.environment |= _texts(record.data)
            case "run":
                self.header = run_from_json(_valid(record.data, ""))

    def _take_part(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "measurement":
                self.measurements.append(measurement_from_json(data))
            case "verification":
                self.verifications.append(verification_from_json(data))
            case "finding":
                self.findings.append(finding_from_json(data))
            case "world":
                self.world = world_from_json(data)
            case "located":
                self.located = located_from_json(data)
            case "training":
                one = training_from_json(data)
                self.training[one.key] = one


def _valid(data: Any, part: str) -> Any:
    validate(data, part=part, source="record")
    return prune(data, part=part)


def _items(data: Any) -> Iterator[Any]:
    if not isinstance(data, list):
        raise InputError("record: not a list")
    return iter(data)


def _texts(data: Any) -> dict[str, str]:
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise InputError("record: not an object of texts")
    return data


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
