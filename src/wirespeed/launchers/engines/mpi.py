"""Ranks under somebody's mpirun: Open MPI 4 and 5, MPICH, Intel MPI.

One piece: mpirun under `mpi.guard`. Values of variables never stand on its command line: they are in
its environment, and it is told their names.

The nodes that mpirun shall run on: asked before it starts, since its own words come late and long.

They are asked as the engine `ssh` does it, this machine without ssh. Where mpirun is set to another
way of reaching nodes than ssh, nobody is asked.

Which mpirun there is, of which make, and what it would run on without being told hosts.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.errors import CannotMeasure, InputError, UsageError, WirespeedError
from wirespeed.launchers.base import Engine, Host, Job, Piece, Prepared
from wirespeed.launchers.engines.ssh import SshAsking
from wirespeed.launchers.mpi.command_line import FIVE, FOUR, INTEL, MPICH, Flavour, Launch, passes
from wirespeed.launchers.mpi.guard import guarded
from wirespeed.launchers.node.probe import Facts, differing, with_slots
from wirespeed.launchers.node.snapshot import interface_variables
from wirespeed.launchers.rank_wrapper import MASTER, SLOTS, wrapped
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice, Finding
from wirespeed.node.identity import port_of
from wirespeed.process import is_free
from wirespeed.process.frames import padded

FLAVOURS: dict[str, Flavour] = {one.name: one for one in (FIVE, FOUR, MPICH, INTEL)}
_VERSION_S = 30.0
_INSTALL = "pip install 'wirespeed[mpi]', or apt-get install openmpi-bin, or pip install mpich"
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "LOADL_HOSTFILE")
"""A scheduler's job that mpirun asks for its nodes."""


def mpirun_path(asked: str) -> str:
    """Absolute path: what was asked for, else from PATH, else beside this Python.

    An absolute path makes Open MPI look for its daemon at the same place on the other nodes.
    """
    beside = str(Path(sys.executable).parent)
    if asked:
        found = shutil.which(Path(asked).expanduser())
        if found is None:
            raise UsageError(f"--with mpirun={asked}: no such program", expected="a path to mpirun")
    else:
        found = shutil.which("mpirun") or shutil.which("mpirun", path=beside)
        if found is None:
            raise CannotMeasure("there is no mpirun here", expected="mpirun on PATH", next=_INSTALL)
    return str(Path(found).absolute())


def flavour_of(program: str) -> Flavour:
    """What `mpirun --version` says; CannotMeasure where that is nothing we know."""
    try:
        done = subprocess.run(
            [program, "--version"],
            env={**os.environ, **with_own_folder(program)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotMeasure(f"{program} --version: {error}", expected="its version") from error
    said = done.stdout + done.stderr
    for flavour in FLAVOURS.values():
        if flavour.recognises(said):
            return flavour
    raise make_error(
        "unknown_mpirun",
        program=program,
        said=" ".join(said.split())[:200],
        flavours="|".join(FLAVOURS),
    )


def with_own_folder(program: str) -> dict[str, str]:
    """PATH with the program's own folder first: Intel's mpirun is a script that searches there."""
    folder, path = str(Path(program).parent), os.environ.get("PATH", os.defpath)
    return {} if path.split(os.pathsep)[0] == folder else {"PATH": f"{folder}{os.pathsep}{path}"}


def first_of_allocation(environ: Mapping[str, str]) -> str | None:
    """The first node of the scheduler's job that we are in; None where there is none.

    Where the list cannot be read, the node that runs the script is the first one.
    """
    if not any(environ.get(name) for name in _ALLOCATIONS):
        return None
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    if not nodes and (path := environ.get("PBS_NODEFILE")):
        with suppress(OSError):
            nodes = Path(path).read_text().partition("\n")[0]
    # `node-[3-5,7],other-[1-2]`: the first is node-3.
    first = re.match(r"(?:[^,\[\s]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0]) if first else os.uname().nodename


_OTHER_WAYS = (
    "OMPI_MCA_plm_rsh_agent",
    "OMPI_MCA_plm",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm",
    "HYDRA_LAUNCHER",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
"""Settings of mpirun for reaching nodes, such as /etc/mpi/kubexec.sh of Kubernetes' MPI operator."""


def asked_nodes(job: Job) -> tuple[dict[str, Facts], tuple[Finding, ...], tuple[str, ...]]:
    """What each usable host of the job tells, what is wrong with others, and notes of a dry run.

    Nobody is asked where they are all here, or not reached by ssh.
    """
    if all(is_here(host.name) for host in job.hosts) or not _reached_by_ssh():
        return {}, (), ()
    asking = SshAsking(job.options.get("ssh-config", ""), [job.python], job.startup_s)
    good, findings = asking.usable(job, here=is_here)
    return good, (*findings, *differing(good)), asking.notes("it gets 1 rank unless told")


def slots_of(job: Job, facts: Mapping[str, Facts]) -> tuple[Host, ...]:
    """The hosts with the number of ranks that each may have; UsageError where that is too few."""
    if not job.hosts:
        return ()
    over = "oversubscribe" in job.options
    if not over and job.options.get("map-by", "slot") == "slot":
        try:
            return tuple(with_slots(job, facts))
        except UsageError as error:
            raise _too_few(job, error.saw) from error
    each = job.ranks_per_node or -(-(job.ranks or 1) // len(job.hosts))
    hosts = tuple(Host(host.name, host.slots or each) for host in job.hosts)
    room = sum(host.slots or 1 for host in hosts)
    if job.size > room and not over:
        raise _too_few(job, f"{job.size} ranks do not fit: the nodes take {room}")
    return hosts


def _too_few(job: Job, saw: str) -> WirespeedError:
    each = -(-job.size // len(job.hosts))
    names = ",".join(f"{host.name}:{each}" for host in job.hosts[:3])
    more = ",…" if len(job.hosts) > 3 else ""
    return make_error("too_few_slots", saw=saw, hosts=f"{names}{more}")


def is_here(name: str) -> bool:
    """Whether mpirun takes that host for this machine."""
    own = os.uname().nodename
    return name == "localhost" or name.startswith("127.") or name in (own, own.partition(".")[0])


def _reached_by_ssh() -> bool:
    values = [os.environ.get(name, "") for name in _OTHER_WAYS]
    scheduled = any(os.environ.get(name) for name in ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID"))
    return not scheduled and all(value.split(" ")[0] in ("", "ssh", "rsh") for value in values)


_TRIES = 20


@dataclass(frozen=True, slots=True)
class Rendezvous:
    address: str
    port: int
    interface: str
    """Of all nodes; empty: it differs, or is not known."""
    choices: tuple[Choice, ...]


def rendezvous_of(job: Job, hosts: Sequence[Host], facts: Mapping[str, Facts]) -> Rendezvous:
    """The first host has rank 0, since mpirun fills its hosts in order."""
    address, why = _address(job, hosts, facts)
    port, why_port = _port(job.token, address, facts.get(hosts[0].name) if hosts else None)
    choices = [Choice("MASTER_ADDR", address, why), Choice("MASTER_PORT", str(port), why_port)]
    found = {one.interface_to(address) for one in facts.values()} if "." in address else set()
    names = {name for name, _ in found}
    interface = job.interface or (names.pop() if len(names) == 1 else "")
    if interface:
        why = "as asked" if job.interface else "on every node it leads to the first"
        choices.append(Choice("interface of the ranks", interface, why))
    return Rendezvous(address, port, interface, tuple(choices))


def _address(job: Job, hosts: Sequence[Host], facts: Mapping[str, Facts]) -> tuple[str, str]:
    if not hosts:
        first = first_of_allocation(os.environ)
        told = "the allocation's first node has rank 0"
        return (first, told) if first else ("127.0.0.1", "all ranks are on this machine")
    if all(is_here(host.name) for host in hosts):
        return "127.0.0.1", "all ranks are on this machine"
    why = f"the first host, {hosts[0].name}, has rank 0"
    known = _known_address(job, hosts, facts)
    name = hosts[0].name.rpartition("@")[2]
    local = name == "localhost" or name.startswith("127.")
    return known or (os.uname().nodename if local else name), why


def _known_address(job: Job, hosts: Sequence[Host], facts: Mapping[str, Facts]) -> str:
    """One by which the other nodes reach the first; empty: none is known.

    This machine may have many (bridges of containers): the one in the network of another node.
    """
    first = facts.get(hosts[0].name)
    if first is None or (job.interface and first.at(job.interface)):
        return first.at(job.interface) if first else ""
    if first.reached:
        return first.address
    others = [facts[host.name].address for host in hosts[1:] if host.name in facts]
    ways = [first.interface_to(address)[0] for address in others if address]
    return next((first.at(name) for name in ways if name), "")


def _port(token: str, address: str, first: Facts | None) -> tuple[int, str]:
    if first is not None and first.port:
        return first.port, "free there at this moment"
    if address != "127.0.0.1" and not is_here(address):
        return port_of(token), "derived from this launch's name"
    ports = [port_of(f"{token}{index or ''}") for index in range(_TRIES)]
    return next(filter(is_free, ports), ports[0]), "free at this moment"


_ROOT = (
    ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"),
)


def _mpirun(job: Job) -> tuple[str, Flavour, tuple[str, ...]]:
    """Return mpirun's path, its make, and notes of a dry run that found none here."""
    made = job.options.get("flavour", "")
    try:
        program = mpirun_path(job.options.get("mpirun", ""))
        return program, FLAVOURS[made] if made else flavour_of(program), ()
    except CannotMeasure as error:
        if not job.written:
            raise
        flavour = FLAVOURS[made] if made else FIVE
        note = f"not checked here: {error.saw}; written for {flavour.title}"
        if not made:
            note += f" (--with flavour={'|'.join(FLAVOURS)} says another)"
        return job.options.get("mpirun", "mpirun"), flavour, (note,)


def _look(job: Job) -> Prepared:
    program, flavour, notes = _mpirun(job)
    if not notes:
        _refuse_root(flavour, job.options)
    if not job.hosts and (job.nodes or 1) > 1 and first_of_allocation(os.environ) is None:
        raise make_error("mpi_nodes", job=job)
    options = {**job.options, **_settled(job, program, flavour)}
    asked = replace(job, python=job.python or sys.executable, options=options)
    # What mpirun cannot be told is refused before anybody is asked.
    MpiPrepared(job=asked).pieces(Path())
    facts, findings, unreached = asked_nodes(asked)
    troubled = {one.subject.name for one in findings if one.status == "fail"}
    hosts = tuple(host for host in slots_of(asked, facts) if host.name not in troubled)
    if job.hosts and not hosts:
        return MpiPrepared(job=replace(asked, hosts=()), findings=findings)
    # The far side is known: where the ranks meet is said in their environment.
    at = rendezvous_of(asked, hosts, facts)
    environment = {
        **interface_variables(at.interface),
        MASTER: f"{at.address}:{at.port}",
        **_slots(asked, hosts),
        **job.environment,
    }
    choices = [Choice("mpirun", program, f"recognised as {flavour.title}"), *at.choices]
    if "bind-to" not in options:
        choices.append(Choice("bind-to", "none", "a rank has several threads"))
    ranks = None if troubled else job.ranks
    return MpiPrepared(
        job=replace(asked, hosts=hosts, ranks=ranks, environment=environment),
        findings=findings,
        choices=tuple(choices),
        notes=(*notes, *unreached),
        names=tuple(environment),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiPrepared(Prepared):
    """One mpirun under its guard."""

    names: tuple[str, ...] = ()
    """Of all variables for ranks: a written script names those, too, whose values it does not hold."""

    def pieces(self, scratch: Path) -> list[Piece]:
        job = self.job
        flavour = FLAVOURS[job.options["flavour"]]
        program = job.options["mpirun"]
        launch = _launch(job, self.names, str(scratch / "hostfile"))
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


def _slots(job: Job, hosts: tuple[Host, ...]) -> dict[str, str]:
    """MPI tells no rank its node; where the user maps nothing, ranks fill the nodes in order."""
    if not hosts or "map-by" in job.options or len({one.name for one in hosts}) < len(hosts):
        return {}
    return {SLOTS: ",".join(str(one.slots or 1) for one in hosts)}


def _launch(job: Job, names: tuple[str, ...], hostfile: str) -> Launch:
    options = job.options
    config = options.get("ssh-config", "")
    bound = f"ConnectTimeout={max(5, int(job.startup_s / 4))}"
    return Launch(
        size=job.size,
        hosts=job.hosts,
        hostfile=hostfile,
        names=tuple({*job.environment, *names}),
        map_by=options.get("map-by", ""),
        bind_to=options.get("bind-to", "none"),
        oversubscribe="oversubscribe" in options,
        allow_root="allow-root" in options,
        interface=job.interface,
        ssh=("-F", config, "-oBatchMode=yes", f"-o{bound}") if config else (),
    )


def _settled(job: Job, program: str, flavour: Flavour) -> dict[str, str]:
    """Options as `pieces` needs them."""
    settled = {"mpirun": program, "flavour": flavour.name}
    if path := job.options.get("ssh-config"):
        config = settled["ssh-config"] = str(Path(path).expanduser().absolute())
        if not os.access(config, os.R_OK):
            raise InputError(
                f"--with ssh-config={path} cannot be read", expected="an ssh_config file"
            )
    each = job.ranks_per_node
    if "map-by" not in job.options and not job.hosts and each and first_of_allocation(os.environ):
        settled["map-by"] = f"ppr:{each}:node"
    return settled


def _refuse_root(flavour: Flavour, options: Mapping[str, str]) -> None:
    """Open MPI's own answer comes only when it runs, and is long."""
    allowed = any(all(os.environ.get(name) for name in pair) for pair in _ROOT)
    if os.geteuid() or not flavour.minds_root or "allow-root" in options or allowed:
        return
    raise make_error("mpi_root", flavour=flavour)


ENGINE = Engine("mpi", _look)
