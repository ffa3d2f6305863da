"""Earlier runs, newest first, for comparison: in bounded time, and without a word about damage."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from wirespeed.errors import WirespeedError
from wirespeed.records import Run
from wirespeed.runs.folder import FOLDER_NAME, runs_home
from wirespeed.runs.store import load
from wirespeed.world.reading import opened

__all__ = ["past_runs"]

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
