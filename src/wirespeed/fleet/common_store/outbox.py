"""Runs that wait to be sent, as `runs/unsent.py` puts them: which, where to, and what is done with them.

One that was removed from its folder meanwhile is not sent. One whose process was killed is, as far as
it came, once nobody holds it any more.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.runs import jsontext
from wirespeed.runs.folder import write_whole
from wirespeed.runs.folder_stamps import is_held
from wirespeed.runs.named_files import NamedFiles
from wirespeed.runs.place import FOLDER_NAME, runs_home
from wirespeed.runs.unsent import OUTBOX, SUFFIX

SEND = "wirespeed runs send"
AGAIN_S = 60.0
"""After the store could not be reached nobody tries for so long, but who asks for it."""

_WAITING = NamedFiles(
    folder=OUTBOX,
    suffix=SUFFIX,
    what="a run that waits to be sent",
    missing=lambda name, others: UsageError(f"run {name[:80]!r} does not wait to be sent"),
    again=SEND,
    largest=1 << 16,
)


@dataclass(frozen=True, slots=True)
class Unsent:
    """A run that waits."""

    name: str
    """Of its folder."""
    store: str
    """Where it is to go."""
    written_ns: int = 0
    """When it was put here, and once more when the run has changed; 0: it does not wait."""

    @property
    def folder(self) -> Path:
        return runs_home() / self.name


def waiting() -> list[Unsent]:
    """Oldest first, without runs that go on; what nobody here can have written is left out."""
    found = (_read(name) for name in _WAITING.names() if FOLDER_NAME.fullmatch(name))
    return [one for one in found if one is not None and not is_held(one.folder)]


def done(run: Unsent) -> None:
    """The store has it; it stays where the run has been stored anew meanwhile."""
    with suppress(OSError):
        path = _WAITING.path(run.name)
        if path.stat().st_mtime_ns == run.written_ns:
            path.unlink()


def _read(name: str) -> Unsent | None:
    try:
        written = _WAITING.path(name).stat().st_mtime_ns
        told = jsontext.parse(_WAITING.read(name), source=name)
    except (OSError, WirespeedError):
        return None
    store = told.get("store") if isinstance(told, dict) else None
    return Unsent(name, store, written) if isinstance(store, str) else None


# A store that did not answer is left alone for a while, so that no command after command waits for it.


def _mark() -> Path:
    return _WAITING.home / "unreachable"


def unreachable() -> None:
    """Remember that it did not answer just now."""
    with suppress(OSError):
        write_whole(_mark(), b"")


def reached() -> None:
    """It answers again."""
    with suppress(OSError):
        _mark().unlink(missing_ok=True)


def to_be_left_alone() -> bool:
    """Whether it did not answer within the last minute."""
    try:
        return 0 <= time.time() - _mark().stat().st_mtime < AGAIN_S
    except OSError:
        return False
