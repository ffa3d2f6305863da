"""Who else measures on this machine: other runs, and ranks that should be of one world with us.

`Presence` informs, and keeps nobody out, whoever started the other run. `refuse_separate_worlds` is
against several worlds of one rank each, started by mistake where one world was meant.

Each run has one socket a node in the abstract name space of the network namespace, which is what a
node is here; the kernel lists the names for everybody and forgets them with the process. Who comes
later sends those who are there a word, which waits in their sockets until they ask. A name is text of
somebody else: it is matched, shown, and believed no further.
"""

import hashlib
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path

from wirespeed.errors import WorldError
from wirespeed.node.identity import Identity
from wirespeed.process import Process, ancestors, descendants, read_processes

VARIABLE = "WIRESPEED_NEIGHBOURS"
"""Runs that have another word here do not see each other (tests)."""
_NAME = re.compile(
    r"wirespeed/([0-9a-f]{8})/(?P<mark>[0-9a-f]{16})/(?P<pid>\d{1,10})/(?P<since>\d{1,11})/"
    r"(?P<command>[a-z]{1,16})"
)
_LISTED = Path("/proc/net/unix")
_MOST_BYTES = 16 << 20
_MOST = 256


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another run here, as it calls itself."""

    mark: str
    pid: int
    since: int
    """Seconds since the epoch."""
    command: str


class Presence:
    """This run is here, until `leave`. Where the system has no such sockets nobody is seen."""

    def __init__(self, command: str, mark: str, environ: Mapping[str, str] | None = None) -> None:
        """mark: 16 hexadecimal digits, the same for all processes of the run and for no other's."""
        variables = os.environ if environ is None else environ
        self._scope = hashlib.sha256(variables.get(VARIABLE, "").encode()).hexdigest()[:8]
        self._mark = mark
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        name = f"wirespeed/{self._scope}/{mark}/{os.getpid()}/{time.time():.0f}/{command}"
        with suppress(OSError):
            self._socket.bind(f"\0{name}")
        self._seen: dict[str, Neighbour] = {}
        for other in _listed():
            if self._take(other):
                with suppress(OSError):  # it has just gone, or has been told by many
                    self._socket.sendto(b"", f"\0{other}")

    def others(self) -> tuple[Neighbour, ...]:
        """The runs that were here when this one came, and that have come since; oldest first."""
        for _ in range(_MOST):
            try:
                _, name = self._socket.recvfrom(1)
            except OSError:
                break
            # The kernel says who sent it: the name that this socket is bound to.
            if isinstance(name, bytes):
                self._take(name[1:].decode(errors="replace"))
        return tuple(sorted(self._seen.values(), key=lambda one: (one.since, one.mark)))

    def leave(self) -> None:
        self._socket.close()

    def _take(self, name: str) -> bool:
        """Whether that is another run of ours."""
        found = _NAME.fullmatch(name)
        if found is None or found[1] != self._scope or found["mark"] == self._mark:
            return False
        if len(self._seen) < _MOST:
            one = Neighbour(found["mark"], int(found["pid"]), int(found["since"]), found["command"])
            self._seen.setdefault(one.mark, one)
        return True


def _listed() -> list[str]:
    """Names of the abstract sockets in this network namespace; none where they cannot be read."""
    try:
        with _LISTED.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    names = (line.rpartition(" ")[2] for line in lines)
    return [name[1:] for name in names if name.startswith("@wirespeed/")]


_MPI = frozenset(
    [
        "mpirun",
        "mpiexec",
        "mpiexec.hydra",
        "hydra_pmi_proxy",
        "orterun",
        "prterun",
        "prun",
        "orted",
        "prted",
    ]
)
"""Open MPI 4 and 5, MPICH's Hydra and Intel MPI: what they start carries a rank."""

_STEP = re.compile(r"slurmstepd: \[\d+(?:[+_]\d+)?\.(\w+)\]")
"""slurmstepd's title: `[7.0]` for srun's tasks, `[7.batch]`, `[7.interactive]`, `[7.extern]`."""

_BETWEEN_MPI = "mpirun and wirespeed (env -i, -u, ssh, sudo)"
_BETWEEN_SLURM = "srun and wirespeed (env -i, srun --export=NONE)"
_EXPECTED_OF_MPI = (
    "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI), or PMI_RANK and PMI_SIZE "
    "(MPICH, Intel MPI), as mpirun sets them"
)
_EXPECTED_OF_SLURM = "SLURM_PROCID, SLURM_STEP_ID and SLURM_STEP_NUM_TASKS, as srun sets them"
_PROGRAM = re.compile(r"(?:^|/)(?:python[\d.]*|env|sh|bash|torchrun)$|wirespeed")
"""Where mpirun's own options end for certain, so that our `-n` is not taken for its `-n`."""


def refuse_separate_worlds(
    environ: Mapping[str, str],
    identity: Identity | None,
    processes: Mapping[int, Process] | None = None,
    pid: int | None = None,
) -> None:
    """Raise WorldError when this process is one of several that should have been one world.

    `mpirun -n 8` of a build that does not match, or of a wrapper that drops the variables, starts eight
    processes that each believe to be alone; each prints its own, far too good, result (nccl-tests
    issues 27, 109 and 213). We refuse to measure there. Two equal commands started on purpose from one
    shell are no mistake, so that without an identity only a launcher among the ancestors counts, and
    equal siblings count only for processes that were told to be rank 0 of 1.

    `processes` and `pid` are this machine's and our own unless given.
    """
    if identity is not None and identity.world_size > 1 and identity.launcher != "slurm":
        return
    table = read_processes() if processes is None else processes
    me = table.get(os.getpid() if pid is None else pid)
    if me is None:
        return
    launcher = next((one for one in ancestors(me.pid, table) if _gives_ranks(one, environ)), None)
    if launcher is not None:
        _refuse_lost_mapping(launcher, identity, me, table)
    if identity is not None and identity.world_size == 1:
        _refuse_siblings(identity, me, table)


def _gives_ranks(process: Process, environ: Mapping[str, str]) -> bool:
    """Whether it gives every process a rank: batch scripts and shells of Slurm are worked in by hand."""
    if process.name == "slurmstepd":
        title = _STEP.match(" ".join(process.cmdline))
        return title is not None and title[1].isdecimal() and "SLURM_PTY_PORT" not in environ
    # The name is cut at 15 characters, and a script that is the launcher carries python's name.
    names = {process.name, *(word.rpartition("/")[2] for word in process.cmdline[:1])}
    return not names.isdisjoint(_MPI)


def _refuse_lost_mapping(
    launcher: Process, identity: Identity | None, me: Process, table: Mapping[int, Process]
) -> None:
    count = max(_started(launcher.cmdline) or 0, _twins(me, launcher, table))
    if not _is_lost(launcher, identity, count):
        return
    told = "no rank"
    if identity is not None:
        told = f"rank {identity.rank} of {identity.world_size} by {identity.launcher}"
    who = f"the {count} processes" if count > 1 else "its processes"
    called, between, expected = launcher.name, _BETWEEN_MPI, _EXPECTED_OF_MPI
    if launcher.name == "slurmstepd":
        called, between, expected = "srun's slurmstepd", _BETWEEN_SLURM, _EXPECTED_OF_SLURM
    raise WorldError(
        f"{called} (pid {launcher.pid}) started this process, but what this process was told is "
        f"{told}: {who} would not be one world, each would measure alone",
        expected=expected,
        next=f"do not clear the environment between {between}; or start the ranks with "
        f"torchrun --nproc-per-node {count if count > 1 else 'N'} -m wirespeed …",
    )


def _is_lost(launcher: Process, identity: Identity | None, count: int) -> bool:
    if identity is None:
        return _started(launcher.cmdline) != 1 or count > 1
    if identity.launcher == "slurm":
        # An mpirun's daemon is a Slurm task; what it starts inherits that task's SLURM_PROCID.
        return launcher.name != "slurmstepd"
    return identity.launcher in ("env", "torchrun", "deepspeed") and count > 1


def _twins(me: Process, launcher: Process, table: Mapping[int, Process]) -> int:
    """Processes below `launcher` that run our own command line, ourselves included."""
    above = {process.pid for process in ancestors(me.pid, table)}
    below = descendants(launcher.pid, table)
    return sum(p.cmdline == me.cmdline and p.pid not in above for p in below)


def _refuse_siblings(identity: Identity, me: Process, table: Mapping[int, Process]) -> None:
    if me.ppid <= 1:
        return  # orphans of any origin
    equal = sum(p.ppid == me.ppid and p.cmdline == me.cmdline for p in table.values())
    if equal > 1:
        raise WorldError(
            f"{equal} processes with one parent run this command, and this one was told by "
            f"{identity.launcher} that it is rank 0 of 1: they would be {equal} worlds, not one",
            expected=f"one world: WORLD_SIZE={equal} and RANK 0 to {equal - 1}, "
            "or one process that starts its own ranks",
            next=f"torchrun --nproc-per-node {equal} -m wirespeed …, "
            f"or env -u RANK -u WORLD_SIZE wirespeed … --ranks {equal}",
        )


def _started(cmdline: Sequence[str]) -> int | None:
    """Processes that an mpirun was asked for with `-n`; None when it does not say."""
    options = takewhile(lambda word: not _PROGRAM.search(word), cmdline[1:])
    for flag, value in pairwise(options):
        if flag in ("-n", "-np", "--n", "--np", "-c") and value.isdecimal():
            return int(value)
    return None
