"""Was it this process that stood still, and did it wait for a core? For calls that take too long."""

import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

__all__ = ["CoreWaits", "Standstill"]

_BEAT_S = 0.005
_GAP_S = 0.01
"""A beat that comes this much too late is kept."""
_KEPT = 256
_TASKS = Path("/proc/self/task")


class Standstill:
    """A thread that wakes up all the time; what it missed, the whole process missed.

    A call that waits in the library lets it run: only what stops the process (a signal, a hypervisor,
    a cgroup's limit, a core that somebody else has) stops it, too.
    """

    def __init__(self) -> None:
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._last = time.perf_counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> "Standstill":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(1.0)

    def missed(self, begin: float, end: float) -> float:
        """The longest stretch without a beat that began or ended within [begin, end], in seconds,
        as far as it lies within."""
        gaps = [*self._gaps, (self._last + _BEAT_S, end)]
        inside = [min(end, to) - max(begin, since) for since, to in gaps]
        return max(0.0, max(inside))

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S):
            now = time.perf_counter()
            if now - self._last > _BEAT_S + _GAP_S:
                self._gaps.append((self._last + _BEAT_S, now))
            self._last = now


class CoreWaits:
    """How long threads of this process were ready to run and had no core (Linux: schedstat)."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self.known = bool(_delays())
        self.since()

    def since(self) -> float:
        """Seconds since the last call that the thread waited which waited most; 0 if not known."""
        now = _delays()
        most = max((value - self._seen.get(task, 0) for task, value in now.items()), default=0)
        self._seen = now
        return most / 1e9


def _delays() -> dict[str, int]:
    """Nanoseconds on a run queue, by thread."""
    found = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, ValueError, IndexError):
                found[task.name] = int((task / "schedstat").read_text().split()[1])
    return found
