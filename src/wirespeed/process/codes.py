"""Exit codes: negative for a signal, as Python tells it, or 128 plus its number, as shells tell it."""

import signal


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
