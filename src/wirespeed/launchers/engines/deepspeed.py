"""Ranks under DeepSpeed's launcher: `deepspeed --hostfile …`, on this machine or many."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine, Host, Job, Piece, Prepared, lacking
from wirespeed.launchers.deepspeed import command_line
from wirespeed.launchers.deepspeed.command_line import Launch
from wirespeed.launchers.deepspeed.guard import HOLD, Node, Orders, folder_of, guarded, orders_text
from wirespeed.launchers.engines.ssh import SshAsking, ssh_words
from wirespeed.launchers.node.probe import Facts, with_slots
from wirespeed.launchers.node.snapshot import interface_variables
from wirespeed.launchers.rank_wrapper import MASTER
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice, Finding
from wirespeed.node.identity import port_of
from wirespeed.process import free_port
from wirespeed.process.frames import padded

_MPI = ("openmpi", "mpich", "impi")
_DEFAULT_PORT = 29500
"""DeepSpeed's own (TORCH_DISTRIBUTED_DEFAULT_PORT): alike on nodes that are started one by one."""
_ADDRESS, _PORT = "master-addr", "master-port"
_VERB = "WIRESPEED_JOB"
"""Variable of jobs whose ranks are wirespeed's own (`session.rank_program`)."""


def _look(job: Job) -> Prepared:
    python = job.python or sys.executable
    options = _checked(job.options)
    notes = lacking(job, lambda: command_line.require_deepspeed(python))
    environment = {**job.environment, **interface_variables(job.interface)}
    made = replace(job, python=python, options=options, environment=environment)
    looked = {"local": _prepare_local, "node": _prepare_node, "nodes": _prepare_nodes}
    prepared = looked[_form(made, given="launcher" in job.options)](made)
    prepared.pieces(Path())  # what cannot be passed on is refused now
    return replace(prepared, notes=(*notes, *prepared.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared(Prepared):
    form: command_line.Form | None = None
    """None: no host can be used."""
    master: tuple[str, str] = ("", "")
    """Address and port of rank 0."""
    starts: tuple[int, ...] = ()
    """Of the form `node`: numbers of the nodes that are started here."""

    def pieces(self, scratch: Path) -> list[Piece]:
        job = self.job
        if self.form is None:
            return []
        launch = Launch(
            job=job, form=self.form, hostfile=str(scratch / "hostfile"), master=self.master
        )
        if self.form == "local":
            return [_piece("deepspeed", launch)]
        if self.form == "nodes":
            nodes = [host.name for host in job.hosts]
            return [_piece("deepspeed", launch, nodes, orders=str(scratch / "orders"))]
        names = list(command_line.chosen(job.hosts, job.options))
        # A verb hears all its ranks here; a command's other ranks are heard where they are started.
        if len(self.starts) < len(names) and _VERB in job.environment:
            raise make_error("part_of_a_verb")
        return [
            _piece(names[node], replace(launch, node_rank=node), names[node : node + 1])
            for node in self.starts
        ]


def _piece(name: str, launch: Launch, nodes: Sequence[str] = (), *, orders: str = "") -> Piece:
    """DeepSpeed's part on this machine; `orders`: path of the guard's, where ranks are elsewhere."""
    job = launch.job
    environment = dict(job.environment)
    files = {launch.hostfile: command_line.hostfile(job.hosts)} if nodes else {}
    if orders:
        files[orders] = orders_text(_orders(launch))
        if launch.launcher == "pdsh":
            environment["PDSH_SSH_ARGS_APPEND"] = command_line.ssh_args(job.options)
    words = guarded(sys.executable, command_line.runner(launch), job.grace_s, orders=orders)
    return Piece(
        name=name,
        command=tuple(words),
        environment=environment,
        stdin=HOLD,
        files=files,
        nodes=tuple(nodes),
        ends_with_stdin=True,
    )


def _orders(launch: Launch) -> Orders:
    job, options = launch.job, launch.job.options
    if launch.launcher != "pdsh":
        return Orders(names=tuple(job.environment))
    nodes, first = [], 0
    for number, (host, slots) in enumerate(command_line.chosen(job.hosts, options).items()):
        ranks = tuple(range(first, first + len(slots)))
        words = ssh_words(options.get("ssh-config", ""), host, (), options.get("ssh-port", ""))
        nodes.append(Node(words[:-1], number, ranks))  # the far shell's word is the delivery's own
        first += len(slots)
    return Orders(names=tuple(job.environment), folder=folder_of(job.token), nodes=nodes)


# Looking.


@dataclass(frozen=True, slots=True)
class Seen:
    """What the look at the nodes gave."""

    hosts: tuple[Host, ...]
    """With slots; without those that cannot be used."""
    findings: tuple[Finding, ...]
    facts: Mapping[str, Facts]
    """Of each host that could be asked."""
    notes: tuple[str, ...] = ()
    """Of a dry run: hosts that could not be asked."""


def _prepare_local(job: Job) -> _Prepared:
    told = job.hosts[0].slots if job.hosts else None
    environ = {**os.environ, **job.environment}
    each = job.ranks_per_node or command_line.slots_here(environ)
    slots = command_line.chosen((Host("localhost", told or job.ranks or each),), job.options)
    port = job.options.get(_PORT) or str(free_port())
    environment = _with_accelerator(job.environment)
    made = replace(job, ranks=sum(map(len, slots.values())), hosts=(), environment=environment)
    choice = Choice(_PORT, port, "a port that is free at this moment")
    return _Prepared(job=made, choices=(choice,), form="local", master=("127.0.0.1", port))


def _prepare_node(job: Job) -> _Prepared:
    """One of several nodes, each started by itself; all of them, where all are this machine."""
    hosts = job.hosts or tuple(Host(f"node-{node}") for node in range(job.nodes or 1))
    each = job.ranks_per_node or command_line.slots_here({**os.environ, **job.environment})
    if job.ranks is not None and job.ranks_per_node is None:
        each = -(-job.ranks // len(hosts))
    hosts = tuple(Host(host.name, host.slots or each) for host in hosts)
    left = command_line.chosen(hosts, job.options)
    used, slots = list(left), list(left.values())
    all_here = not job.hosts or all(map(command_line.is_here, used))
    nodes = _started_here(job, used, all_here=all_here)
    address, port = _rendezvous(job, used[0], alone=len(nodes) == len(slots))
    made = replace(
        job,
        hosts=hosts,
        ranks=sum(len(slots[node]) for node in nodes),
        environment=_with_accelerator(job.environment) if all_here else job.environment,
    )
    choice = Choice("MASTER_ADDR:MASTER_PORT", f"{address}:{port}", "the first node has rank 0")
    return _Prepared(
        job=made, choices=(choice,), form="node", master=(address, port), starts=tuple(nodes)
    )


def _prepare_nodes(job: Job) -> _Prepared:
    launcher = job.options["launcher"]
    notes = lacking(job, lambda: command_line.require_programs(launcher))
    if not job.hosts:
        raise make_error("deepspeed_hosts", nodes=job.nodes or 1)
    command_line.hostfile(job.hosts)  # names are checked before ssh sees them
    if launcher == "slurm":  # whose nodes need no ssh
        seen = Seen(tuple(with_slots(job, {})), (), {})
    else:
        seen = look_at_nodes(job)
    if not seen.hosts:
        return _Prepared(job=replace(job, hosts=()), findings=seen.findings)
    slots = command_line.chosen(seen.hosts, job.options)
    address, port, why = _where_rank_0_is(job, next(iter(slots)), seen)
    environment = dict(job.environment)
    if launcher in ("openmpi", "slurm"):  # which do not tell it, or tell it otherwise
        environment[MASTER] = f"{address}:{port}"
    if launcher in _MPI:
        environment = padded(environment)
    ranks = sum(map(len, slots.values()))
    made = replace(job, hosts=seen.hosts, ranks=ranks, environment=environment)
    choices = (
        Choice("launcher", launcher, "given" if launcher != "pdsh" else "DeepSpeed's own choice"),
        Choice("MASTER_ADDR:MASTER_PORT", f"{address}:{port}", why),
    )
    return _Prepared(
        job=made,
        findings=seen.findings,
        choices=choices,
        notes=(*notes, *seen.notes),
        form="nodes",
        master=(address, port),
    )


def look_at_nodes(job: Job) -> Seen:
    """Ask every node over ssh what it is, all at once."""
    asking = SshAsking(job.options.get("ssh-config", ""), [job.python], job.startup_s)
    facts, findings = asking.usable(job, job.options.get("ssh-port", ""))
    usable = {*facts, *asking.not_reached}
    hosts = tuple(host for host in with_slots(job, facts) if host.name in usable)
    notes = asking.notes("it has its name as address, and gets 1 rank unless told")
    return Seen(hosts, tuple(findings), facts, notes)


# What follows from it.


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """The options with defaults; UsageError for those that do not go together."""
    launcher = options.get("launcher", "pdsh").lower()
    if launcher not in command_line.LAUNCHERS:
        raise UsageError(f"--with launcher={launcher}", expected=", ".join(command_line.LAUNCHERS))
    if launcher in _MPI and ("include" in options or "exclude" in options):
        raise make_error("filterless", launcher=launcher)
    if "node-rank" in options and "no-ssh" not in options:
        raise UsageError("--with node-rank says nothing without no-ssh", expected="--with no-ssh")
    settled = {**options, "launcher": launcher}
    if path := options.get("ssh-config"):
        config = settled["ssh-config"] = str(Path(path).expanduser().absolute())
        if not os.access(config, os.R_OK) or any(map(str.isspace, config)):
            raise make_error("deepspeed_ssh_config", path=path)
    return settled


def _form(job: Job, *, given: bool) -> command_line.Form:
    """As DeepSpeed itself decides, but for one remote host, which it would take for this one."""
    if "no-ssh" in job.options:
        return "node"
    if given:
        return "nodes"
    one = len(job.hosts) == 1 and command_line.is_here(job.hosts[0].name)
    return "local" if one or (not job.hosts and (job.nodes or 1) == 1) else "nodes"


def _with_accelerator(environment: Mapping[str, str]) -> dict[str, str]:
    """DeepSpeed is told where there is nothing but CPUs; it would find out, with a warning."""
    known = "DS_ACCELERATOR" in environment or "DS_ACCELERATOR" in os.environ
    cpu = {} if known or command_line.has_accelerator() else {"DS_ACCELERATOR": "cpu"}
    return {**environment, **cpu}


def _started_here(job: Job, hosts: Sequence[str], *, all_here: bool) -> list[int]:
    """Numbers of the hosts that are started here; UsageError where that cannot be told."""
    if (told := job.options.get("node-rank")) is not None:
        if not told.isdecimal() or int(told) >= len(hosts):
            raise UsageError(f"--with node-rank={told}", expected=f"0 to {len(hosts) - 1}")
        return [int(told)]
    if all_here:
        return list(range(len(hosts)))
    here = [node for node, host in enumerate(hosts) if command_line.is_here(host)]
    if len(here) != 1:
        many, names = "several" if here else "none", ", ".join(hosts)
        raise make_error("which_node", many=many, names=names, own=os.uname().nodename)
    return here


def _rendezvous(job: Job, first: str, *, alone: bool) -> tuple[str, str]:
    """Address and port of rank 0; `alone`: all nodes are started here, so any free port will do."""
    here = command_line.is_here(first) or not job.hosts
    address = "127.0.0.1" if alone and here else first.rpartition("@")[2]
    port = str(free_port() if alone and here else _DEFAULT_PORT)
    return job.options.get(_ADDRESS, address), job.options.get(_PORT, port)


def _where_rank_0_is(job: Job, first: str, seen: Seen) -> tuple[str, str, str]:
    """Address, port and reason."""
    address, port = job.options.get(_ADDRESS, ""), job.options.get(_PORT, "")
    why = "given"
    facts = seen.facts.get(first)
    if facts is not None and not (address and port):
        found = facts.at(job.interface) if job.interface else facts.address
        why = f"of {facts.host}, the first node; the port is free there"
        address, port = address or found, port or str(facts.port)
    address = address or first.rpartition("@")[2]
    return address, port or str(port_of(job.token)), why


ENGINE = Engine("deepspeed", _look)
