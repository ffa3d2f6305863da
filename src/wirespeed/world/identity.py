"""Which rank of which world this process is: the launchers' claims, settled."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wirespeed.errors import WorldError
from wirespeed.world.claims import Identity, claims_of, number_in

__all__ = ["Identity", "detect", "local_from_hosts", "port_of"]

_NAMES = {"openmpi": "Open MPI", "mpich": "Hydra (MPICH, Intel MPI)", "slurm": "Slurm"}


def detect(environ: Mapping[str, str]) -> Identity | None:
    """The rank that `environ` makes this process, or None when no launcher speaks.

    Raises WorldError for values that are no rank (not a number, outside the world, a partner
    missing) and for two launchers that contradict each other.
    """
    claims = _without_outermost(claims_of(environ))
    if not claims:
        return None
    identity = claims[0]
    for other in claims[1:]:
        identity = _settle(identity, other)
    return _with_master(identity, environ)


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
    if _same(inner, outer):
        return _because(_filled(inner, outer), f"{_told(outer)} agrees")
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


def _same(one: Identity, other: Identity) -> bool:
    return (one.rank, one.world_size) == (other.rank, other.world_size)


def _because(claim: Identity, why: str) -> Identity:
    return replace(claim, reason=f"{claim.reason}; {why}")


def _filled(claim: Identity, other: Identity) -> Identity:
    if claim.local_rank is not None:
        return claim
    return replace(claim, local_rank=other.local_rank, local_world_size=other.local_world_size)


def _with_master(identity: Identity, environ: Mapping[str, str]) -> Identity:
    here = identity.local_world_size == identity.world_size
    derived = identity.master_addr or ("127.0.0.1" if here else None)
    port = number_in(environ, ("MASTER_PORT",), least=1, below=("the number of ports", 65536))
    return replace(
        identity,
        master_addr=environ.get("MASTER_ADDR", "").strip() or derived,
        master_port=port,
    )
