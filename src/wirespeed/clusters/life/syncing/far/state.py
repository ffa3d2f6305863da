"""What former calls brought to this target, kept in `.wirespeed-sync/state.json` there."""

from __future__ import annotations

import json
import os
from typing import Any

from wirespeed.clusters.life.syncing.far.places import safe

__all__ = ["State"]


class State:
    """By path [kind, hash or link's target, the one before, look, ours].

    `look` is the file's size, times and inode just after it was put in its place: as long as they are
    the same, its content is known without reading it. `ours`: a former call brought it; what was there
    with the same content already is only remembered.
    """

    def __init__(self, own: int | None) -> None:
        """own: our open folder; None where there is none yet."""
        self._own = own
        try:
            self.paths = self._load()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.paths = {}  # none, or damaged: nothing is known to be ours, all is read again

    def ours(self, path: str) -> list[Any] | None:
        known = self.paths.get(path)
        return known if known and known[4] else None

    def save(self) -> None:
        text = json.dumps({"version": 1, "paths": self.paths}).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open("state.new", flags, 0o644, dir_fd=self._own), "wb") as file:
            file.write(text)
        os.rename("state.new", "state.json", src_dir_fd=self._own, dst_dir_fd=self._own)

    def _load(self) -> dict[str, list[Any]]:
        if self._own is None:
            return {}
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open("state.json", flags, dir_fd=self._own), "rb") as file:
            told = json.load(file)
        paths: dict[str, list[Any]] = told["paths"] if told["version"] == 1 else {}
        good = all(safe(path) and len(known) == 5 for path, known in paths.items())
        return paths if good else {}
