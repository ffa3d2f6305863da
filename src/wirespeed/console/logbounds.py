"""Logs that do not fill a disk: of one that grows for ever the head and the tail are kept."""

import os
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["BOUND_BYTES", "BoundedLogs", "cut"]

BOUND_BYTES = 16 << 20
_HEAD, _TAIL = 1 << 20, 4 << 20
_EVERY_S = 2.0


class BoundedLogs(threading.Thread):
    """Looks at the logs under a folder all the time, and cuts the large ones where they lie."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="logs", daemon=True)
        self._folder = folder
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_EVERY_S):
            with suppress(OSError):
                for file in self._folder.rglob("*.log"):
                    cut(file)

    def stop(self) -> None:
        self._over.set()
        self.join(10.0)


def cut(file: Path, bound: int = BOUND_BYTES, head: int = _HEAD, tail: int = _TAIL) -> bool:
    """Cut a file larger than `bound` bytes; who writes appends, so it may go on meanwhile.

    A few lines that come in between the reading and the cut are lost with the middle.
    """
    with suppress(OSError):
        if file.is_symlink() or file.stat().st_size <= bound:
            return False
        with file.open("r+b") as log:
            first = log.read(head)
            size = log.seek(0, os.SEEK_END)
            log.seek(size - tail)
            last = log.read(tail)
            log.seek(0)
            # Never empty, so that the head is there whatever happens.
            log.truncate(len(first))
            log.seek(len(first))
            log.write(f"\n[wirespeed cut {size - head - tail} bytes here]\n".encode())
            log.write(last)
        return True
    return False
