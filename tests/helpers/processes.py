"""Waiting for what must come true, and which processes there are."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def until(
    true: Callable[[], Any], what: str = "it", *, bound_s: float = 30.0, every_s: float = 0.02
) -> None:
    """Wait until `true()` is."""
    deadline = time.monotonic() + bound_s
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come true within {bound_s} s"
        time.sleep(every_s)


def gone(pid: int | str) -> bool:
    """Whether it has ended; a zombie that nobody has waited for yet has."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def command_lines() -> dict[int, str]:
    """Of all processes of this machine, by pid."""
    return {pid: told.decode("utf-8", "replace") for pid, told in _read("cmdline").items()}


def marked(variable: str, value: str) -> list[int]:
    """Processes with that in their environment, also those that have left every group of ours."""
    mark = f"{variable}={value}\0".encode()
    return [pid for pid, told in _read("environ").items() if mark in told]


def _read(name: str) -> dict[int, bytes]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                found[int(entry.name)] = (entry / name).read_bytes()
    return found
