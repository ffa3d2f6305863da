"""The stored runs: find one, read it, list them, remove one."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.errors import InputError, StorageError, UsageError, WirespeedError
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.node.reading import opened, read_whole
from wirespeed.runs import jsontext
from wirespeed.runs.folder import FOLDER_NAME, LARGEST, RunFolder, runs_home
from wirespeed.runs.jsontext import damage

_LIST = "wirespeed runs list"
_STAMP_LENGTH = len("20261103-101112")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `runs list`."""

    id: str
    path: str
    command: str = ""
    started: str = ""
    """ISO 8601 in UTC."""
    seconds: float = 0.0
    verdict: str = "UNKNOWN"
    exit_code: int = 3
    world_size: int = 0
    nodes: int = 0
    backend: str = ""
    measurements: int = 0
    finished: bool = True
    damaged: str = ""
    """Why it cannot be read; empty for a good run."""


def find(reference: str) -> Path:
    """The run folder (or run.json) that `reference` names.

    A full id, a prefix of one id, a folder's name, `last`, or the path of a run folder or of a
    run's JSON. UsageError when no run or several match.
    """
    folders = _folders()
    if reference == "last":
        if not folders:
            raise UsageError(f"no runs in {runs_home()}", next="wirespeed check")
        newest = max(path.name[:_STAMP_LENGTH] for path in folders)
        return max((path for path in folders if path.name.startswith(newest)), key=_start)
    exact = [path for path in folders if reference in (path.name, _id(path))]
    if len(exact) == 1:
        return exact[0]
    if "/" not in reference and (found := _by_prefix(reference, folders)):
        return found
    try:
        return _existing(Path(reference).expanduser())
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"no run {reference[:80]!r}: {error}", next=_LIST) from error


def load(path: Path) -> Run:
    """The run in a folder or in a JSON file that `-o json` wrote.

    A folder whose run.json is cut or only the header is rebuilt from its records, with a finding
    RUN-001. InputError for anything else than a run.
    """
    with damage(str(path)):
        return _load(path)


def _load(path: Path) -> Run:
    folder = path if path.is_dir() else path.parent
    document = path / "run.json" if path.is_dir() else path
    try:
        with damage(str(document)):
            run = _read(document)
    except InputError as error:
        if document.name != "run.json" or not (folder / "records.jsonl").is_file():
            raise
        return _rebuilt(folder, None, error.saw)
    return _rebuilt(folder, run, "run.json holds only the header") if run.unfinished else run


def _rebuilt(folder: Path, header: Run | None, why: str) -> Run:
    from wirespeed.runs.recovery import rebuild  # most runs are whole

    return rebuild(folder, header, why)


def list_runs() -> list[RunSummary]:
    """Every run folder, oldest first; one that cannot be read is listed as damaged."""
    found = [_summary(path) for path in _folders()]
    return sorted(found, key=lambda one: (Path(one.path).name[:_STAMP_LENGTH], one.started))


def remove(reference: str) -> Path:
    """Delete one run folder and return its path; nothing but a run folder is ever deleted."""
    path = find(reference)
    runs = runs_home().resolve()
    inside = path.parent.resolve() == runs and path.name == path.resolve().name
    if not inside or path.is_symlink() or FOLDER_NAME.fullmatch(path.name) is None:
        raise UsageError(
            f"{path} is not a run folder in {runs}, so it is left alone",
            expected="the id of a stored run",
            next=_LIST,
        )
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return path


def save(run: Run) -> Path:
    """Store a run that is already whole, such as an import; its folder. `started` becomes now."""
    folder = RunFolder.create(run.command, run.config, run_id=run.id)
    data = to_json(run)
    for name in ("world", "choices", "versions", "environment"):
        folder.append(name, data[name])
    for kind in ("measurement", "verification", "finding"):
        for one in data[f"{kind}s"]:
            folder.append(kind, one)
    folder.finish(replace(run, started=folder.started))
    return folder.path


def _folders() -> list[Path]:
    runs = runs_home()
    try:
        found = sorted(runs.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read {runs}: {error.strerror or error}") from error
    return [path for path in found if FOLDER_NAME.fullmatch(path.name) and path.is_dir()]


def _id(folder: Path) -> str:
    return folder.name.rpartition("-")[2]


def _start(folder: Path) -> tuple[str, str]:
    """Sorts by start: the name tells the second, the document within it the millisecond."""
    try:
        started = _read(folder / "run.json").started
    except InputError:
        started = ""
    return folder.name[:_STAMP_LENGTH], started


def _by_prefix(reference: str, folders: list[Path]) -> Path | None:
    matching = [p for p in folders if _id(p).startswith(reference) or p.name.startswith(reference)]
    if not reference or len(matching) > 1:
        raise UsageError(
            f"{reference!r} matches {len(matching)} runs: {', '.join(map(_id, matching[:5]))}",
            expected="enough of an id to match one run",
            next=_LIST,
        )
    return matching[0] if matching else None


def _existing(path: Path) -> Path:
    held = (path / "run.json", path / "records.jsonl")
    if path.is_dir() and not any(part.is_file() for part in held):
        raise UsageError(
            f"{path} is a folder without run.json", expected="a run folder", next=_LIST
        )
    if not path.exists():
        raise UsageError(
            f"no run {str(path)!r} in {runs_home()}, nor a file of that name",
            expected="an id, the start of one, `last`, or the path of a run folder or run.json",
            next=_LIST,
        )
    return path


def _read(path: Path) -> Run:
    """The run in a JSON file; InputError when it is none."""
    try:
        text = read_whole(path, LARGEST, links=path.name != "run.json").decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text", expected="a run as JSON") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return validated(Run, jsontext.parse(text, source=str(path)), source=str(path))


def _summary(path: Path) -> RunSummary:
    try:
        run = load(path)
    except InputError as error:
        return RunSummary(id=_id(path), path=str(path), finished=False, damaged=error.saw)
    return RunSummary(
        id=_id(path),
        path=str(path),
        command=run.command,
        started=run.started,
        seconds=run.seconds,
        verdict=run.verdict,
        exit_code=run.exit_code,
        world_size=run.world.size,
        nodes=run.world.node_count,
        backend=run.world.backend,
        measurements=len(run.measurements),
        finished=not any(finding.id == "RUN-001" for finding in run.findings),
    )


# Earlier runs, newest first, for comparison: in bounded time, and without a word about damage.

MOST_RUNS = 100
MOST_SECONDS = 3.0
_HEAD_BYTES = 400
_READY = b'"verdict": "READY"'
"""As `RunFolder.finish` writes it, near the beginning."""


def past_runs(*, most: int = MOST_RUNS, seconds: float = MOST_SECONDS) -> Iterator[Run]:
    """READY runs that have ended, newest first, until there are `most` or the time is gone."""
    end = time.monotonic() + seconds
    given = 0
    for path in _newest_first():
        if given >= most or time.monotonic() > end:
            return
        if not _is_ready(path):
            continue
        try:
            run = load(path)
        except WirespeedError:
            continue  # a damaged run says nothing; `runs list` tells of it
        if run.verdict == "READY":  # one that was rebuilt from its records is not
            given += 1
            yield run


def _newest_first() -> list[Path]:
    try:
        found = [path for path in runs_home().iterdir() if FOLDER_NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, reverse=True)


def _is_ready(path: Path) -> bool:
    """A glance, so that the many others need not be parsed."""
    try:
        with opened(path / "run.json", links=False) as handle:
            return _READY in os.read(handle, _HEAD_BYTES)
    except OSError:
        return False
