"""Some seconds of a node's ranks: stacks again and again, and what the kernel counts meanwhile."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from os import sysconf
from pathlib import Path
from typing import Any

from wirespeed.errors import CannotMeasure
from wirespeed.node import counters
from wirespeed.node.python_stacks import Thread, python_stacks
from wirespeed.node.reading import read_fields, read_text
from wirespeed.process import descendants, read_processes
from wirespeed.watch.attach.ranks import RankProcess
from wirespeed.watchdog.stacks import process_state

_EVERY_S = 0.25
_PER_RANK_S = 0.04
"""A reading costs 15 ms of CPU; no more than a third of a core goes into it."""
_AT_ONCE = 8
_NATIVE_S = 30.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process with all below it, since they began."""

    cpu_s: float
    switches: int
    """Times that the process's main thread went to sleep by itself."""
    io_bytes: int
    """Read and written by read(2), write(2) and their like: files, pipes and many sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLook:
    """What was seen of one rank."""

    process: RankProcess
    states: tuple[str, ...]
    """The letter of /proc/PID/stat at each reading; empty text: the process was gone."""
    stacks: tuple[tuple[Thread, ...], ...]
    """At each reading that gave one."""
    native: tuple[Thread, ...] = ()
    """With C frames, where they were asked for and could be read."""
    unread: str = ""
    """Why there is no stack, and what to do."""
    cores: float
    """CPU time over time, with the processes below."""
    switches: int
    """Of the main thread."""
    io_bytes: int
    waits_in_kernel: str
    """The kernel function that the main thread sleeps in; empty: none, or not told."""
    cuda: bool
    """Whether it has loaded CUDA's driver: then waiting may cost a whole core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    host: str
    seconds: float
    ranks: tuple[RankLook, ...]
    ended: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    counters: dict[str, Any] = field(default_factory=dict)
    """As `node.counters.growth` gives them."""


def look_at(processes: Sequence[RankProcess], seconds: float, *, native: bool) -> list[RankLook]:
    """Takes that long, and the time of one reading more."""
    times = max(3, 1 + math.floor(seconds / max(_EVERY_S, _PER_RANK_S * len(processes))))
    began = time.monotonic()
    before = {one.pid: usage(one.pid) for one in processes}
    readings: list[list[tuple[str, tuple[Thread, ...], str]]] = []
    with ThreadPoolExecutor(min(_AT_ONCE, len(processes))) as pool:
        for number in range(times):
            time.sleep(max(0.0, began + seconds * number / (times - 1) - time.monotonic()))
            readings.append(list(pool.map(_read, processes)))
        took = time.monotonic() - began
        after = {one.pid: usage(one.pid) for one in processes}
        last = list(pool.map(_native, processes)) if native else [()] * len(processes)
    return [
        _rank_look(
            one,
            [reading[index] for reading in readings],
            last[index],
            before[one.pid],
            after[one.pid],
            took,
        )
        for index, one in enumerate(processes)
    ]


def _read(process: RankProcess) -> tuple[str, tuple[Thread, ...], str]:
    """State, threads, and why there are none."""
    state = process_state(process.pid)
    if state in ("", "Z", "X"):
        return state, (), "its process has ended"
    try:
        return state, python_stacks(process.pid), ""
    except CannotMeasure as error:
        return state, (), f"{error.saw}; {error.next}" if error.next else error.saw


def _native(process: RankProcess) -> tuple[Thread, ...]:
    with suppress(CannotMeasure):
        return python_stacks(process.pid, native=True, bound_s=_NATIVE_S)
    return ()


def _rank_look(
    process: RankProcess,
    readings: Sequence[tuple[str, tuple[Thread, ...], str]],
    native: tuple[Thread, ...],
    before: Usage | None,
    after: Usage | None,
    seconds: float,
) -> RankLook:
    stacks = [threads for _, threads, _ in readings if threads]
    grown = Usage(0.0, 0, 0)
    if before is not None and after is not None:
        grown = Usage(
            max(0.0, after.cpu_s - before.cpu_s),
            max(0, after.switches - before.switches),
            max(0, after.io_bytes - before.io_bytes),
        )
    return RankLook(
        process=process,
        states=tuple(state for state, _, _ in readings),
        stacks=tuple(stacks),
        native=native,
        unread="" if stacks else readings[-1][2],
        cores=grown.cpu_s / seconds,
        switches=grown.switches,
        io_bytes=grown.io_bytes,
        waits_in_kernel=_waits_in_kernel(process.pid),
        cuda=_has_cuda(process.pid),
    )


def usage(pid: int) -> Usage | None:
    """None: it is gone."""
    below = [one.pid for one in descendants(pid, read_processes())]
    try:
        cpu = _cpu_s(pid, with_ended=True)
    except (OSError, ValueError, IndexError):
        return None
    for child in below:
        with suppress(OSError, ValueError, IndexError):
            cpu += _cpu_s(child, with_ended=False)
    woken = read_fields(Path(f"/proc/{pid}/status")).get("voluntary_ctxt_switches", "")
    io_bytes = sum(map(_io_bytes, [pid, *below]))
    return Usage(cpu, int(woken) if woken.isdecimal() else 0, io_bytes)


def _cpu_s(pid: int, *, with_ended: bool) -> float:
    """utime and stime, and those of children that were waited for (proc_pid_stat(5))."""
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return sum(map(int, words[11 : 15 if with_ended else 13])) / sysconf("SC_CLK_TCK")


def _io_bytes(pid: int) -> int:
    told = read_fields(Path(f"/proc/{pid}/io"))
    return sum(int(told[name]) for name in ("rchar", "wchar") if told.get(name, "").isdecimal())


def _waits_in_kernel(pid: int) -> str:
    told = read_text(Path(f"/proc/{pid}/wchan")) or ""
    return "" if told == "0" else told


def _has_cuda(pid: int) -> bool:
    try:
        with Path(f"/proc/{pid}/maps").open(errors="replace") as lines:
            return any("/libcuda.so" in line for line in lines)
    except OSError:
        return False


def look(
    ranks: Sequence[RankProcess], seconds: float, *, native: bool, **known: tuple[int, ...]
) -> NodeLook:
    """The ranks of this node, and what its network cards and GPUs count meanwhile."""
    before = counters.take(bound_s=seconds)
    seen = look_at(ranks, seconds, native=native)
    grown = counters.growth(before, counters.take(bound_s=seconds))
    return NodeLook(host=ranks[0].host, seconds=seconds, ranks=tuple(seen), counters=grown, **known)
