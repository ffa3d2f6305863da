"""The nodes that mpirun shall run on: asked before it starts, since its own words come late and long.

They are asked as the engine `ssh` does it, this machine without ssh. Where mpirun is set to another
way of reaching nodes than ssh, nobody is asked.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.node.probe import Facts, ask_all
from wirespeed.launchers.node.slots import with_slots
from wirespeed.launchers.node.software import differing, interface_missing
from wirespeed.launchers.node.words import probe_words
from wirespeed.launchers.ssh.findings import Asking, trouble_of
from wirespeed.launchers.ssh.words import ssh_words
from wirespeed.records import Finding

__all__ = ["Nodes", "is_here", "look", "slots_of"]

_ASK_S = 15.0
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


@dataclass(frozen=True, slots=True)
class Nodes:
    """What the look at them gave."""

    facts: Mapping[str, Facts] = field(default_factory=dict)
    """By host, of those that can be used; empty: nobody was asked."""
    findings: tuple[Finding, ...] = ()

    @property
    def troubled(self) -> frozenset[str]:
        return frozenset(one.subject.name for one in self.findings if one.status == "fail")


def look(job: Job, python: str, config: str) -> Nodes:
    """Ask each of the job's hosts; nobody where they are all here, or not reached by ssh."""
    if all(is_here(host.name) for host in job.hosts) or not _reached_by_ssh():
        return Nodes()
    within_s = min(job.startup_s, _ASK_S)
    words = probe_words([python])
    commands = {
        host.name: words if is_here(host.name) else ssh_words(config, host.name, words)
        for host in job.hosts
    }
    asking = Asking(config, [python], within_s)
    findings, good = [], {}
    for host, answer in ask_all(commands, job.directory, within_s).items():
        if (trouble := trouble_of(host, answer, asking)) is not None:
            findings.append(trouble)
        elif answer.facts is None:
            continue
        elif job.interface and not answer.facts.at(job.interface):
            findings.append(interface_missing(host, answer.facts, job.interface))
        else:
            good[host] = answer.facts
    return Nodes(good, (*findings, *differing(good)))


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


def _too_few(job: Job, saw: str) -> UsageError:
    each = -(-job.size // len(job.hosts))
    names = ",".join(f"{host.name}:{each}" for host in job.hosts[:3])
    more = ",…" if len(job.hosts) > 3 else ""
    return UsageError(
        saw,
        expected="a slot for each rank",
        next=f"--hosts {names}{more}; more ranks than cores or GPUs: --with oversubscribe",
    )


def is_here(name: str) -> bool:
    """Whether mpirun takes that host for this machine."""
    own = os.uname().nodename
    return name == "localhost" or name.startswith("127.") or name in (own, own.partition(".")[0])


def _reached_by_ssh() -> bool:
    values = [os.environ.get(name, "") for name in _OTHER_WAYS]
    scheduled = any(os.environ.get(name) for name in ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID"))
    return not scheduled and all(value.split(" ")[0] in ("", "ssh", "rsh") for value in values)
