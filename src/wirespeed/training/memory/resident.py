"""The process's resident size, and its highest value since a moment of our choice (Linux).

proc_pid_status(5): VmHWM is the largest resident size; proc_pid_clear_refs(5): writing 5 into
clear_refs sets it back to the present size. That size holds what glibc keeps of memory that was freed,
which malloc_trim(3) gives back: without it every step after the largest one seems as large as that.
"""

import ctypes
from contextlib import suppress
from pathlib import Path

__all__ = ["give_back_freed", "highest_resident", "reset_highest_resident"]


def give_back_freed() -> None:
    """Let the kernel have what the allocator keeps; nothing where the C library cannot (musl)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_highest_resident(process: Path = Path("/proc/self")) -> bool:
    """Let the high-water mark start anew; False where the kernel does not let us."""
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def highest_resident(process: Path = Path("/proc/self")) -> int | None:
    """Bytes; None where the kernel does not tell."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return None
