"""How fast one core copies memory, which bounds what ranks of one machine send to each other.

Copies of 32 MiB to another 32 MiB, the best of three, timed by the processor time of this thread, so
that a core which others use, too, is no slower. About 50 ms, most of it for having the pages mapped, and
never more than `BUDGET_S` and one copy: a busy machine maps less in that time. What then fits into its
caches is copied faster, so the rate is an upper bound at any size.
"""

import mmap
import time
from collections.abc import Callable
from pathlib import Path

from wirespeed.world.limits import memory_available_bytes
from wirespeed.world.reading import Notes

__all__ = ["BUDGET_S", "note_copy_rate"]

BUDGET_S = 0.1
_LARGEST = 32 << 20
_LEAST = 8 << 20
"""With less, the caches of one core would be measured."""
_STEP = 2 << 20
_COPIES = 3
_MAPPING_SHARE = 0.6
"""Of the time, for having the pages mapped; copies need the rest."""
_ROOM = 16
"""Times what is taken must be free, so that nobody is pushed out of memory by it."""

Clock = Callable[[], float]


def note_copy_rate(notes: Notes, *, clock: Clock = time.monotonic) -> None:
    """Note `memory.copy_GBps`: 10⁹ bytes a second that one core copies. Nothing raises.

    Not measured where `notes` are of other files than this machine's.
    """
    name = "memory.copy_GBps"
    if notes.root != Path("/"):
        notes.unknown[name] = "not measured: these facts are not read from this machine"
        return
    if memory_available_bytes() < _ROOM * 2 * _LARGEST:
        notes.unknown[name] = "not measured: less than 1 GiB of memory is available"
        return
    try:
        rate = _copy_rate(clock, clock() + BUDGET_S)
    except (OSError, MemoryError) as error:
        notes.unknown[name] = f"not measured: {error}"
        return
    why = f"not measured: this machine is too busy to do it in {BUDGET_S * 1e3:.0f} ms"
    notes.keep(name, rate and round(rate / 1e9, 2), why)


def _copy_rate(clock: Clock, deadline: float) -> float | None:
    """Bytes a second; None: no time for it."""
    with mmap.mmap(-1, _LARGEST) as source, mmap.mmap(-1, _LARGEST) as target:
        size = _map(source, target, clock, deadline - (1 - _MAPPING_SHARE) * BUDGET_S)
        if size < _LEAST:
            return None
        best = None
        with memoryview(source)[:size] as read, memoryview(target)[:size] as written:
            for _ in range(_COPIES):
                if clock() >= deadline:
                    break
                start = time.thread_time()
                written[:] = read
                spent = time.thread_time() - start
                best = min(best or spent, spent)
    return size / best if best else None


def _map(source: mmap.mmap, target: mmap.mmap, clock: Clock, deadline: float) -> int:
    """Write to both step by step, so that their pages are there; how many bytes of each are."""
    pattern = bytes([0x55]) * _STEP
    done = 0
    while done < _LARGEST and clock() < deadline:
        source[done : done + _STEP] = pattern
        target[done : done + _STEP] = pattern
        done += _STEP
    return done
