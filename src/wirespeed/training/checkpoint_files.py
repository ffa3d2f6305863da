"""One rank's checkpoint files: written so that a reader finds a whole one, or knows that it is not.

    DIR/step-120/rank-0.pt     the state
    DIR/step-120/rank-0.json   the marker: whose it is, its size and checksum; written last

Both are written under another name, synchronised to the disk, and renamed in one step. What has no
marker was never completed.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT = "wirespeed.checkpoint/1"
_STEP = re.compile(r"step-(\d{1,15})")


class Refused(Exception):
    """This checkpoint cannot be used; the text names it and says why."""


class CheckpointFiles:
    """The checkpoints of one rank in one folder."""

    def __init__(self, folder: Path, rank: int, about: Mapping[str, Any], job: str = "") -> None:
        """about: what a checkpoint must have been made with to be gone on with; plain JSON."""
        self.job = job
        """Whose they are, with whatever went on from them: only these are removed or written over."""
        self._folder = folder
        self._rank = rank
        self._about = dict(about)

    def write(self, step: int, data: bytes) -> None:
        """Durably; OSError leaves nothing half done, and older checkpoints as they are."""
        place = self._place(step)
        if self._is_strangers(step):
            raise FileExistsError(errno.EEXIST, f"{place.name} is a checkpoint of another job")
        marker = {
            "format": FORMAT,
            "step": step,
            "rank": self._rank,
            "job": self.job,
            "about": self._about,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        try:
            place.mkdir(parents=True, exist_ok=True)
            # The marker of an older attempt must not vouch for what is written now.
            self._marker(step).unlink(missing_ok=True)
            _write_whole(self._data(step), data)
            _write_whole(self._marker(step), json.dumps(marker).encode())
            _sync(place)
            _sync(self._folder)
        except OSError:
            self.remove(step)
            raise

    def steps(self) -> list[int]:
        """Of all checkpoints there, ascending; whole or not, ours or not."""
        try:
            names = [entry.name for entry in self._folder.iterdir()]
        except OSError:
            return []
        return sorted(int(found[1]) for name in names if (found := _STEP.fullmatch(name)))

    def read(self, step: int) -> bytes:
        """The state of that step; Refused where it is torn, or of another job."""
        name = f"{self._place(step).name}/{self._data(step).name}"
        marker = self._read_marker(step, name)
        about = marker.get("about")
        if not isinstance(about, dict) or about != self._about or marker.get("step") != step:
            raise Refused(f"{name} is of another job: {_differs(about, self._about)}")
        try:
            data = self._data(step).read_bytes()
        except OSError as error:
            raise Refused(f"{name} cannot be read: {error.strerror}") from error
        if len(data) != marker.get("bytes"):
            raise Refused(f"{name} is torn: {len(data)} of {marker.get('bytes')} bytes are there")
        if hashlib.sha256(data).hexdigest() != marker.get("sha256"):
            raise Refused(f"{name} is damaged: its bytes are not those that were written")
        return data

    def job_of(self, step: int) -> str:
        """Of the job that wrote it, if training can go on from what that made; else ""."""
        marker = self._own_marker(step)
        return str(marker.get("job") or "") if marker else ""

    def keep(self, steps: Collection[int]) -> None:
        """Remove this job's other checkpoints; what is not ours stays."""
        for step in self.steps():
            if step not in steps and self._is_ours(step):
                self.remove(step)

    def remove(self, step: int) -> None:
        """The marker first, so that nobody takes what is half removed; another job's stays."""
        if self._is_strangers(step):
            return
        with suppress(OSError):
            for path in (self._marker(step), self._data(step)):
                path.unlink(missing_ok=True)
                _temporary(path).unlink(missing_ok=True)
            self._place(step).rmdir()

    def _is_ours(self, step: int) -> bool:
        """One that names no job was written by an older version."""
        marker = self._own_marker(step)
        return marker is not None and marker.get("job", self.job) == self.job

    def _own_marker(self, step: int) -> dict[str, Any] | None:
        """None where training cannot go on from what that step holds."""
        with suppress(Refused):
            marker = self._read_marker(step, "")
            return marker if marker.get("about") == self._about else None
        return None

    def _is_strangers(self, step: int) -> bool:
        """One without a whole marker is nobody's."""
        try:
            json.loads(self._marker(step).read_bytes())
        except (OSError, ValueError):
            return False
        return not self._is_ours(step)

    def _read_marker(self, step: int, name: str) -> dict[str, Any]:
        try:
            marker = json.loads(self._marker(step).read_bytes())
        except FileNotFoundError as error:
            raise Refused(f"{name} was never completed: it has no marker") from error
        except (OSError, ValueError) as error:
            raise Refused(f"{name} has a marker that cannot be read: {error}") from error
        if not isinstance(marker, dict) or marker.get("format") != FORMAT:
            raise Refused(f"{name} is no checkpoint of this version ({FORMAT})")
        return marker

    def _place(self, step: int) -> Path:
        return self._folder / f"step-{step}"

    def _data(self, step: int) -> Path:
        return self._place(step) / f"rank-{self._rank}.pt"

    def _marker(self, step: int) -> Path:
        return self._place(step) / f"rank-{self._rank}.json"


def _differs(theirs: Any, ours: Mapping[str, Any]) -> str:
    """The first thing that is not as it is here."""
    if not isinstance(theirs, dict):
        return "it does not say of which"
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            return f"{name} {theirs.get(name)!r}, here {ours.get(name)!r}"
    return "the step of its marker is not that of its folder"


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _write_whole(path: Path, data: bytes) -> None:
    """Under another name, to the disk, then in place in one step."""
    temporary = _temporary(path)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _sync(folder: Path) -> None:
    """Make a rename itself durable; a file system that refuses this needs none."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
