"""The processes that live in a namespace: which they are, and how they are ended.

A namespace of a lab is the lab's own, so whatever lives in it belongs to it, also what was started
by a `run` that has crashed since. Each is ended through a pidfd, after one more look at where it
lives: a process id that was given to somebody else meanwhile is never touched.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from wirespeed.lab.layout import space_path

__all__ = ["end_all", "living_in", "with_mark"]

_LOOK_S = 0.02
Living = Callable[[int], bool]


def living_in(spaces: Iterable[str]) -> list[int]:
    """Process ids in these network namespaces; zombies do not count."""
    inside = _lives(spaces)
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return [pid for pid in pids if pid != os.getpid() and inside(pid)]


def with_mark(spaces: Iterable[str], mark: str) -> list[int]:
    """Of these, those with `mark` (NAME=value), if one is given, in their first environment."""
    return [pid for pid in living_in(spaces) if not mark or _carries(pid, mark)]


def end_all(
    spaces: Iterable[str], within_s: float, mark: str = "", groups: Collection[int] = ()
) -> list[int]:
    """Kill what lives there (with that mark, in those process groups, if given) until nothing does.

    The ids of those that were still there after `within_s` seconds.
    """
    spaces = list(spaces)
    inside = _lives(spaces)
    deadline = time.monotonic() + within_s
    while left := [pid for pid in with_mark(spaces, mark) if not groups or _group(pid) in groups]:
        if time.monotonic() > deadline:
            return left
        for pid in left:
            _kill(pid, inside)
        time.sleep(_LOOK_S)
    return []


def _lives(spaces: Iterable[str]) -> Living:
    homes = set()
    for space in spaces:
        with suppress(OSError):
            facts = space_path(space).stat()
            homes.add((facts.st_dev, facts.st_ino))

    def inside(pid: int) -> bool:
        with suppress(OSError):
            facts = os.stat(f"/proc/{pid}/ns/net")  # noqa: PTH116 - a thousand of them, often
            return (facts.st_dev, facts.st_ino) in homes
        return False

    return inside


def _carries(pid: int, mark: str) -> bool:
    with suppress(OSError):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _group(pid: int) -> int:
    with suppress(OSError):
        return os.getpgid(pid)
    return 0


def _kill(pid: int, inside: Living) -> None:
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if inside(pid):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
