"""The process's resident size, and its highest value since a moment of our choice (Linux).

proc_pid_status(5): VmHWM is the largest resident size; proc_pid_clear_refs(5): writing 5 into
clear_refs sets it back to the present size.
"""

from pathlib import Path

__all__ = ["highest_resident", "reset_highest_resident"]


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
