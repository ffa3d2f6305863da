"""What a watched process knows of itself: its stacks, memory, flight recorders and TCP connections.

Standard library only, and the process's own torch; nothing here changes anything of it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import linecache
import os
import re
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from typing import Any, Iterator

STACK_SIGNAL = signal.SIGRTMIN + 7
"""Has the process write its stacks into a file beside the socket, whatever holds the interpreter."""
TCP_INFO_BYTES = 192


def distributed() -> Any:
    """torch.distributed, where a world is there."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def moved_bytes() -> int:
    """Bytes that it has read and written, by the kernel's account."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith(("rchar", "wchar")):
                total += int(line.split()[1])
    return total


def resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class Starving:
    """How long threads of this process, whichever, were ready to run and had no core (schedstat)."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since_last(self) -> float:
        """Seconds, added up over threads, since the last call; negative: the kernel does not tell."""
        before, self._before = self._before, {}
        threads: list[str] = []
        with contextlib.suppress(OSError):
            threads = os.listdir("/proc/self/task")[:_MOST_THREADS]  # noqa: PTH208 (as below)
        for thread in threads:
            with contextlib.suppress(OSError, ValueError, IndexError):
                file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                try:  # in half the time of Path.read_text
                    self._before[thread] = int(os.read(file, 80).split()[1])
                finally:
                    os.close(file)
        grown = sum(lacked - before.get(one, 0) for one, lacked in self._before.items())
        return grown / 1e9 if self._before else -1.0


_MOST_THREADS = 256


def own_line(thread: int) -> tuple[str, int, str] | None:
    """File, line and function of the innermost call that is neither torch's nor Python's own.

    None within what is timed, which is called by a function of ours.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back if frame.f_code.co_filename != _AROUND else None
    return (frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name) if frame else None


def is_own(file: str) -> bool:
    _, package, name = file.rpartition("-packages/")
    return not (name.startswith("torch/") if package else file.startswith(_NOT_OWN))


_AROUND = str(Path(__file__).with_name("_wirespeed_around.py"))
_NOT_OWN = (str(Path(os.__file__).parent), str(Path(__file__).parent), "<")


def told_place(place: tuple[str, int, str]) -> tuple[str, str]:
    """`step (train.py:31)`, and the text of that line without what longer strings in it say: keys."""
    file, line, function = place
    text = re.sub(r"""(['"])[^'"]{9,}(['"]|$)""", r"\1…\2", linecache.getline(file, line).strip())
    return f"{function} ({file}:{line})"[-250:], text[:120]


def device() -> str:
    """`cuda` where the program uses one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return "cuda" if cuda is not None and cuda.is_initialized() else ""


def stack(thread: int) -> list[str]:
    """Of the training thread, the innermost call first."""
    frame = sys._current_frames().get(thread)
    return _told(traceback.extract_stack(frame)) if frame is not None else []


def raised_at(error: BaseException) -> list[str]:
    """Where it was raised, the innermost call first."""
    return _told(traceback.extract_tb(error.__traceback__))


def _told(calls: traceback.StackSummary) -> list[str]:
    own = [one for one in calls if "_wirespeed_" not in one.filename]
    return [f"{one.name} ({one.filename}:{one.lineno})" for one in own[-16:][::-1]]


def stack_file(path: str) -> str:
    """Where the signal has the stacks written to; empty: nowhere."""
    name = str(Path(path).with_name(f"stack-{os.getpid()}"))
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        faulthandler.register(STACK_SIGNAL, file=handle, all_threads=True)
    except (OSError, ValueError, AttributeError):
        return ""
    return name


# torch's flight recorder.


_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""torch has two flight recorders: ProcessGroupNCCL writes to one of its own, all others to the first."""


def recorded(begin_ns: int = 0) -> dict[str, Any]:
    """What both hold, of calls those since then.

    The others are let go one by one as they are read: pages for all of them, which are new to the
    process, take ten times as long as the reading.
    """

    def since(told: dict[str, Any]) -> dict[str, Any] | None:
        at = told.get("time_created_ns")
        return told if not isinstance(at, int) or at >= begin_ns else None

    found: dict[str, Any] = {}
    for name in _RECORDERS:
        with contextlib.suppress(Exception):
            text = getattr(sys.modules["torch"]._C._distributed_c10d, name)()
            dump = json.loads(text, object_hook=since)
            newer = [one for one in dump.get("entries") or [] if one is not None]
            entries = [*(found.get("entries") or []), *newer]
            groups = {k: {**(found.get(k) or {}), **(dump.get(k) or {})} for k in _OF_GROUPS}
            found = {**found, **dump, **groups, "entries": entries}
    return found


_OF_GROUPS = ("pg_config", "pg_status")
_KEPT = frozenset(
    (
        "process_group",
        "collective_seq_id",
        "p2p_seq_id",
        "op_id",
        "record_id",
        "is_p2p",
        "profiling_name",
        "input_sizes",
        "input_dtypes",
        "state",
        "retired",
        "time_created_ns",
        "time_discovered_completed_ns",
    )
)


def newest_calls() -> dict[str, Any]:
    """A dump with the newest collectives of each group."""
    dump = recorded()
    by_group: dict[str, list[dict[str, Any]]] = {}
    for entry in dump.get("entries") or []:
        kept = {name: told for name, told in entry.items() if name in _KEPT}
        kept["input_sizes"] = [one[:8] for one in kept.get("input_sizes") or []][:4]
        kept["input_dtypes"] = (kept.get("input_dtypes") or [])[:4]
        by_group.setdefault(str(entry.get("process_group")), []).append(kept)
    newest = [entry for entries in by_group.values() for entry in entries[-_OF_A_GROUP:]]
    newest.sort(key=lambda entry: entry.get("record_id") or 0)
    config = dict(dump.get("pg_config") or {})
    for name, ranks in _members().items():  # which gloo does not write
        config[name] = {**(config.get(name) or {}), "ranks": ranks[:_MOST_MEMBERS]}
    return {
        "pg_status": dump.get("pg_status") or {},
        "pg_config": config,
        "entries": newest[-_OF_ALL:],
    }


_OF_A_GROUP, _OF_ALL, _MOST_MEMBERS = 16, 96, 1024
"""Of a larger group those that are not told wrote no dump, as far as anybody knows."""


def _members() -> dict[str, list[int]]:
    """Global ranks of each group that this rank is in, by name."""
    dist = distributed()
    if dist is None:
        return {}
    world = dist.distributed_c10d._world
    ranks, names = world.pg_group_ranks, world.pg_names
    return {names[group]: sorted(of) for group, of in ranks.items() if group in names}


def calls_between(begin: float, end: float) -> tuple[list[list[Any]], list[list[Any]]]:
    """Collectives that were issued between two unix times.

    Their kinds (group, its description and members, operation, sizes, types) in the order in which
    they are first used; and each as the place of its kind, number, µs.
    """
    members = _members()
    kinds: list[list[Any]] = []
    found: list[list[Any]] = []
    for entry in recorded(int(begin * 1e9)).get("entries") or []:
        at_ns = entry.get("time_created_ns")
        at = at_ns / 1e9 if isinstance(at_ns, int) else 0.0
        if begin <= at <= end:
            name, description = [*map(str, entry.get("process_group") or []), "", ""][:2]
            operation, sizes = str(entry.get("profiling_name")), entry.get("input_sizes") or []
            types = entry.get("input_dtypes") or []
            number = entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id")
            kind = [name, description, members.get(name, [])[:64], operation, sizes[:4], types[:1]]
            if kind not in kinds:
                kinds.append(kind)
            found.append([kinds.index(kind), number, round((at - begin) * 1e6)])
    return kinds, found


# Its TCP connections, as the kernel sees them: struct tcp_info of linux/tcp.h.


def tcp_rtt_us(info: bytes) -> int:
    return int(struct.unpack_from("=I", info, 68)[0])


def tcp_retransmits(info: bytes) -> int:
    return int(struct.unpack_from("=I", info, 100)[0])


def tcp_acked(info: bytes) -> int:
    return int(struct.unpack_from("=Q", info, 120)[0])


def tcp_busy_us(info: bytes) -> int:
    return int(struct.unpack_from("=Q", info, 168)[0])


class Connections:
    """Of this process; looked for again where its open files are others than before."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._sockets: list[tuple[int, int]] = []

    def infos(self) -> list[tuple[tuple[str, int], str, bytes]]:
        """(address and port of the other end, its address, tcp_info) of each."""
        found = []
        for one, peer in self._each():
            with contextlib.suppress(OSError, ValueError):
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
                if len(info) >= TCP_INFO_BYTES - 16:
                    found.append(((peer[0], peer[1]), _plain(peer[0]), info))
        return found

    def own_addresses(self) -> list[str]:
        """Of this end, but loopback."""
        found = set()
        for one, _ in self._each():
            with contextlib.suppress(OSError):
                found.add(_plain(one.getsockname()[0]))
        return sorted(one for one in found if one and not one.startswith(("127.", "::")))[:16]

    def _each(self) -> Iterator[tuple[socket.socket, Any]]:
        """Each by a descriptor of ours, and its other end."""
        now_open = os.listdir("/proc/self/fd")  # noqa: PTH208 (a tenth of iterdir's time)
        if now_open != self._open:
            self._open = now_open
            self._sockets = [(int(one), family) for one in now_open if (family := _family(one))]
        for number, family in self._sockets:
            with contextlib.suppress(OSError), _ours(number, family) as one:
                yield one, one.getpeername()


def _family(number: str) -> int:
    """Of an open file that is a TCP socket; 0: it is none."""
    with contextlib.suppress(OSError):
        if str(Path("/proc/self/fd", number).readlink()).startswith("socket:"):
            with _ours(int(number), _NOT_KNOWN) as one:
                kind = one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
                return one.family if kind == socket.SOCK_STREAM and one.family in _INTERNET else 0
    return 0


def _ours(number: int, family: int) -> socket.socket:
    """A descriptor of ours of an open socket.

    Called non-blocking, so that Python sets nothing: where the program has a default time-out of
    sockets it would make the socket itself non-blocking, which ends the job's TCPStore.
    """
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, fileno=os.dup(number))


_NOT_KNOWN = -1
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def _plain(address: str) -> str:
    return address[7:] if address.startswith("::ffff:") else address
