"""Who this process is: rank, world and address as the launcher's environment tells, and its node."""

import re
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from wirespeed.errors import WorldError


def own_seat() -> tuple[str, int]:
    """Host name and network namespace (0: not known): two containers may carry one name."""
    try:
        space = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        space = 0
    return socket.gethostname(), space


def distinct_names(seats: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Node names in the order of `seats`: `name`, and `name#2` for another namespace of that name."""
    names: dict[tuple[str, int], str] = {}
    seen: Counter[str] = Counter()
    for seat in seats:
        if seat not in names:
            seen[seat[0]] += 1
            names[seat] = seat[0] if seen[seat[0]] == 1 else f"{seat[0]}#{seen[seat[0]]}"
    return tuple(names[seat] for seat in seats)


Environ = Mapping[str, str]

_MAX_NORMAL_STEP = 0xFFFFFFF0
"""Steps above are not srun's: 0xfffffffa interactive, 0xfffffffb batch, 0xfffffffc extern
(SLURM_*_STEP in Slurm's slurm.h; SLURM_STEP_ID=4294967290 in a salloc shell was seen on 22.05)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One rank's place in its world, with the reason why we believe it."""

    rank: int
    world_size: int
    local_rank: int | None
    """None where the launcher does not say; `local_from_hosts` tells once the ranks have met."""
    local_world_size: int | None
    launcher: str
    """A key of `LAUNCHERS`."""
    reason: str
    node_rank: int | None = None
    nodes: int | None = None
    """Nodes of the world, where the launcher says."""
    master_addr: str | None = None
    """MASTER_ADDR, else the Slurm step's first node, else 127.0.0.1 where all ranks are here."""
    master_port: int | None = None
    """MASTER_PORT. Under torchrun its agent already serves a store there: join it as a client."""
    job: str = ""
    """What the launcher calls this launch, the same on every rank; empty where it does not say."""
    variables: tuple[str, ...] = ()
    """The variables that rank and world size were read from."""


class _Names(NamedTuple):
    """The variables of one launcher; of several spellings the first that is set counts."""

    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    node_rank: str = ""
    nodes: str = ""


_TORCHRUN = _Names(
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
)
_DEEPSPEED = _Names(*("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"))
_OPENMPI = _Names(
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
_MPICH = _Names(
    *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID PMI_LOCAL_RANK", "MPI_LOCALNRANKS PMI_LOCAL_SIZE")
)
_SLURM = _Names(
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS SLURM_NTASKS", "SLURM_LOCALID", ""),
    *("SLURM_NODEID", "SLURM_STEP_NUM_NODES SLURM_NNODES"),
)
_ENV = _Names("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")


def is_slurm_task(environ: Environ) -> bool:
    """Whether srun started us as a task: not a batch script, not a salloc or `srun --pty` shell.

    Seen on Slurm 22.05: a batch script has SLURM_PROCID=0 and SLURM_NTASKS, but no SLURM_STEP_ID;
    salloc's interactive step has SLURM_STEP_ID=4294967290; both are places to work in, not ranks.
    A `srun --pty` shell is a normal step of one task with SLURM_PTY_PORT, which tasks that are
    started from that shell inherit: hence the count.
    """
    step = _step(environ)
    if not step.isdecimal() or int(step) >= _MAX_NORMAL_STEP or "SLURM_PROCID" not in environ:
        return False
    return "SLURM_PTY_PORT" not in environ or environ.get("SLURM_STEP_NUM_TASKS") != "1"


def _step(environ: Environ) -> str:
    return environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))


# One function a launcher: its claim, or None when it did not start us.


def _torchrun(environ: Environ) -> Identity | None:
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    claim = _read(environ, _TORCHRUN, "torchrun", "torchrun sets TORCHELASTIC_RUN_ID")
    return replace(claim, job=environ["TORCHELASTIC_RUN_ID"])


def _deepspeed(environ: Environ) -> Identity | None:
    marks = ("RANK", "CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE")
    if "TORCHELASTIC_RUN_ID" in environ or not all(mark in environ for mark in marks):
        return None
    return _read(environ, _DEEPSPEED, "deepspeed", "DeepSpeed's launcher sets CROSS_RANK")


def _openmpi(environ: Environ) -> Identity | None:
    if not _any(environ, _OPENMPI):
        return None
    claim = _read(environ, _OPENMPI, "openmpi", "Open MPI's mpirun sets OMPI_COMM_WORLD_RANK")
    return replace(claim, job=environ.get("PMIX_NAMESPACE", ""))


def _mpich(environ: Environ) -> Identity | None:
    if not _any(environ, _MPICH):
        return None
    claim = _read(environ, _MPICH, "mpich", "Hydra (MPICH, Intel MPI) sets PMI_RANK")
    slurm = _slurm(environ)
    if slurm and (slurm.rank, slurm.world_size) == (claim.rank, claim.world_size):
        return None  # srun --mpi=pmi2: Slurm speaking twice
    return replace(claim, job=environ.get("PMI_JOBID", ""))


def _slurm(environ: Environ) -> Identity | None:
    if not is_slurm_task(environ):
        return None
    claim = _read(environ, _SLURM, "slurm", "srun sets SLURM_PROCID and SLURM_STEP_ID")
    return replace(
        claim,
        job=f"{environ.get('SLURM_JOB_ID', '')}.{_step(environ)}",
        local_world_size=_slurm_local_size(environ, claim.node_rank),
        master_addr=_first_host(environ.get("SLURM_STEP_NODELIST", "")),
    )


def _env(environ: Environ) -> Identity | None:
    """RANK and WORLD_SIZE that no other launcher accounts for."""
    if not _any(environ, _ENV) or _torchrun(environ) or _deepspeed(environ):
        return None
    complete = "RANK" in environ and "WORLD_SIZE" in environ
    if not complete and (_openmpi(environ) or _mpich(environ) or _slurm(environ)):
        return None  # half of a mapping beside a launcher that says everything
    return _read(environ, _ENV, "env", "RANK and WORLD_SIZE are set")


LAUNCHERS: dict[str, Callable[[Environ], Identity | None]] = {
    "torchrun": _torchrun,
    "deepspeed": _deepspeed,
    "openmpi": _openmpi,
    "mpich": _mpich,
    "slurm": _slurm,
    "env": _env,
}
"""Every launcher that we know, the innermost first (a torchrun runs inside an srun task)."""


# Reading and validating.


def _read(environ: Environ, names: _Names, launcher: str, reason: str) -> Identity:
    size_name, size = _number(environ, names.size, least=1)
    rank_name, rank = _number(environ, names.rank, below=(size_name, size))
    local_size = _number_in(environ, names.local_size, least=1)
    bound = _which(environ, names.local_size) or size_name
    if local_size is not None and local_size > size:
        raise _bad(f"{bound}={local_size}", f"at most {size_name}={size}", bound)
    return Identity(
        rank=rank,
        world_size=size,
        local_rank=_number_in(environ, names.local_rank, below=(bound, local_size or size)),
        local_world_size=local_size,
        launcher=launcher,
        reason=reason,
        node_rank=_number_in(environ, names.node_rank),
        nodes=_number_in(environ, names.nodes, least=1),
        variables=(rank_name, size_name),
    )


def _number(
    environ: Environ, names: str, *, least: int = 0, below: tuple[str, int] | None = None
) -> tuple[str, int]:
    """Name and value of the first that is set; WorldError when none is, or it is no such number."""
    name = _which(environ, names)
    if name is None:
        beside = f", beside {below[0]}={below[1]}" if below else ""
        first = names.split()[0]
        raise _bad(f"{first} is not set", f"a whole number{beside}", first)
    text = environ[name].strip()
    if not (text.isascii() and text.isdecimal()):
        raise _bad(f"{name}={environ[name]!r}", f"a whole number from {least}", name)
    value = int(text)
    if value < least:
        raise _bad(f"{name}={value}", f"at least {least}", name)
    if below is not None and value >= below[1]:
        raise _bad(f"{name}={value}", f"0 to {below[1] - 1}, as {below[0]}={below[1]}", name)
    return name, value


def _number_in(
    environ: Environ, names: str, *, least: int = 0, below: tuple[str, int] | None = None
) -> int | None:
    if _which(environ, names) is None:
        return None
    return _number(environ, names, least=least, below=below)[1]


def _which(environ: Environ, names: str) -> str | None:
    return next((name for name in names.split() if environ.get(name, "").strip()), None)


def _any(environ: Environ, names: _Names) -> bool:
    return _which(environ, f"{names.rank} {names.size}") is not None


def _bad(saw: str, expected: str, name: str) -> WorldError:
    return WorldError(
        f"this process was told a rank that cannot be: {saw}",
        expected=expected,
        next=f"correct what sets {name}, or forget the launcher: "
        "env -u RANK -u WORLD_SIZE -u LOCAL_RANK wirespeed …",
    )


def _first_host(hostlist: str) -> str | None:
    """`node-3` of Slurm's `node-[3-5,7],other-[1-2]`; None for an empty list."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", hostlist)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0]) if first else None


def _slurm_local_size(environ: Environ, node_rank: int | None) -> int | None:
    """Tasks on our node, from SLURM_STEP_TASKS_PER_NODE such as `4(x2),3`."""
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    return counts[node_rank] if node_rank is not None and node_rank < len(counts) else None


_NAMES = {"openmpi": "Open MPI", "mpich": "Hydra (MPICH, Intel MPI)", "slurm": "Slurm"}


def detect(environ: Mapping[str, str]) -> Identity | None:
    """The rank that `environ` makes this process, or None when no launcher speaks.

    Raises WorldError for values that are no rank (not a number, outside the world, a partner
    missing) and for two launchers that contradict each other.
    """
    claims = _without_outermost([claim for find in LAUNCHERS.values() if (claim := find(environ))])
    if not claims:
        return None
    identity = reduce(_settle, claims)
    here = identity.local_world_size == identity.world_size
    address = environ.get("MASTER_ADDR", "").strip() or identity.master_addr
    return replace(
        identity,
        master_addr=address or ("127.0.0.1" if here else None),
        master_port=_number_in(
            environ, "MASTER_PORT", least=1, below=("the number of ports", 65536)
        ),
    )


def local_from_hosts(hosts: Sequence[str], rank: int) -> tuple[int, int]:
    """Local rank and local world size of `rank`, from the host name of every rank in order."""
    here = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    return here.index(rank), len(here)


def port_of(job: str) -> int:
    """A port in 10000 … 29999 that every rank derives alike from the launch's name.

    Below Linux's ephemeral ports (32768 and up), so that no outgoing connection sits on it.
    """
    return 10000 + zlib.crc32(job.encode()) % 20000


# Two launchers.


def _without_outermost(claims: list[Identity]) -> list[Identity]:
    """Without Slurm's claim where there is one of mpirun, which starts its daemons as a Slurm step.

    Its ranks inherit the daemon's SLURM_PROCID, and on the first node there is no daemon at all.
    """
    mpi = any(claim.launcher in ("openmpi", "mpich") for claim in claims)
    return [claim for claim in claims if not (mpi and claim.launcher == "slurm")]


def _settle(inner: Identity, outer: Identity) -> Identity:
    """The one of two claims that holds; WorldError when it cannot be told."""
    if inner.launcher in ("torchrun", "deepspeed"):
        return _settle_agent(inner, outer)
    if (inner.rank, inner.world_size) == (outer.rank, outer.world_size):
        if inner.local_rank is None:
            local = outer.local_rank, outer.local_world_size
            inner = replace(inner, local_rank=local[0], local_world_size=local[1])
        return _because(inner, f"{_told(outer)} agrees")
    if outer.launcher == "env" and inner.world_size == 1:
        return _because(outer, f"{_told(inner)} is one process that started this world inside it")
    raise _contradiction(inner, outer)


def _settle_agent(agent: Identity, outer: Identity) -> Identity:
    """torchrun or DeepSpeed inside another launcher: that one starts one agent a node.

    All ranks of an agent see the same outer rank, so the two never agree rank by rank; what must
    agree is the number of agents. If it does not (`mpirun -n 2 torchrun --nnodes 1`), every agent
    has made a world of its own.
    """
    if outer.world_size in (1, agent.nodes):
        why = f"the {outer.world_size} of {_told(outer)} is the number of {agent.launcher} agents"
        return _because(agent, why)
    raise _contradiction(agent, outer)


def _contradiction(inner: Identity, outer: Identity) -> WorldError:
    nodes = "" if inner.nodes is None else f" on {inner.nodes} node(s)"
    return WorldError(
        f"two launchers contradict each other: {_told(inner)}{nodes}, {_told(outer)}",
        expected="one world, or one agent of torchrun or DeepSpeed per task of the outer launcher",
        next=f"believe the first: env {_unset(outer)} wirespeed …; "
        f"the second: env {_unset(inner)} wirespeed …",
    )


def _told(claim: Identity) -> str:
    name = _NAMES.get(claim.launcher, claim.launcher)
    if claim.launcher == "env":
        return f"RANK={claim.rank} WORLD_SIZE={claim.world_size}"
    return f"{name}'s rank {claim.rank} of {claim.world_size} ({', '.join(claim.variables)})"


def _unset(claim: Identity) -> str:
    marks = {"torchrun": ("TORCHELASTIC_RUN_ID",), "deepspeed": ("CROSS_RANK", "CROSS_SIZE")}
    return " ".join(f"-u {name}" for name in claim.variables + marks.get(claim.launcher, ()))


def _because(claim: Identity, why: str) -> Identity:
    return replace(claim, reason=f"{claim.reason}; {why}")
