"""DeepSpeed's command lines: its runner's words and hostfile, for each of the ways to use it.

Read in DeepSpeed 0.19.8, deepspeed/launcher/{runner,multinode_runner,launch,launcher_helper}.py:

- A hostfile with one host, or a filter that leaves one, means *this* machine, whatever its name is,
  unless `--force_multi`.
- The pdsh form passes the script's words unquoted through a shell, `%` through pdsh.
- The launchers slurm and mpich ignore or break `--no_python`: they want a script of Python.
- openmpi, mpich and impi take neither `--include` nor `--exclude`; slurm takes whole hosts only.

What DeepSpeed's launcher needs, looked for on this machine and on the nodes.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.deepspeed import far
from wirespeed.launchers.deepspeed.guard import CARRIED, folder_of
from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.launchers.texts import make_error

_FIND_S = 20.0
_FIND = "import importlib.util as u, sys; sys.exit(u.find_spec('deepspeed') is None)"
_PROGRAMS = {
    "pdsh": ("pdsh", "apt-get install pdsh, or --with launcher=openmpi"),
    "openmpi": ("ompi_info", "apt-get install openmpi-bin"),
    "mpich": ("mpirun", "apt-get install mpich"),
    "impi": ("mpirun", "install Intel MPI and source its setvars.sh"),
    "slurm": ("sinfo", "run it where Slurm's commands are"),
}
"""What DeepSpeed itself looks for (`backend_exists` in multinode_runner.py), and the remedy."""
_DEVICES = ("nvidia[0-9]*", "kfd", "accel/accel*", "davinci[0-9]*", "hl[0-9]*", "dri/renderD*")
_NUMBERS = re.compile(r"\d+(?:,\d+)*")


def require_deepspeed(python: str) -> None:
    """CannotMeasure where that Python of this machine has no DeepSpeed; UsageError for no Python."""
    if python == sys.executable:
        found = find_spec("deepspeed") is not None
    else:
        try:
            done = subprocess.run([python, "-P", "-c", _FIND], timeout=_FIND_S, capture_output=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise make_error("python_not_here", python=python) from error
        found = done.returncode == 0
    if not found:
        raise make_error("no_deepspeed", python=python)


def require_programs(launcher: str) -> None:
    """CannotMeasure where the launcher that DeepSpeed shall use is not on this machine."""
    program, remedy = _PROGRAMS[launcher]
    if shutil.which(program) is None:
        raise make_error("no_program", program=program, launcher=launcher, next=remedy)


# This machine.


def is_here(host: str) -> bool:
    """Whether a host's name is certainly this machine's."""
    name = host.rpartition("@")[2]
    own = os.uname().nodename
    if name in ("localhost", own, own.partition(".")[0]) or name.startswith("127."):
        return True
    addresses = psutil.net_if_addrs().values()
    return any(name == address.address for found in addresses for address in found)


def has_accelerator() -> bool:
    """Whether this machine has a device that DeepSpeed could use."""
    return any(next(Path("/dev").glob(pattern), None) for pattern in _DEVICES)


def slots_here(environ: Mapping[str, str]) -> int:
    """GPUs that ranks of this machine may use, else 1."""
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible:
        return len(visible.split(","))
    return len(list(Path("/dev").glob("nvidia[0-9]*"))) or 1


def first_devices(environ: Mapping[str, str], ranks: int) -> str:
    """`2,3`: the GPUs that CUDA_VISIBLE_DEVICES leaves; empty: the first ones, or there are none.

    UsageError where DeepSpeed cannot be told them.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if not visible or environ.get("DS_ACCELERATOR") == "cpu":
        return ""
    if not _NUMBERS.fullmatch(visible):
        raise make_error("devices_by_name", visible=visible)
    numbers = visible.split(",")
    if ranks > len(numbers):
        raise make_error("too_few_devices", ranks=ranks, visible=visible, left=len(numbers))
    return ",".join(numbers[:ranks])


LAUNCHERS = ("pdsh", "openmpi", "mpich", "impi", "slurm")
_WANT_SCRIPT = ("slurm", "mpich")
Form = Literal["local", "node", "nodes"]
"""This machine alone; one node of several, each started by itself (`--no_ssh`); all nodes."""
_HOST = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_](?:[\w.-]*\w)?")
"""A name that neither pdsh nor a hostfile nor ssh takes for anything else."""
_PLAIN_PATH = re.compile(r"[\w+=:,./@-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the runner is told."""

    job: Job
    """Its options name the launcher."""
    form: Form
    hostfile: str
    """Path; in the local form there is none."""
    master: tuple[str, str]
    """Address and port of rank 0."""
    node_rank: int = 0

    @property
    def launcher(self) -> str:
        return self.job.options["launcher"]


def runner(launch: Launch) -> list[str]:
    """The runner's words, with the ranks' words at their end."""
    words = [launch.job.python, "-P", "-m", "deepspeed.launcher.runner"]
    words += {"local": _local, "node": _node, "nodes": _nodes}[launch.form](launch)
    return [*words, "--no_local_rank", *_rank(launch)]


def hostfile(hosts: Sequence[Host]) -> str:
    """A line a host; UsageError for a name that could mean more than a host."""
    for host in hosts:
        if not _HOST.fullmatch(host.name):
            raise make_error("deepspeed_host", host=host)
    return "".join(f"{host.name} slots={host.slots or 1}\n" for host in hosts)


def _local(launch: Launch) -> list[str]:
    job = launch.job
    devices = first_devices({**os.environ, **job.environment}, job.size)
    # DeepSpeed would else look into /job/hostfile; this is no file, so it stays on this machine.
    words = ["--hostfile", "/dev/null", "--log_level=warning"]
    words += ["--include", f"localhost:{devices}"] if devices else ["--num_gpus", str(job.size)]
    return [*words, "--master_port", launch.master[1], "--no_python"]


def _node(launch: Launch) -> list[str]:
    words = ["--hostfile", launch.hostfile, "--no_ssh", "--node_rank", str(launch.node_rank)]
    return [*words, *_places(launch), "--log_level=warning", "--no_python"]


def _nodes(launch: Launch) -> list[str]:
    job, launcher = launch.job, launch.launcher
    words = ["--hostfile", launch.hostfile, "--launcher", launcher]
    words += ["--force_multi", "--no_ssh_check", *_places(launch)]
    if launcher == "pdsh" and (port := job.options.get("ssh-port")):
        words += ["--ssh_port", port]
    if told := launcher_args(job, chosen(job.hosts, job.options)):
        words += [f"--launcher_args={told}"]  # with `=`, since its value begins with a dash
    return [*words, *([] if launcher in _WANT_SCRIPT else ["--no_python"])]


def _places(launch: Launch) -> list[str]:
    """Where rank 0 is, and the filter, in DeepSpeed's notation `HOST[:SLOT[,SLOT]][@HOST…]`."""
    address, port = launch.master
    words = ["--master_addr", address, "--master_port", port]
    given = ((key, launch.job.options.get(key)) for key in ("include", "exclude"))
    return words + [word for key, text in given if text for word in (f"--{key}", text)]


def _rank(launch: Launch) -> list[str]:
    python = launch.job.python
    words = wrapped(python, launch.job.command, encoded=True)
    if launch.form != "nodes":
        return words
    if not _PLAIN_PATH.fullmatch(python):
        raise make_error("deepspeed_python", python=python)
    job = words[-2:]
    if launch.launcher in _WANT_SCRIPT:
        return [far.__file__, *job]
    module = [python, "-P", "-m", far.__name__]
    carried = ["--carried", folder_of(launch.job.token)] if launch.launcher == "pdsh" else []
    return [*module, *carried, *job]


# Filters.


def chosen(hosts: Sequence[Host], options: Mapping[str, str]) -> dict[str, list[int]]:
    """Slots by host after `include` or `exclude`; UsageError for what there is not."""
    slots = {host.name: list(range(host.slots or 1)) for host in hosts}
    include, exclude = options.get("include", ""), options.get("exclude", "")
    if include and exclude:
        raise UsageError("--with include and --with exclude", expected="one of them")
    text = include or exclude
    if not text:
        return slots
    if any("@" in name for name in slots):
        raise make_error("filter_of_users")
    named = _named(text, slots)
    if include:
        left = {name: named[name] for name in slots if name in named}
    else:
        left = {n: [s for s in own if s not in named.get(n, ())] for n, own in slots.items()}
    left = {name: own for name, own in left.items() if own}
    if not left:
        raise UsageError(f"--with exclude={exclude} leaves no slot", expected="one at least")
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
                raise make_error(
                    "filter_slot", text=text, slot=slot, host=host, last=len(slots[host]) - 1
                )
        found[host] = sorted({*found.get(host, ()), *map(int, own)})
    return found


_SSH = "-oBatchMode=yes -oServerAliveInterval=5 -oServerAliveCountMax=3 -oControlPath=none"
"""A connection that is dead is noticed after 15 to 20 s; one of its own, so that these hold for it."""


def ssh_args(options: Mapping[str, str]) -> str:
    """For pdsh, which splits it at blanks and replaces `%h` and the like."""
    config = options.get("ssh-config", "").replace("%", "%%")
    own = f"{_SSH} -F {config}" if config else _SSH
    return f"{own} {os.environ.get('PDSH_SSH_ARGS_APPEND', '')}".strip()


def launcher_args(job: Job, slots: Mapping[str, Sequence[int]]) -> str:
    """What an mpirun or srun must know beyond what DeepSpeed tells it, then what was asked for.

    `slots`: by host, after the filter.
    """
    launcher, options = job.options["launcher"], job.options
    words: list[str] = []
    if launcher in ("slurm", "mpich", "impi") and len({len(own) for own in slots.values()}) > 1:
        raise make_error("deepspeed_uneven", launcher=launcher)
    if launcher != "pdsh":
        made = {"openmpi": _openmpi(job), "slurm": _slurm(slots)}
        words = made.get(launcher, ["-genvlist", CARRIED])
    return " ".join(
        [*([shlex.join(words)] if words else []), options.get("launcher-args", "")]
    ).strip()


def _openmpi(job: Job) -> list[str]:
    words = ["-x", CARRIED]
    if job.interface:
        words += ["--mca", "btl_tcp_if_include", job.interface]
    if config := job.options.get("ssh-config"):
        words += ["--mca", "plm_rsh_args", f"-F {config}"]
    return words


def _slurm(slots: Mapping[str, Sequence[int]]) -> list[str]:
    """DeepSpeed tells srun only how many ranks; where they shall be is in its hostfile alone."""
    each = len(next(iter(slots.values())))
    words = [f"--nodelist={','.join(slots)}", f"--nodes={len(slots)}"]
    return [*words, f"--ntasks-per-node={each}"]
