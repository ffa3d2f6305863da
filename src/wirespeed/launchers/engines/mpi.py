"""Ranks under somebody's mpirun: Open MPI 4 and 5, MPICH, Intel MPI.

One piece: mpirun under `mpi.guard`. Values of variables never stand on its command line: they are in
its environment, and it is told their names.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import InputError, UsageError
from wirespeed.launchers.base import Engine, EngineOption, Host, Job, Piece, Prepared
from wirespeed.launchers.frames import padded
from wirespeed.launchers.mpi.find import (
    FLAVOURS,
    first_of_allocation,
    flavour_of,
    mpirun_path,
    with_own_folder,
)
from wirespeed.launchers.mpi.guard import guarded
from wirespeed.launchers.mpi.meeting import meeting_of
from wirespeed.launchers.mpi.nodes import Nodes, look, slots_of
from wirespeed.launchers.mpi.words import Flavour, Launch, passes
from wirespeed.launchers.rank_wrapper import MASTER, SLOTS, wrapped
from wirespeed.records import Choice

__all__ = ["ENGINE"]

_NAMES = "variables"
"""Key of the prepared job's options with the names of all variables for ranks: a written script
names those, too, whose values it does not hold."""
_SOCKET_NAMES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_ROOT = (
    ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"),
)


class _Mpi:
    name = "mpi"
    summary = "mpirun of Open MPI, MPICH or Intel MPI"
    options: tuple[EngineOption, ...] = (
        EngineOption("mpirun", "path of mpirun (default: the first on PATH)"),
        EngineOption("flavour", f"its make, if not recognised: {', '.join(FLAVOURS)}"),
        EngineOption("map-by", "slot (fill a node first), node (in turn) or ppr:N:node"),
        EngineOption("bind-to", "what a rank is bound to, in mpirun's words (default: none)"),
        EngineOption("oversubscribe", "more ranks than slots", flag=True),
        EngineOption("allow-root", "let Open MPI run as root", flag=True),
        EngineOption("ssh-config", "ssh configuration for reaching the nodes"),
    )

    def prepare(self, job: Job) -> Prepared:
        program = mpirun_path(job.options.get("mpirun", ""))
        flavour = _flavour(job.options.get("flavour", ""), program)
        _refuse_root(flavour, job.options)
        _refuse_unknown_nodes(job)
        options = {**job.options, **_settled(job, program, flavour)}
        asked = replace(job, python=job.python or sys.executable, options=options)
        self.pieces(asked, Path())  # what mpirun cannot be told is refused before anybody is asked
        nodes = look(asked, asked.python, options.get("ssh-config", ""))
        hosts = tuple(h for h in slots_of(asked, nodes.facts) if h.name not in nodes.troubled)
        if job.hosts and not hosts:
            return Prepared(job=replace(asked, hosts=()), findings=nodes.findings)
        return _prepared(asked, hosts, nodes, flavour)

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        flavour = FLAVOURS[job.options["flavour"]]
        program = job.options["mpirun"]
        launch = _launch(job, str(scratch / "hostfile"))
        environment = padded(job.environment)
        rank = wrapped(job.python, job.command, encoded=not passes(job.command, flavour))
        own = with_own_folder(program) if flavour.name == "intel" else {}
        return [
            Piece(
                name="mpirun",
                command=tuple(guarded(sys.executable, [program, *flavour.words(launch), *rank])),
                environment={**own, **flavour.environment(launch), **environment},
                files={launch.hostfile: flavour.hostfile(launch)} if job.hosts else {},
            )
        ]


def _prepared(job: Job, hosts: tuple[Host, ...], nodes: Nodes, flavour: Flavour) -> Prepared:
    """The far side is known: where the ranks meet is said in their environment."""
    at = meeting_of(job, hosts, nodes.facts)
    environment = {MASTER: f"{at.address}:{at.port}", **_slots(job, hosts), **job.environment}
    choices = [
        Choice("mpirun", job.options["mpirun"], f"recognised as {flavour.title}"),
        Choice("MASTER_ADDR", at.address, at.why),
        Choice("MASTER_PORT", str(at.port), at.why_port),
    ]
    if at.interface:
        environment = {**dict.fromkeys(_SOCKET_NAMES, at.interface), **environment}
        choices.append(Choice("interface of the ranks", at.interface, at.why_interface))
    if "bind-to" not in job.options:
        choices.append(Choice("bind-to", "none", "a rank has several threads"))
    ready = replace(
        job,
        hosts=hosts,
        ranks=None if nodes.troubled else job.ranks,
        environment=environment,
        options={**job.options, _NAMES: " ".join(environment)},
    )
    return Prepared(job=ready, findings=nodes.findings, choices=tuple(choices))


def _slots(job: Job, hosts: tuple[Host, ...]) -> dict[str, str]:
    """MPI tells no rank its node; where the user maps nothing, ranks fill the nodes in order."""
    if not hosts or "map-by" in job.options or len({one.name for one in hosts}) < len(hosts):
        return {}
    return {SLOTS: ",".join(str(one.slots or 1) for one in hosts)}


def _launch(job: Job, hostfile: str) -> Launch:
    options = job.options
    config = options.get("ssh-config", "")
    bound = f"ConnectTimeout={max(5, int(job.startup_s / 4))}"
    return Launch(
        size=job.size,
        hosts=job.hosts,
        hostfile=hostfile,
        names=tuple({*job.environment, *options.get(_NAMES, "").split()}),
        map_by=options.get("map-by", ""),
        bind_to=options.get("bind-to", "none"),
        oversubscribe="oversubscribe" in options,
        allow_root="allow-root" in options,
        interface=job.interface,
        ssh=("-F", config, "-oBatchMode=yes", f"-o{bound}") if config else (),
    )


def _flavour(asked: str, program: str) -> Flavour:
    if asked and asked not in FLAVOURS:
        raise UsageError(f"--with flavour={asked}", expected=", ".join(FLAVOURS))
    return FLAVOURS[asked] if asked else flavour_of(program)


def _settled(job: Job, program: str, flavour: Flavour) -> dict[str, str]:
    """Options as `pieces` needs them."""
    settled = {"mpirun": program, "flavour": flavour.name}
    if config := job.options.get("ssh-config", ""):
        settled["ssh-config"] = _readable(config)
    each = job.ranks_per_node
    if "map-by" not in job.options and not job.hosts and each and first_of_allocation(os.environ):
        settled["map-by"] = f"ppr:{each}:node"
    return settled


def _readable(path: str) -> str:
    full = str(Path(path).expanduser().absolute())
    if not os.access(full, os.R_OK):
        raise InputError(f"--with ssh-config={path} cannot be read", expected="an ssh_config file")
    return full


def _refuse_root(flavour: Flavour, options: Mapping[str, str]) -> None:
    """Open MPI's own answer comes only when it runs, and is long."""
    allowed = any(all(os.environ.get(name) for name in pair) for pair in _ROOT)
    if os.geteuid() or not flavour.minds_root or "allow-root" in options or allowed:
        return
    raise UsageError(
        f"{flavour.title} refuses to run as root",
        expected="a user's account; in a container root may be all there is",
        next="--with allow-root",
    )


def _refuse_unknown_nodes(job: Job) -> None:
    if not job.hosts and (job.nodes or 1) > 1 and first_of_allocation(os.environ) is None:
        raise UsageError(
            f"{job.nodes} nodes, and nobody says which: this is no scheduler's job",
            expected="--hosts a,b,… or a hostfile, or a job of Slurm, PBS, LSF or Grid Engine",
        )


ENGINE: Engine = _Mpi()
