"""DeepSpeed's command lines: its runner's words and hostfile, for each of the ways to use it.

Read in DeepSpeed 0.19.8, deepspeed/launcher/{runner,multinode_runner,launch,launcher_helper}.py:

- A hostfile with one host, or a filter that leaves one, means *this* machine, whatever its name is,
  unless `--force_multi`.
- The pdsh form passes the script's words unquoted through a shell, `%` through pdsh.
- The launchers slurm and mpich ignore or break `--no_python`: they want a script of Python.
- openmpi, mpich and impi take neither `--include` nor `--exclude`; slurm takes whole hosts only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host
from wirespeed.launchers.deepspeed import far
from wirespeed.launchers.rank_wrapper import wrapped

__all__ = ["LAUNCHERS", "Filter", "Form", "Launch", "chosen", "hostfile", "runner"]

LAUNCHERS = ("pdsh", "openmpi", "mpich", "impi", "slurm")
Form = Literal["local", "node", "nodes"]
"""This machine alone; one node of several, each started by itself (`--no_ssh`); all nodes."""
_HOST = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_](?:[\w.-]*\w)?")
"""A name that neither pdsh nor a hostfile nor ssh takes for anything else."""
_PLAIN_PATH = re.compile(r"[\w+=:,./@-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """`--include` and `--exclude`, in DeepSpeed's notation `HOST[:SLOT[,SLOT]][@HOST…]`."""

    include: str = ""
    exclude: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the runner is told."""

    form: Form
    python: str
    command: tuple[str, ...]
    hostfile: str
    """Path; in the local form there is none."""
    master: tuple[str, int]
    """Address and port of rank 0."""
    ranks: int = 1
    """Of the local form."""
    devices: str = ""
    """Of the local form: numbers of the GPUs, where not the first ones."""
    node_rank: int = 0
    launcher: str = "pdsh"
    launcher_args: str = ""
    ssh_port: str = ""
    filter: Filter = Filter()
    carried: str = ""
    """Folder in which ranks on pdsh's nodes find their environment."""


def runner(launch: Launch) -> list[str]:
    """The runner's words, with the ranks' words at their end."""
    words = [launch.python, "-P", "-m", "deepspeed.launcher.runner"]
    words += {"local": _local, "node": _node, "nodes": _nodes}[launch.form](launch)
    return [*words, *_rank(launch)]


def hostfile(hosts: Sequence[Host]) -> str:
    """A line a host; UsageError for a name that could mean more than a host."""
    for host in hosts:
        if not _HOST.fullmatch(host.name):
            raise UsageError(
                f"{host.name!r} cannot stand in DeepSpeed's hostfile",
                expected="a host name, an IPv4 address or an alias of ssh's configuration",
            )
    return "".join(f"{host.name} slots={host.slots or 1}\n" for host in hosts)


def _local(launch: Launch) -> list[str]:
    # DeepSpeed would else look into /job/hostfile; this is no file, so it stays on this machine.
    words = ["--hostfile", "/dev/null", "--log_level=warning"]
    words += ["--include", f"localhost:{launch.devices}"] if launch.devices else []
    words += [] if launch.devices else ["--num_gpus", str(launch.ranks)]
    return [*words, "--master_port", str(launch.master[1]), "--no_python", "--no_local_rank"]


def _node(launch: Launch) -> list[str]:
    words = ["--hostfile", launch.hostfile, "--no_ssh", "--node_rank", str(launch.node_rank)]
    words += [*_master(launch), *_filter(launch.filter), "--log_level=warning"]
    return [*words, "--no_python", "--no_local_rank"]


def _nodes(launch: Launch) -> list[str]:
    words = ["--hostfile", launch.hostfile, "--launcher", launch.launcher]
    words += ["--force_multi", "--no_ssh_check", *_master(launch), *_filter(launch.filter)]
    words += ["--ssh_port", launch.ssh_port] if launch.ssh_port else []
    # With `=`, since its value begins with a dash.
    words += [f"--launcher_args={launch.launcher_args}"] if launch.launcher_args else []
    return [*words, *([] if _wants_script(launch) else ["--no_python"]), "--no_local_rank"]


def _master(launch: Launch) -> list[str]:
    address, port = launch.master
    return ["--master_addr", address, "--master_port", str(port)]


def _filter(asked: Filter) -> list[str]:
    include = ["--include", asked.include] if asked.include else []
    return include + (["--exclude", asked.exclude] if asked.exclude else [])


def _rank(launch: Launch) -> list[str]:
    if launch.form != "nodes":
        return wrapped(launch.python, launch.command, encoded=True)
    if not _PLAIN_PATH.fullmatch(launch.python):
        raise UsageError(
            f"DeepSpeed cannot start {launch.python!r} on other nodes: it writes the path unquoted "
            "for a shell",
            expected="a path of letters, digits and +=:,./@-_",
            next="--python PATH",
        )
    job = wrapped(launch.python, launch.command, encoded=True)[-2:]
    module = [launch.python, "-P", "-m", far.__name__]
    if launch.launcher == "pdsh":
        return [*module, "--carried", launch.carried, *job]
    return [far.__file__, *job] if _wants_script(launch) else [*module, *job]


def _wants_script(launch: Launch) -> bool:
    return launch.launcher in ("slurm", "mpich")


# Filters.


def chosen(hosts: Sequence[Host], asked: Filter) -> dict[str, list[int]]:
    """Slots by host after the filter, as DeepSpeed reads it; UsageError for what there is not."""
    slots = {host.name: list(range(host.slots or 1)) for host in hosts}
    if asked.include and asked.exclude:
        raise UsageError("--with include and --with exclude", expected="one of them")
    text = asked.include or asked.exclude
    if not text:
        return slots
    if any("@" in name for name in slots):
        raise UsageError(
            "a filter's hosts stand between @, so it cannot go with user@host",
            expected="host names, with User in ssh's configuration",
        )
    named = _named(text, slots)
    if asked.include:
        left = {name: named[name] for name in slots if name in named}
    else:
        left = {n: [s for s in own if s not in named.get(n, ())] for n, own in slots.items()}
    left = {name: own for name, own in left.items() if own}
    if not left:
        raise UsageError(f"--with exclude={asked.exclude} leaves no slot", expected="one at least")
    return left


def _named(text: str, slots: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Slots by host that a filter names."""
    found: dict[str, list[int]] = {}
    for word in text.split("@"):
        host, colon, numbers = word.partition(":")
        if host not in slots:
            known = ", ".join(slots)
            raise UsageError(f"the filter {text} names {host!r}", expected=f"of {known}")
        own = numbers.split(",") if colon else [str(slot) for slot in slots[host]]
        for slot in own:
            if not slot.isdecimal() or int(slot) not in slots[host]:
                raise UsageError(
                    f"the filter {text} names slot {slot!r} of {host}",
                    expected=f"0 to {len(slots[host]) - 1}",
                )
        found[host] = sorted({*found.get(host, ()), *map(int, own)})
    return found
