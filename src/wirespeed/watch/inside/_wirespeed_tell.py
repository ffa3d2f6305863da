"""The thread of a watched rank that tells, once a second, what the rank has noted.

Each message is one datagram, JSON, to a socket of this node (`WIRESPEED_WATCH`: its path). Who reads
there may stop, go away or be slow: then messages are lost, and the rank does not notice.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import linecache
import math
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Iterator

PERIOD_S = 1.0
_LOOKS = 5
"""Times a second that the thread looks where in the program the rank is."""
_PLACES, _TOLD_PLACES, _FIRST_STEPS = 256, 4, 3
_ROWS_A_SECOND = 16
"""Of more steps than that the means of some are told: the line has a kilobyte a second."""
_STUCK_S = 3.0
"""After which a rank that does nothing also tells where it stands."""
_SAMPLE_S = 20.0
_SAMPLED_CALLS = 150
_LINKS = 8
"""Connections that are told, the busiest."""
_LONGEST = 60_000
STACK_SIGNAL = signal.SIGRTMIN + 7
"""Has the process write its stacks into a file beside the socket, whatever holds the interpreter."""
TCP_INFO_BYTES = 192
_NOT_SEEN = -1
_KEY = "wirespeed/watch"
"""In the job's own store: the port and the secret of rank 0's session."""


def begin(rank: Any, look_again: Callable[[], None]) -> None:
    """Start the thread; once a process."""
    teller = _Teller(rank, look_again)
    atexit.register(teller.end)
    threading.Thread(target=teller.run, name="wirespeed-watch", daemon=True).start()


class _Teller:
    def __init__(self, rank: Any, look_again: Callable[[], None]) -> None:
        self._rank, self._look_again = rank, look_again
        self._path = os.environ.get("WIRESPEED_WATCH", "")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._number = _number("RANK", 0)
        self._hello: dict[str, Any] = {}
        self._greet_at = self._stood_at = 0.0
        self._met = False
        self._links: dict[tuple[str, int], tuple[int, int, int]] = {}
        self._looks = self._told_looks = 0
        self._places: dict[tuple[str, int, str], int] = {}
        self._moves, self._moved_at = -1, time.monotonic()
        self._linked_at = time.monotonic()
        self._bad = self._ripe = False
        self._stacks = _stack_file(self._path)
        self._over, self._lock = threading.Event(), threading.Lock()

    def run(self) -> None:
        looks = 0
        while not self._rank.hurt and not self._over.wait(PERIOD_S / _LOOKS):
            looks += 1
            with self._lock:
                self._try(self._look)
                if looks % _LOOKS == 0:
                    self._try(self._tell)
        if self._rank.hurt:
            self._rank.active = False
            self._send(k="hurt", why=self._rank.hurt)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._rank.hurt = repr(error)[:200]

    def end(self) -> None:
        """The process ends: what is left is told."""
        self._over.set()
        if not self._rank.hurt and os.getpid() == self._rank.pid and self._lock.acquire(timeout=1):
            self._try(self._tell)
            self._try(self._tell_places)
            self._send(k="bye", s=self._rank.steps, pid=os.getpid())

    def _look(self) -> None:
        """Note the line of the program that the rank is at, where it is in nothing that is timed."""
        if self._rank.steps < _FIRST_STEPS:
            return
        self._looks += 1
        place = None if self._rank.at.phase else _own_line(self._rank.thread)
        if place is not None and (place in self._places or len(self._places) < _PLACES):
            self._places[place] = self._places.get(place, 0) + 1

    def _tell(self) -> None:
        self._look_again()
        rank = self._rank
        if time.monotonic() >= self._greet_at or rank.boundary != self._hello.get("b"):
            self._greet_at = time.monotonic() + 5 * PERIOD_S
            self._greet()
        if not self._met:
            self._meet()
        told, rank.told = rank.told, []
        for message in _rows(told):
            self._send(**message)
        if rank.bad_loss >= 0 and not self._bad:
            self._bad = True
            self._send(k="l", s=rank.bad_loss)
        stuck_s = self._stuck()
        at = rank.at
        since = round(time.perf_counter() - at.begin, 3)
        self._send(
            k="t", s=rank.steps, m=rank.moves, p=at.phase, i=since, q=_numbers(), c=_cpu(), io=_io()
        )
        now = time.monotonic()
        if stuck_s >= _STUCK_S and now - self._stood_at >= _STUCK_S:
            self._stood_at = now
            self._send(k="st", s=rank.steps, stack=_stack(rank.thread), d=_recorder())
        if now - self._linked_at >= 5 * PERIOD_S:
            self._tell_links(now)
        if len(told) > 1:
            step_s = sum(row[0] for *_, row in told) / len(told)
            rank.sample_every = 1 << max(0, math.ceil(math.log2(_SAMPLE_S / max(step_s, 1e-6))))
        if rank.sampled is not None and (self._ripe or not _on_devices() or self._over.is_set()):
            self._tell_sample()
        self._ripe = rank.sampled is not None

    def _send(self, **message: Any) -> None:
        data = json.dumps({"r": self._number, **message}, separators=(",", ":")).encode()
        if len(data) <= _LONGEST:
            with contextlib.suppress(OSError):  # nobody reads, or not as fast
                self._socket.sendto(data, self._path)

    def _meet(self) -> None:
        """Rank 0 tells the others where its session is; these tell it the process beside them."""
        at = os.environ.get("WIRESPEED_WATCH_AT", "")
        beside = "WIRESPEED_WATCH_BESIDE" in os.environ
        dist = _distributed()
        if dist is None or not (at or beside):
            return
        store = dist.distributed_c10d._get_default_store()
        if at:
            store.set(_KEY, at)
            self._met = True
        elif store.check([_KEY]):
            self._send(k="to", host=os.environ.get("MASTER_ADDR", ""), at=store.get(_KEY).decode())
            self._met = True

    def _greet(self) -> None:
        """Who this rank is; again where that has changed, and every half minute."""
        dist = _distributed()
        self._number = dist.get_rank() if dist else _number("RANK", 0)
        world = dist.get_world_size() if dist else _number("WORLD_SIZE", 1)
        self._rank.communicates = bool(dist) and world > 1
        hello = {
            "w": world,
            "p": os.getpid(),
            "h": os.uname().nodename,
            "b": self._rank.boundary,
            "bk": str(dist.get_backend()) if dist else "",
            "v": {"torch": str(getattr(sys.modules.get("torch"), "__version__", ""))},
            "a": _own_addresses(),
            "u": _unseen(dist),
            "d": _device(),
            "sf": self._stacks,
            "n": int(time.monotonic() / 30),
        }
        if hello != self._hello:
            self._hello = hello
            self._send(k="hi", r=self._number, **hello)
            if self._rank.gradients and not self._number:
                self._send(k="g", l=self._rank.gradients)

    def _stuck(self) -> float:
        """Seconds for which the training thread has begun and ended nothing."""
        if self._rank.moves != self._moves:
            self._moves, self._moved_at = self._rank.moves, time.monotonic()
        return time.monotonic() - self._moved_at

    def _tell_links(self, now: float) -> None:
        seconds, self._linked_at = now - self._linked_at, now
        before, self._links = self._links, {}
        told: list[tuple[str, float, int, float, int]] = []
        for key, peer, info in _connections():
            busy_us, acked, again = _TCP_BUSY(info), _TCP_ACKED(info), _TCP_AGAIN(info)
            self._links[key] = busy_us, acked, again
            old = before.get(key)
            if old is not None and acked > old[1]:
                busy_s = (busy_us - old[0]) / 1e6
                rtt_s = _TCP_RTT(info) / 1e6
                told.append((peer, round(busy_s, 4), acked - old[1], rtt_s, again - old[2]))
        told.sort(key=lambda one: -one[2])
        if told:
            self._send(k="n", s=self._rank.steps, o=round(seconds, 3), l=told[:_LINKS])
        self._send(k="m", s=self._rank.steps, rss=_resident())
        if self._looks >= 1.5 * self._told_looks:
            self._tell_places()

    def _tell_places(self) -> None:
        self._told_looks = self._looks
        often = sorted(self._places.items(), key=lambda one: -one[1])[:_TOLD_PLACES]
        if often:
            self._send(k="pl", of=self._looks, l=[[*_told_place(p), n] for p, n in often])

    def _tell_sample(self) -> None:
        step, begin, unix, spans = self._rank.sampled
        self._rank.sampled = None
        told = [
            [lane, name, round((a - begin) * 1e6), round((b - begin) * 1e6)]
            for lane, name, a, b in spans
        ]
        end = max([b for *_, b in told], default=0) / 1e6 + unix
        calls = _calls(unix, end)
        self._send(
            k="sp", s=step, t=round(unix, 6), x=told, f=calls[:_SAMPLED_CALLS], of=len(calls)
        )


def _number(name: str, other: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else other


def _distributed() -> Any:
    """torch.distributed, where a world is there."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _on_devices() -> bool:
    """Whether NCCL's watchdog still has to notice how long the collectives of a step took."""
    dist = _distributed()
    return dist is not None and "nccl" in str(dist.get_backend())


def _unseen(dist: Any) -> list[str]:
    if dist is None:
        return ["no torch.distributed: nothing is known of communication"]
    if _on_devices():
        return ["NCCL: how long ranks wait in collectives (only a GPU knows)"]
    return []


def _rows(told: list[tuple[int, float, list[float]]]) -> list[dict[str, Any]]:
    """As messages of at most sixteen rows; steps that follow each other are put together beyond that."""
    each = max(1, -(-len(told) // _ROWS_A_SECOND))
    whole = len(told) - len(told) % each if each > 1 else len(told)
    parts = [told[i : i + each] for i in range(0, whole, each)] + [[one] for one in told[whole:]]
    found: list[dict[str, Any]] = []
    for part in parts:
        last = found[-1] if found else None
        if last is None or last["e"] != len(part) or len(last["d"]) >= _ROWS_A_SECOND:
            last = {"k": "s", "n": part[0][0], "e": len(part), "t": round(part[0][1], 4), "d": []}
            found.append(last)
        last["d"].append(_mean([row for _, _, row in part]))
    return found


def _mean(rows: list[list[float]]) -> list[int]:
    """In units of 10 µs, the last column as it is; -1 where it is not known."""
    means = [sum(values) / len(rows) for values in zip(*rows)]
    last = len(means) - 1
    return [
        round(m * (1 if i == last else 1e5)) if m >= 0 else _NOT_SEEN for i, m in enumerate(means)
    ]


# What the process knows of itself.


def _cpu() -> float:
    return round(time.process_time(), 3)


def _io() -> int:
    """Bytes that it has read and written, by the kernel's account."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith(("rchar", "wchar")):
                total += int(line.split()[1])
    return total


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _numbers() -> dict[str, int]:
    """Collectives that were issued, by process group."""
    dist = _distributed()
    found: dict[str, int] = {}
    if dist is not None:
        for group, name in list(dist.distributed_c10d._world.pg_names.items())[:64]:
            with contextlib.suppress(Exception):
                found[name] = group._get_sequence_number_for_group()
    return found


def _own_line(thread: int) -> tuple[str, int, str] | None:
    """File, line and function of the innermost call that is neither torch's nor Python's own."""
    frame = sys._current_frames().get(thread)
    while frame is not None and not _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name) if frame else None


def _is_own(file: str) -> bool:
    _, package, name = file.rpartition("-packages/")
    return not (name.startswith("torch/") if package else file.startswith(_NOT_OWN))


_NOT_OWN = (str(Path(os.__file__).parent), str(Path(__file__).parent), "<")


def _told_place(place: tuple[str, int, str]) -> tuple[str, str]:
    """`step (train.py:31)`, and the text of that line without what longer strings in it say: keys."""
    file, line, function = place
    text = re.sub(r"""(['"])[^'"]{9,}(['"]|$)""", r"\1…\2", linecache.getline(file, line).strip())
    return f"{function} ({file}:{line})"[-250:], text[:120]


def _device() -> str:
    """`cuda` where the program uses one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return "cuda" if cuda is not None and cuda.is_initialized() else ""


def _stack(thread: int) -> list[str]:
    """Of the training thread, the innermost call first."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return []
    calls = [one for one in traceback.extract_stack(frame) if "_wirespeed_" not in one.filename]
    return [f"{one.name} ({one.filename}:{one.lineno})" for one in calls[-16:][::-1]]


def _stack_file(path: str) -> str:
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


def _entries() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _RECORDERS:
        with contextlib.suppress(Exception):
            dump = json.loads(getattr(sys.modules["torch"]._C._distributed_c10d, name)())
            entries = [*(found.get("entries") or []), *(dump.get("entries") or [])]
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


def _recorder() -> dict[str, Any]:
    """A dump with the newest collectives of each group."""
    dump = _entries()
    by_group: dict[str, list[dict[str, Any]]] = {}
    for entry in dump.get("entries") or []:
        kept = {name: told for name, told in entry.items() if name in _KEPT}
        kept["input_sizes"] = [one[:8] for one in kept.get("input_sizes") or []][:4]
        kept["input_dtypes"] = (kept.get("input_dtypes") or [])[:4]
        by_group.setdefault(str(entry.get("process_group")), []).append(kept)
    newest = [entry for entries in by_group.values() for entry in entries[-6:]]
    newest.sort(key=lambda entry: entry.get("record_id") or 0)
    return {
        **{k: v for k, v in dump.items() if k in ("pg_config", "pg_status", "version")},
        "entries": newest[-60:],
    }


def _calls(begin: float, end: float) -> list[list[Any]]:
    """Collectives that were issued between two unix times: group, operation, number, bytes, type, µs."""
    dist = _distributed()
    members: dict[str, list[int]] = {}
    if dist is not None:
        world = dist.distributed_c10d._world
        members = {
            world.pg_names[g]: sorted(of)
            for g, of in world.pg_group_ranks.items()
            if g in world.pg_names
        }
    found = []
    for entry in _entries().get("entries") or []:
        at = entry.get("time_created_ns", 0) / 1e9
        if begin <= at <= end:
            name, description = [*map(str, entry.get("process_group") or []), "", ""][:2]
            sizes, types = entry.get("input_sizes") or [], entry.get("input_dtypes") or []
            found.append(
                [
                    name,
                    description,
                    members.get(name, [])[:64],
                    str(entry.get("profiling_name")),
                    entry.get("p2p_seq_id")
                    if entry.get("is_p2p")
                    else entry.get("collective_seq_id"),
                    sizes[:4],
                    types[:1],
                    round((at - begin) * 1e6),
                    entry.get("duration_ms"),
                ]
            )
    return found


# Its TCP connections, as the kernel sees them: struct tcp_info of linux/tcp.h.


def _TCP_RTT(info: bytes) -> int:
    return int(struct.unpack_from("=I", info, 68)[0])


def _TCP_AGAIN(info: bytes) -> int:
    return int(struct.unpack_from("=I", info, 100)[0])


def _TCP_ACKED(info: bytes) -> int:
    return int(struct.unpack_from("=Q", info, 120)[0])


def _TCP_BUSY(info: bytes) -> int:
    return int(struct.unpack_from("=Q", info, 168)[0])


def _connections() -> list[tuple[tuple[str, int], str, bytes]]:
    """(address and port of the other end, its address, tcp_info) of each connection."""
    found = []
    for one in _sockets():
        with contextlib.suppress(OSError, ValueError):
            peer = one.getpeername()
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            if len(info) >= TCP_INFO_BYTES - 16:
                found.append(((peer[0], peer[1]), _plain(peer[0]), info))
    return found


def _own_addresses() -> list[str]:
    """Addresses of this end of the connections, but loopback."""
    found = set()
    for one in _sockets():
        with contextlib.suppress(OSError, ValueError):
            one.getpeername()
            found.add(_plain(one.getsockname()[0]))
    return sorted(one for one in found if one and not one.startswith(("127.", "::")))[:16]


def _sockets() -> Iterator[socket.socket]:
    """The TCP sockets of this process, each by a descriptor of ours."""
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if str(file.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(file.name))) as one:
                    if one.family in _INTERNET and one.type == socket.SOCK_STREAM:
                        yield one


_INTERNET = (socket.AF_INET, socket.AF_INET6)


def _plain(address: str) -> str:
    return address[7:] if address.startswith("::ffff:") else address
