"""The stored runs: find one, read it, list them, remove one."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.errors import InputError, StorageError, UsageError, WirespeedError, refused_as
from wirespeed.model.codec import to_json
from wirespeed.model.records import Run
from wirespeed.model.verdicts import HISTORY
from wirespeed.runs import unsent
from wirespeed.runs.folder import RunFolder
from wirespeed.runs.folder_stamps import folder_names
from wirespeed.runs.index import Index, RunFilter
from wirespeed.runs.jsontext import damage
from wirespeed.runs.loading import load, read_document
from wirespeed.runs.named_files import list_baselines, load_baseline
from wirespeed.runs.place import FOLDER_NAME, runs_home
from wirespeed.runs.rows import STAMP_LENGTH, RunRow, id_in, order_of
from wirespeed.runs.source import RUNS_LIST, elsewhere, folder_of, named, opened, place

if TYPE_CHECKING:
    from wirespeed.compare.compare import Point
    from wirespeed.compare.figures import Facts

__all__ = [
    "find",
    "find_all",
    "list_runs",
    "load",
    "outdated",
    "past_runs",
    "remove",
    "remove_folder",
    "save",
    "stored_points",
    "stored_runs",
]

_DAY_S = 86_400.0


def find(reference: str) -> Path:
    """The run folder (or run.json) that `reference` names.

    A full id, a prefix of one id, a folder's name, `last`, `last~2`, or the path of a run folder or
    of a run's JSON. UsageError when no run or several match.
    """
    from wirespeed.runs.selection import find_selection, is_selection

    if is_selection(reference):
        found = find_selection(reference)
        if len(found) > 1:
            raise UsageError(f"{reference!r} names {len(found)} runs", expected="one run")
        return found[0]
    runs, source = runs_home(), elsewhere()
    if source is not None and "/" not in reference and (fetched := source.find(reference)):
        return fetched
    names = [] if source is not None else sorted(folder_names(runs))
    if reference == "last":
        if not names:
            raise UsageError(f"no runs in {runs}", next="wirespeed check")
        newest = names[-1][:STAMP_LENGTH]
        return max((runs / name for name in names if name.startswith(newest)), key=_start)
    if "/" not in reference and (folder := named(reference, names)):
        return runs / folder
    try:
        return _existing(Path(reference).expanduser())
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"no run {reference[:80]!r}: {error}", next=RUNS_LIST) from error


def find_all(reference: str) -> list[Path]:
    """Return the folders, oldest first, of the runs that `reference` names: one as of `find`, or
    several (`last:3`, `last~5..last~3`, `7f3c..91ae`)."""
    from wirespeed.runs.selection import find_selection, is_selection

    return find_selection(reference) if is_selection(reference) else [find(reference)]


def list_runs() -> list[RunRow]:
    """Every run folder, oldest first; one that cannot be read is listed as damaged."""
    with opened() as rows:
        return rows.runs()


def remove(reference: str) -> Path:
    """Delete one run folder and return its path; nothing but a run folder is ever deleted."""
    return remove_folder(find(reference))


def remove_folder(path: Path) -> Path:
    """The same of a path; UsageError for anything but a run folder."""
    runs = runs_home().resolve()
    inside = path.parent.resolve() == runs and path.name == path.resolve().name
    if not inside or path.is_symlink() or FOLDER_NAME.fullmatch(path.name) is None:
        raise UsageError(
            f"{path} is not a run folder in {runs}, so it is left alone",
            expected="the id of a stored run",
            next=RUNS_LIST,
        )
    with refused_as(StorageError, f"cannot remove {path}"):
        shutil.rmtree(path)
    return path


def outdated(until: str | None, keep_last: int) -> list[Path]:
    """Folders of runs that started before `until` (None: whenever) and are not the newest `keep_last`.

    Left out: runs of a baseline, those that wait for a common store, and those that have not ended and
    were written to within a day.
    """
    kept = {run.id for name in list_baselines() for run in load_baseline(name).runs}
    with Index.opened() as index:
        rows = index.runs(RunFilter())
    old = rows[: len(rows) - keep_last] if keep_last < len(rows) else []
    before = (until or "9").replace("-", "").replace("T", "-").replace(":", "")
    return [
        row.path
        for row in old
        if row.run < before
        and row.id not in kept
        and (row.finished or not _is_fresh(row.path))
        and not unsent.waits(row.path)
    ]


def _is_fresh(folder: Path) -> bool:
    """Whether it was written to within a day, or held: its lock is touched while its process lives."""
    try:
        last = max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return True
    return time.time() - last < _DAY_S


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


def _start(folder: Path) -> tuple[str, str]:
    """Sorts by start: the name tells the second, the document within it the millisecond."""
    try:
        started = read_document(folder / "run.json").started
    except InputError:
        started = ""
    return folder.name[:STAMP_LENGTH], started


def _existing(path: Path) -> Path:
    held = (path / "run.json", path / "records.jsonl")
    if path.is_dir() and not any(part.is_file() for part in held):
        raise UsageError(
            f"{path} is a folder without run.json", expected="a run folder", next=RUNS_LIST
        )
    if not path.exists():
        raise UsageError(
            f"no run {str(path)!r} in {place()}, nor a file of that name",
            expected="an id, the start of one, `last`, or the path of a run folder or run.json",
            next=RUNS_LIST,
        )
    return path


# Many runs at once, for comparison: without a word about damage, which `runs list` tells of.


def stored_points(last: int) -> "list[Point]":
    """Return all figures of the newest `last` runs that ended.

    InputError where a store holds what is no figure.
    """
    from wirespeed.compare.compare import Point  # who looks for earlier runs needs none of it

    with opened() as index:
        rows = index.figures(which=RunFilter(finished=True, last=last))
    with damage("a figure of a stored run"):
        return [
            Point(
                *(id_in(row.run), row.started, (row.backend, row.nodes), *row.told()),
                facts=partial(_facts, row.run),
            )
            for row in rows
        ]


def _facts(name: str) -> "Facts":
    from wirespeed.compare.figures import facts_of

    try:
        return facts_of([load(folder_of(name))])
    except InputError:
        return {}


def stored_runs(like: Sequence[Run], most: int) -> list[Run]:
    """The newest stored runs that ended, of the worlds of `like` and not these themselves."""
    own = {run.id for run in like}
    worlds = {(run.world.backend, run.world.size) for run in like}
    with opened() as index:
        found = [
            row
            for world in worlds
            for row in index.runs(RunFilter(finished=True, world=world, last=most + len(own)))
            if row.id not in own
        ]
    runs = []
    for row in sorted(found, key=order_of)[-most:]:
        with suppress(InputError):  # removed or damaged since it was listed
            runs.append(load(folder_of(row.run)))
    return runs


# Earlier runs, newest first, in bounded time.

MOST_RUNS = 100
MOST_SECONDS = 3.0
_HISTORY = RunFilter(words=(*HISTORY, "UNKNOWN"))


def past_runs(
    which: RunFilter = _HISTORY,
    *,
    most: int = MOST_RUNS,
    seconds: float = MOST_SECONDS,
) -> Iterator[Run]:
    """Such runs that have ended, newest first, until there are `most` or the time is gone."""
    end = time.monotonic() + seconds
    try:
        with Index.opened(seconds=seconds) as index:
            found = index.runs(replace(which, finished=True, last=most))
    except StorageError:
        return
    for one in reversed(found):
        if time.monotonic() > end:
            return
        with suppress(WirespeedError):  # removed or damaged since
            yield load(one.path)
