"""Ranks under DeepSpeed's launcher: `deepspeed --hostfile …`, on this machine or many."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import InputError, UsageError
from wirespeed.launchers.base import Engine, EngineOption, Host, Job, Piece, Prepared
from wirespeed.launchers.deepspeed.backends import launcher_args, ssh_args
from wirespeed.launchers.deepspeed.delivery import Node, folder_of
from wirespeed.launchers.deepspeed.leash import HOLD, leashed
from wirespeed.launchers.deepspeed.nodes import (
    Seen,
    first_devices,
    free_port,
    has_accelerator,
    is_here,
    look_at_nodes,
    require_deepspeed,
    require_programs,
    slots_here,
    ssh_to,
)
from wirespeed.launchers.deepspeed.orders import Orders, orders_text
from wirespeed.launchers.deepspeed.words import (
    LAUNCHERS,
    Filter,
    Form,
    Launch,
    chosen,
    hostfile,
    runner,
)
from wirespeed.launchers.frames import padded
from wirespeed.launchers.node.slots import with_slots
from wirespeed.launchers.rank_wrapper import MASTER
from wirespeed.records import Choice
from wirespeed.world.identity import port_of

__all__ = ["ENGINE"]

_FILTERLESS = ("openmpi", "mpich", "impi")
_PADDED = ("openmpi", "mpich", "impi")
_DEFAULT_PORT = 29500
"""DeepSpeed's own (TORCH_DISTRIBUTED_DEFAULT_PORT): alike on nodes that are started one by one."""
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_ADDRESS, _PORT = "master-addr", "master-port"
_FORM, _STARTS, _GIVEN, _SSH_ARGS = "form", "starts", "launcher-given", "pdsh-ssh-args"
"""Keys of a prepared job's options that are no `--with`."""
_VERB = "WIRESPEED_JOB"
"""Variable of jobs whose ranks are wirespeed's own (`console.relayed`)."""


class _DeepSpeed:
    name = "deepspeed"
    summary = "deepspeed's launcher, on this machine or with a hostfile"
    options: tuple[EngineOption, ...] = (
        EngineOption("launcher", f"what starts the nodes: {', '.join(LAUNCHERS)} (pdsh)"),
        EngineOption("launcher-args", "more words for that launcher, quoted as for a shell"),
        EngineOption("ssh-config", "ssh configuration for reaching the nodes"),
        EngineOption("ssh-port", "port of the nodes' ssh servers"),
        EngineOption("include", "hosts and slots to use: node-0@node-1:0,2"),
        EngineOption("exclude", "hosts and slots to leave out"),
        EngineOption(
            "no-ssh",
            "start only this machine's node, and the others by the same command on each; where all "
            "hosts are this machine, or --nodes names none, all of them",
            flag=True,
        ),
        EngineOption("node-rank", "with no-ssh: which of the hosts this machine is, from 0"),
        EngineOption(_ADDRESS, "address of rank 0 (that of the first node)"),
        EngineOption(_PORT, f"its port (free on the first node; with no-ssh {_DEFAULT_PORT})"),
    )

    def prepare(self, job: Job) -> Prepared:
        python = job.python or sys.executable
        options = _checked(job.options)
        require_deepspeed(python)
        environment = {**job.environment, **_interface(job)}
        made = replace(job, python=python, options=options, environment=environment)
        form = _form(made)
        looked = {"local": _prepare_local, "node": _prepare_node, "nodes": _prepare_nodes}
        prepared = looked[form](made)
        self.pieces(prepared.job, Path())  # what cannot be passed on is refused now
        return prepared

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        if _FORM not in job.options:
            return []  # no host can be used
        if job.options[_FORM] == "nodes":
            return [_nodes_piece(job, scratch)]
        launch = _launch(job, scratch)
        if launch.form == "local":
            return [_piece("deepspeed", job, launch, {})]
        _refuse_part(job)
        names = list(_filtered(job.hosts, job.options))
        files = {launch.hostfile: hostfile(job.hosts)}
        return [
            _piece(names[node], job, replace(launch, node_rank=node), files)
            for node in _nodes_started(job)
        ]


def _piece(name: str, job: Job, launch: Launch, files: Mapping[str, str]) -> Piece:
    """DeepSpeed's part on this machine: variables go as an environment, and need no shell."""
    return Piece(
        name=name,
        command=tuple(leashed(sys.executable, runner(launch), job.grace_s)),
        environment=job.environment,
        stdin=HOLD,
        files=files,
        nodes=(name,) if launch.form == "node" else (),
        ends_with_stdin=True,
    )


def _nodes_piece(job: Job, scratch: Path) -> Piece:
    launch, orders = _launch(job, scratch), str(scratch / "orders")
    environment = dict(job.environment)
    if launch.launcher == "pdsh":
        environment["PDSH_SSH_ARGS_APPEND"] = job.options[_SSH_ARGS]
    return Piece(
        name="deepspeed",
        command=tuple(leashed(sys.executable, runner(launch), job.grace_s, orders=orders)),
        environment=environment,
        stdin=HOLD,
        files={launch.hostfile: hostfile(job.hosts), orders: orders_text(_orders(job, launch))},
        nodes=tuple(host.name for host in job.hosts),
        ends_with_stdin=True,
    )


def _orders(job: Job, launch: Launch) -> Orders:
    names = tuple(job.environment)
    if launch.launcher != "pdsh":
        return Orders(names=names)
    config, port = job.options.get("ssh-config", ""), launch.ssh_port
    nodes, first = [], 0
    for number, (host, slots) in enumerate(_filtered(job.hosts, job.options).items()):
        ranks = tuple(range(first, first + len(slots)))
        # The word for the far shell is the delivery's own.
        nodes.append(Node(ssh_to(config, port, host, ())[:-1], number, ranks))
        first += len(slots)
    return Orders(names=names, folder=launch.carried, nodes=nodes)


def _launch(job: Job, scratch: Path) -> Launch:
    options = job.options
    launcher = options["launcher"]
    form: Form = "local"
    if options[_FORM] != "local":
        form = "node" if options[_FORM] == "node" else "nodes"
    devices = first_devices({**os.environ, **job.environment}, job.size) if form == "local" else ""
    return Launch(
        form=form,
        python=job.python,
        command=job.command,
        hostfile=str(scratch / "hostfile"),
        master=(options[_ADDRESS], int(options[_PORT])),
        ranks=job.size,
        devices=devices,
        launcher=launcher,
        launcher_args=launcher_args(job, _filtered(job.hosts, options)) if form == "nodes" else "",
        ssh_port=options.get("ssh-port", "") if launcher == "pdsh" else "",
        filter=_filter(options),
        carried=folder_of(job.token),
    )


# Looking.


def _prepare_local(job: Job) -> Prepared:
    told = job.hosts[0].slots if job.hosts else None
    environ = {**os.environ, **job.environment}
    each = job.ranks_per_node or slots_here(environ)
    slots = _filtered((Host("localhost", told or job.ranks or each),), job.options)
    port = job.options.get(_PORT) or str(free_port())
    options = {_FORM: "local", _ADDRESS: "127.0.0.1", _PORT: port}
    made = replace(
        job,
        ranks=_total(slots),
        hosts=(),
        environment=_with_accelerator(job.environment),
        options={**job.options, **options},
    )
    why = "a port that is free at this moment"
    return Prepared(job=made, choices=(Choice(_PORT, port, why),))


def _prepare_node(job: Job) -> Prepared:
    """One of several nodes, each started by itself; all of them, where all are this machine."""
    hosts = job.hosts or tuple(Host(f"node-{node}") for node in range(job.nodes or 1))
    each = job.ranks_per_node or slots_here({**os.environ, **job.environment})
    if job.ranks is not None and job.ranks_per_node is None:
        each = -(-job.ranks // len(hosts))
    hosts = tuple(Host(host.name, host.slots or each) for host in hosts)
    left = _filtered(hosts, job.options)
    used, slots = list(left), list(left.values())
    all_here = not job.hosts or all(map(is_here, used))
    if "node-rank" in job.options:
        nodes = [_node_rank(job.options["node-rank"], len(slots))]
    else:
        nodes = list(range(len(slots))) if all_here else [_own_node(used)]
    address, port = _meeting(job, used[0], alone=len(nodes) == len(slots))
    settled = {_FORM: "node", _ADDRESS: address, _PORT: port, _STARTS: ",".join(map(str, nodes))}
    made = replace(
        job,
        hosts=hosts,
        ranks=sum(len(slots[node]) for node in nodes),
        environment=_with_accelerator(job.environment) if all_here else job.environment,
        options={**job.options, **settled},
    )
    choice = Choice("MASTER_ADDR:MASTER_PORT", f"{address}:{port}", "the first node has rank 0")
    return Prepared(job=made, choices=(choice,))


def _prepare_nodes(job: Job) -> Prepared:
    launcher = job.options["launcher"]
    require_programs(launcher)
    if not job.hosts:
        raise UsageError(
            f"{job.nodes or 1} nodes, and DeepSpeed knows only hosts that are named",
            expected="--hosts a,b:4 or --hostfile FILE",
            next="the same command with --hosts; for nodes of a test on this machine --with no-ssh",
        )
    hostfile(job.hosts)  # names are checked before ssh sees them
    seen = _look(job)
    if not seen.hosts:
        return Prepared(job=replace(job, hosts=()), findings=seen.findings)
    slots = _filtered(seen.hosts, job.options)
    address, port, why = _where_rank_0_is(job, next(iter(slots)), seen)
    environment = {**job.environment, **_own_variables(launcher, f"{address}:{port}")}
    settled = {_FORM: "nodes", _ADDRESS: address, _PORT: port, _SSH_ARGS: ssh_args(job.options)}
    made = replace(
        job,
        hosts=seen.hosts,
        ranks=_total(slots),
        environment=padded(environment) if launcher in _PADDED else environment,
        options={**job.options, **settled},
    )
    choices = (
        Choice("launcher", launcher, "given" if launcher != "pdsh" else "DeepSpeed's own choice"),
        Choice("MASTER_ADDR:MASTER_PORT", f"{address}:{port}", why),
    )
    return Prepared(job=made, findings=seen.findings, choices=choices)


def _look(job: Job) -> Seen:
    """Over ssh, but for Slurm, whose nodes need none."""
    if job.options["launcher"] != "slurm":
        options = job.options
        config, port = options.get("ssh-config", ""), options.get("ssh-port", "")
        return look_at_nodes(job, job.python, config, port)
    return Seen(tuple(with_slots(job, {})), (), {})


# What follows from it.


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """The options with defaults; UsageError for those that do not go together."""
    launcher = options.get("launcher", "pdsh").lower()
    if launcher not in LAUNCHERS:
        raise UsageError(f"--with launcher={launcher}", expected=", ".join(LAUNCHERS))
    if launcher in _FILTERLESS and ("include" in options or "exclude" in options):
        raise UsageError(
            f"DeepSpeed's launcher {launcher} takes neither include nor exclude",
            expected="--with launcher=pdsh, or only the hosts that shall be used",
        )
    if "node-rank" in options and "no-ssh" not in options:
        raise UsageError("--with node-rank says nothing without no-ssh", expected="--with no-ssh")
    for name in (_PORT, "ssh-port"):
        text = options.get(name, "1")
        if not text.isdecimal() or not 1 <= int(text) <= 65_535:
            raise UsageError(f"--with {name}={text}", expected="1 to 65535")
    asked = {_GIVEN: "yes"} if "launcher" in options else {}
    config = {"ssh-config": _readable(options["ssh-config"])} if "ssh-config" in options else {}
    return {**options, **asked, **config, "launcher": launcher}


def _readable(path: str) -> str:
    full = str(Path(path).expanduser().absolute())
    if not os.access(full, os.R_OK) or any(map(str.isspace, full)):
        raise InputError(
            f"--with ssh-config={path} cannot be used",
            expected="a readable file, without white space in its path: pdsh splits there",
        )
    return full


def _form(job: Job) -> Form:
    """As DeepSpeed itself decides, but for one remote host, which it would take for this one."""
    if "no-ssh" in job.options:
        return "node"
    if _GIVEN in job.options:
        return "nodes"
    one = len(job.hosts) == 1 and is_here(job.hosts[0].name)
    return "local" if one or (not job.hosts and (job.nodes or 1) == 1) else "nodes"


def _filter(options: Mapping[str, str]) -> Filter:
    return Filter(include=options.get("include", ""), exclude=options.get("exclude", ""))


def _filtered(hosts: Sequence[Host], options: Mapping[str, str]) -> dict[str, list[int]]:
    return chosen(hosts, _filter(options))


def _total(slots: Mapping[str, Sequence[int]]) -> int:
    return sum(len(own) for own in slots.values())


def _interface(job: Job) -> dict[str, str]:
    return dict.fromkeys(_INTERFACES, job.interface) if job.interface else {}


def _with_accelerator(environment: Mapping[str, str]) -> dict[str, str]:
    """DeepSpeed is told where there is nothing but CPUs; it would find out, with a warning."""
    known = "DS_ACCELERATOR" in environment or "DS_ACCELERATOR" in os.environ
    cpu = {} if known or has_accelerator() else {"DS_ACCELERATOR": "cpu"}
    return {**environment, **cpu}


def _own_node(hosts: Sequence[str]) -> int:
    """Which of the hosts this machine is; UsageError where that cannot be told."""
    here = [node for node, host in enumerate(hosts) if is_here(host)]
    if len(here) != 1:
        names = ", ".join(hosts)
        raise UsageError(
            f"{'several' if here else 'none'} of {names} is this machine, {os.uname().nodename}",
            expected="the number of this machine among the hosts, from 0",
            next="--with node-rank=0",
        )
    return here[0]


def _node_rank(text: str, nodes: int) -> int:
    if not text.isdecimal() or int(text) >= nodes:
        raise UsageError(f"--with node-rank={text}", expected=f"0 to {nodes - 1}")
    return int(text)


def _refuse_part(job: Job) -> None:
    """A verb hears all its ranks here; a command's other ranks are heard where they are started."""
    slots = _filtered(job.hosts, job.options)
    if _VERB in job.environment and len(_nodes_started(job)) < len(slots):
        raise UsageError(
            "with no-ssh only this machine's ranks are started here, and a verb needs all of them",
            expected="hosts that are all this machine, or DeepSpeed over ssh",
            next="the same command without --with no-ssh, or --on ssh",
        )


def _nodes_started(job: Job) -> list[int]:
    return [int(node) for node in job.options[_STARTS].split(",")]


def _meeting(job: Job, first: str, *, alone: bool) -> tuple[str, str]:
    """Address and port of rank 0; `alone`: all nodes are started here, so any free port will do."""
    here = is_here(first) or not job.hosts
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


def _own_variables(launcher: str, master: str) -> dict[str, str]:
    """What ranks must find, and DeepSpeed's launcher does not tell, or tells otherwise."""
    return {MASTER: master} if launcher in ("openmpi", "slurm") else {}


ENGINE: Engine = _DeepSpeed()
