"""Which processes are the ranks of a job: those that were named, or those below their launcher."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError, WorldError
from wirespeed.node.identity import Identity, detect
from wirespeed.node.python_stacks import missing_permission
from wirespeed.process import Process, ancestors, descendants, read_processes

_LARGEST = 1 << 20
"""Bytes of an environment that are read."""
_KEPT = (
    *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    *("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "XDG_CACHE_HOME", "HOME", "NCCL_RAS_ADDR"),
)
"""What tells where a rank's flight recorder and NCCL's RAS answer."""
_OURS = ("wirespeed.launchers.rank_wrapper", "wirespeed.watch.attach.node")
_IN_A_ROW = ("torchrun", "deepspeed")
_SPAWNED = "from multiprocessing.spawn import spawn_main"
"""In the command line of a process that torch.multiprocessing started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    pid: int
    parent: int
    rank: int
    world_size: int
    """0: not told."""
    host: str
    launcher: str
    """As `node.identity` names it; empty: its environment names none."""
    command: str
    environment: dict[str, str] = field(default_factory=dict)
    """Of `_KEPT`."""


@dataclass(frozen=True, slots=True)
class Selection:
    ranks: tuple[RankProcess, ...]
    """By rank."""
    ended: tuple[int, ...]
    """Ranks that this node should have by their launcher's word, and that have no process."""
    beside: tuple[int, ...]
    """Ranks of this node that were not named."""


def find_ranks(pids: Sequence[int]) -> Selection:
    """UsageError for a pid that is not there, and for ranks of two jobs; CannotMeasure where none of
    their environments can be read."""
    processes = read_processes()
    for pid in pids:
        if pid not in processes:
            raise UsageError(
                f"there is no process {pid}",
                expected="pids of ranks, or of their launcher (torchrun, mpirun, deepspeed)",
                next="pgrep -af python",
            )
    readable = _readable(pids, processes)
    known = {pid: _identity(pid) for pid in readable if not _is_ours(processes[pid])}
    found: dict[int, Identity | None] = {}
    for pid in pids:
        found |= _below(pid, processes, known) or {pid: known.get(pid)}
    return _selection(found, processes, known)


def find_job(match: str = "") -> Selection:
    """The only job of this machine, by the environments that may be read, without what runs this.

    match: only processes with that text in their command line.

    CannotMeasure where there is none, or several.
    """
    processes = read_processes()
    own = {os.getpid(), *(one.pid for one in ancestors(os.getpid(), processes))}
    known = {
        pid: _identity(pid)
        for pid, one in processes.items()
        if pid not in own and not _is_ours(one) and match in " ".join(one.cmdline)
    }
    heads = _heads([pid for pid in processes if known.get(pid)], known)
    found: dict[int, Identity | None] = {pid: known[pid] for pid in heads}
    jobs = {(one.launcher, one.job, one.world_size) for one in found.values() if one}
    if len(jobs) != 1:
        told = ", ".join(f"{size} ranks of {launcher}" for launcher, _, size in sorted(jobs))
        raise CannotMeasure(
            f"there are {len(jobs)} jobs: {told}" if jobs else "there is no rank of any job",
            expected="one, whose environment this user may read",
            next="--match TEXT, which is in the command line of the job's ranks only",
        )
    return _selection(found, processes, known)


def _selection(
    found: Mapping[int, Identity | None],
    processes: Mapping[int, Process],
    known: Mapping[int, Identity | None],
) -> Selection:
    ranks = _numbered(found, processes)
    seen = {one.rank for one in ranks}
    if len(seen) < len(ranks):
        twice = next(one for one in ranks if [x.rank for x in ranks].count(one.rank) > 1)
        raise UsageError(
            f"rank {twice.rank} is there twice: these are processes of two jobs",
            expected="processes of one job",
            next=f"wirespeed attach {min(found)}",
        )
    local = _local(found)
    alive = {one.rank for one in known.values() if one and _is_job(one, found)}
    alive |= _siblings(found, processes)
    return Selection(ranks, tuple(sorted(local - alive)), tuple(sorted(alive - seen)))


def _readable(pids: Sequence[int], processes: Mapping[int, Process]) -> list[int]:
    """These and what is below them; raises where the first of them must not be read."""
    for pid in pids:
        try:
            with Path(f"/proc/{pid}/environ").open("rb") as file:
                file.read(1)
        except PermissionError:
            raise missing_permission(pid) from None
        except OSError:
            raise CannotMeasure(f"process {pid} is gone") from None
    below = [one.pid for pid in pids for one in descendants(pid, processes)]
    return list(dict.fromkeys([*pids, *below]))


def _is_ours(one: Process) -> bool:
    """What starts a rank of ours, and another look: they have a rank's environment, and are none."""
    return any(module in word for word in one.cmdline for module in _OURS)


def _identity(pid: int) -> Identity | None:
    try:
        return detect(environment(pid))
    except WorldError:
        return None


def environment(pid: int) -> dict[str, str]:
    """As it was when the process began; empty where it cannot be read."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            words = file.read(_LARGEST).decode(errors="replace").split("\0")
    except OSError:
        return {}
    return {
        name: value for name, is_set, value in (word.partition("=") for word in words) if is_set
    }


def _below(
    pid: int, processes: Mapping[int, Process], known: Mapping[int, Identity | None]
) -> dict[int, Identity | None]:
    """The ranks that a launcher started; none: it is a rank itself, or no launcher.

    Helpers of a rank (loaders, compilers) have its environment, as has what starts it (a shell).
    """
    own = _key(known.get(pid))
    every = {one.pid: one for one in descendants(pid, processes)}
    heads = _heads([one for one in every if _key(known.get(one)) not in (None, own)], known)
    if heads:
        return {child: known[child] for child in heads}
    if own is not None:
        return {}
    children = [one for one in every.values() if one.ppid == pid]
    return {one.pid: None for one in children if _SPAWNED in " ".join(one.cmdline)}


def _heads(pids: Sequence[int], known: Mapping[int, Identity | None]) -> list[int]:
    """Of each rank the first process that is Python, else its first; parents come before children."""
    chosen: dict[object, int] = {}
    for pid in pids:
        key = _key(known[pid])
        if key not in chosen or (not _is_python(chosen[key]) and _is_python(pid)):
            chosen[key] = pid
    return list(chosen.values())


def _key(one: Identity | None) -> tuple[str, str, int, int] | None:
    return (one.launcher, one.job, one.rank, one.world_size) if one else None


def _is_python(pid: int) -> bool:
    try:
        return "python" in Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return False


def _numbered(
    found: Mapping[int, Identity | None], processes: Mapping[int, Process]
) -> tuple[RankProcess, ...]:
    """By rank; processes whose environment tells none are numbered in the order they are given."""
    host = socket.gethostname()
    ranks = [
        RankProcess(
            pid=pid,
            parent=processes[pid].ppid,
            rank=identity.rank if identity else number,
            world_size=identity.world_size if identity else len(found),
            host=host,
            launcher=identity.launcher if identity else "",
            command=" ".join(processes[pid].cmdline)[:200],
            environment={k: v for k, v in environment(pid).items() if k in _KEPT},
        )
        for number, (pid, identity) in enumerate(found.items())
    ]
    return tuple(sorted(ranks, key=lambda one: one.rank))


def _local(found: Mapping[int, Identity | None]) -> set[int]:
    """Ranks of this node, where its launcher numbers them in a row, which mpirun and srun may not."""
    return {
        one.rank - one.local_rank + local
        for one in found.values()
        if one and one.launcher in _IN_A_ROW
        if one.local_rank is not None and one.local_world_size
        for local in range(one.local_world_size)
    }


def _is_job(one: Identity, found: Mapping[int, Identity | None]) -> bool:
    jobs = {(each.launcher, each.job) for each in found.values() if each}
    return (one.launcher, one.job) in jobs


def _siblings(found: Mapping[int, Identity | None], processes: Mapping[int, Process]) -> set[int]:
    """Ranks of the same job below the same parents, which were not named."""
    parents = {processes[pid].ppid for pid in found} - {0, 1}
    beside: Iterator[Identity | None] = (
        _identity(one.pid) for pid in parents for one in descendants(pid, processes)
    )
    return {one.rank for one in beside if one and _is_job(one, found)}
