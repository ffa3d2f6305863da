"""Processes: guards, exit codes, frames and ports. Standard library only: far nodes run it too.

Exit codes: negative for a signal, as Python tells it, or 128 plus its number, as shells tell it.
"""

import signal
import socket
from contextlib import suppress


def shell_code(code: int) -> int:
    """128 + n where signal n ended it (`code` is -n then), else the code itself."""
    return code if code >= 0 else 128 - code


def signal_of(returncode: int) -> signal.Signals | None:
    """The signal that ended it, by either notation; None for an exit code."""
    number = -returncode if returncode < 0 else returncode - 128
    try:
        return signal.Signals(number)
    except ValueError:
        return None


def returncode_text(returncode: int | None) -> str:
    """`killed by signal 9 (SIGKILL)`, `ended with exit code 3`."""
    if returncode is None:
        return "ended without goodbye"
    number = signal_of(returncode)
    if number is None:
        return f"ended with exit code {returncode}"
    by_shell = f"exit code {returncode}: " if returncode > 0 else ""
    return f"{by_shell}killed by signal {number.value} ({number.name})"


def free_port(address: str = "") -> int:
    """One that nobody uses at that address (empty: at any)."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port


def is_free(port: int) -> bool:
    """Whether a socket of this machine can have it."""
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("", port))
        return True
    return False
