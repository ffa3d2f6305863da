"""Processes: guards, exit codes, frames and ports. Standard library only: far nodes run it too.

The few facts about processes that tell who started whom, read from /proc.

Exit codes: negative for a signal, as Python tells it, or 128 plus its number, as shells tell it.
"""

import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


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


_MAX_DEPTH = 64
"""Ancestors that are followed: a bound on damaged or circular tables."""


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    ppid: int
    name: str
    """The kernel's name of it: at most 15 characters."""
    cmdline: tuple[str, ...]
    """Empty for kernel threads and for processes that are ending."""
    state: str = ""
    """The letter of proc_pid_stat(5): R, S, D, T (stopped), t (traced), Z."""


def read_processes(root: Path = Path("/")) -> dict[int, Process]:
    """Every process that can be seen, by pid. Those that end meanwhile are left out.

    About 30 µs a process, so 30 ms for a thousand.
    """
    found: dict[int, Process] = {}
    for entry in (root / "proc").iterdir():
        if entry.name.isdecimal() and (process := _read(entry)) is not None:
            found[process.pid] = process
    return found


def _read(folder: Path) -> Process | None:
    try:
        stat = (folder / "stat").read_text(errors="replace")
        told = (folder / "cmdline").read_bytes()
    except OSError:  # it ended, or belongs to somebody whose processes are hidden (hidepid)
        return None
    # `pid (name) state ppid …`: the name may hold spaces and brackets, so cut at the last bracket.
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    state, ppid = stat[stat.rindex(")") + 1 :].split()[:2]
    # A process that set its title (slurmstepd) leaves one text, padded with zeros or spaces.
    words = told.decode(errors="replace").rstrip("\0 ").split("\0")
    cmdline = tuple(words) if words != [""] else ()
    return Process(int(folder.name), int(ppid), name, cmdline, state)


def ancestors(pid: int, processes: Mapping[int, Process]) -> Iterator[Process]:
    """The parent of `pid`, its parent, and so on."""
    child = processes.get(pid)
    for _ in range(_MAX_DEPTH):
        if child is None or child.ppid == child.pid or child.ppid not in processes:
            return
        child = processes[child.ppid]
        yield child


def descendants(pid: int, processes: Mapping[int, Process]) -> Iterator[Process]:
    """Every process below `pid`."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process)
    waiting, seen = [pid], {pid}
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                waiting.append(child.pid)
                yield child


def started(pid: int) -> int | None:
    """When that process began, in clock ticks since the machine's start; 0: it is ending, or a zombie.

    Pid and this name one process for good. None: it is not there, or cannot be seen (hidepid).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except ProcessLookupError:
        return 0
    except OSError:
        return None
    words = text[text.rindex(")") + 1 :].split()
    return 0 if words[0] in "ZX" else int(words[19])


def boot_id() -> str:
    """Another one is another machine, or this one started again; empty where it cannot be read."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def pid_space() -> int:
    """The inode of the pid namespace that this process counts in; 0 where it cannot be read."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def owner_record(pid: int) -> str:
    """Tells a process of this host for good; without its start where it has ended."""
    words = socket.gethostname(), boot_id(), pid_space(), pid, started(pid)
    return "\n".join(map(str, words))
