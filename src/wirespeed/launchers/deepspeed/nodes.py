"""What DeepSpeed's launcher needs, looked for on this machine and on the nodes."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.node.probe import Facts, ask_all
from wirespeed.launchers.node.slots import with_slots
from wirespeed.launchers.node.software import interface_missing
from wirespeed.launchers.node.words import probe_words
from wirespeed.launchers.ssh.findings import Asking, trouble_of
from wirespeed.launchers.ssh.words import ssh_words
from wirespeed.records import Finding

__all__ = [
    "Seen",
    "first_devices",
    "free_port",
    "has_accelerator",
    "is_here",
    "look_at_nodes",
    "require_deepspeed",
    "require_programs",
    "slots_here",
    "ssh_to",
]

_ASK_S = 15.0
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


@dataclass(frozen=True, slots=True)
class Seen:
    """What the look at the nodes gave."""

    hosts: tuple[Host, ...]
    """With slots; without those that cannot be used."""
    findings: tuple[Finding, ...]
    facts: Mapping[str, Facts]
    """Of each host that could be asked."""


def require_deepspeed(python: str) -> None:
    """CannotMeasure where that Python of this machine has no DeepSpeed; UsageError for no Python."""
    if python == sys.executable:
        found = find_spec("deepspeed") is not None
    else:
        try:
            done = subprocess.run([python, "-P", "-c", _FIND], timeout=_FIND_S, capture_output=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(
                f"--python {python} does not run on this machine",
                expected="a path that this machine and all nodes have: DeepSpeed runs its launcher "
                "here and on the nodes by the same path",
            ) from error
        found = done.returncode == 0
    if not found:
        raise CannotMeasure(
            f"{python} has no deepspeed",
            expected="DeepSpeed beside wirespeed, here and on every node",
            next="pip install 'wirespeed[deepspeed]'",
        )


def require_programs(launcher: str) -> None:
    """CannotMeasure where the launcher that DeepSpeed shall use is not on this machine."""
    program, remedy = _PROGRAMS[launcher]
    if shutil.which(program) is None:
        raise CannotMeasure(
            f"{program} is not on PATH",
            expected=f"DeepSpeed's launcher {launcher} uses it",
            next=remedy,
        )


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
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={visible}: DeepSpeed takes numbers only",
            expected="CUDA_VISIBLE_DEVICES=0,1,…",
        )
    numbers = visible.split(",")
    if ranks > len(numbers):
        raise UsageError(
            f"{ranks} ranks, and CUDA_VISIBLE_DEVICES={visible} leaves {len(numbers)} GPUs",
            expected="a GPU for each rank",
        )
    return ",".join(numbers[:ranks])


def free_port() -> int:
    """One that is free here at this moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


# The nodes.


def look_at_nodes(job: Job, python: str, config: str, port: str) -> Seen:
    """Ask every node over ssh what it is, all at once."""
    within_s = min(_ASK_S, job.startup_s)
    far = probe_words([python])
    commands = {host.name: ssh_to(config, port, host.name, far) for host in job.hosts}
    answers = ask_all(commands, job.directory, within_s)
    asking = Asking(config, [python], within_s)
    facts: dict[str, Facts] = {}
    findings = []
    for host, answer in answers.items():
        trouble = trouble_of(host, answer, asking)
        found = answer.facts
        if trouble is None and found is not None:
            facts[host] = found
            if job.interface and not found.at(job.interface):
                trouble = interface_missing(host, found, job.interface)
        if trouble is not None:
            findings.append(trouble)
            facts.pop(host, None)
    hosts = tuple(host for host in with_slots(job, facts) if host.name in facts)
    return Seen(hosts, tuple(findings), facts)


def ssh_to(config: str, port: str, host: str, far: Sequence[str]) -> tuple[str, ...]:
    """ssh that runs `far` there."""
    program, *rest = ssh_words(config, host, far)
    return (program, *(["-p", port] if port else []), *rest)
