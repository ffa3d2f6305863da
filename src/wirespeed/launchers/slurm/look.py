"""A look at Slurm before anything is submitted: programs, options it knows, nodes, the request."""

import re
import shutil
from dataclasses import replace

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Job
from wirespeed.launchers.slurm.options import OPTIONS
from wirespeed.launchers.slurm.queue import ask
from wirespeed.launchers.slurm.words import request_words
from wirespeed.records import Finding, Subject

__all__ = ["missing_programs", "need_known", "need_possible", "need_programs", "without_unusable"]

_PROGRAMS = ("srun", "squeue", "scancel", "sinfo")
_NODE = re.compile(r"[A-Za-z0-9_][\w.-]*")
_UNUSABLE = ("down", "drain", "fail", "error", "unk", "maint", "powering_down", "inval")
_CONTROLLER = re.compile(
    r"unable to contact slurm controller|socket timed out|establish.{0,20}config|dns srv|no answer"
    r"|munge|authentication|connection refused",
    re.I,
)


def missing_programs(*, batch: bool) -> list[str]:
    """Slurm's commands that are not here."""
    wanted = (*_PROGRAMS, *(("sbatch", "scontrol") if batch else ()))
    return [name for name in wanted if shutil.which(name) is None]


def need_programs(*, batch: bool) -> None:
    """CannotMeasure where Slurm's commands are not here."""
    if missing := missing_programs(batch=batch):
        raise CannotMeasure(
            f"{', '.join(missing)} not found on PATH",
            expected="Slurm's commands, as on a login node of the cluster",
            next="run this on a login node, module load slurm, or apt-get install slurm-client",
        )


def need_known(job: Job) -> None:
    """UsageError for an option that this srun does not have; CannotMeasure where it does not run."""
    if not job.options.keys() & OPTIONS.keys():
        return
    done = ask("srun", "--help")
    if done.returncode:
        raise _unreachable(done.stderr)
    for name in job.options:
        if OPTIONS[name].scope != "ours" and not re.search(rf"--{name}(?![\w-])", done.stdout):
            pyxis = name.startswith("container-")
            raise UsageError(
                f"--with {name}: {ask('srun', '--version').stdout.strip()} has no --{name}",
                expected="NVIDIA's pyxis plugin in plugstack.conf (and enroot on the nodes)"
                if pyxis
                else "one of the options that srun --help shows",
                next="srun --help | grep container" if pyxis else "srun --help",
            )


def without_unusable(job: Job) -> tuple[Job, tuple[Finding, ...]]:
    """A sized job without the hosts that Slurm would not give us, and a finding for each.

    CannotMeasure where none is left.
    """
    for host in job.hosts:
        if not _NODE.fullmatch(host.name):
            raise UsageError(
                f"{host.name!r} is no node of Slurm",
                expected="one name a node; scontrol show hostnames 'node-[0-3]' lists them",
            )
    if not job.hosts:
        return job, ()
    names = ",".join(host.name for host in job.hosts)
    done = ask("sinfo", "--noheader", "--Node", f"--nodes={names}", "--format=%N|%T|%E")
    if done.returncode and not done.stdout:
        raise _unreachable(done.stderr)
    states = {line.split("|")[0]: line.split("|", 2)[1:] for line in done.stdout.splitlines()}
    findings = {
        host.name: finding
        for host in job.hosts
        if (finding := _unusable(host.name, states.get(host.name)))
    }
    left = tuple(host for host in job.hosts if host.name not in findings)
    if not left:
        first = next(iter(findings.values()))
        raise CannotMeasure(f"none of the hosts can be used: {first.title}", next=first.next)
    size = sum(host.slots or 1 for host in left)
    return replace(job, hosts=left, nodes=len(left), ranks=size), tuple(findings.values())


def _unusable(name: str, facts: list[str] | None) -> Finding | None:
    subject = Subject("node", name)
    if facts is None:
        return Finding(
            id="SLURM-101",
            status="fail",
            title=f"Slurm knows no node {name}",
            subject=subject,
            saw="sinfo does not show it",
            expected="a name of NodeName in slurm.conf",
            next="sinfo -N -o '%N %T %P'",
        )
    state, reason = facts[0].strip(), facts[-1].strip()
    if not (state.endswith("*") or state.lower().startswith(_UNUSABLE)):
        return None
    return Finding(
        id="SLURM-102",
        status="fail",
        title=f"{name} takes no jobs: {state}",
        subject=subject,
        saw=f"state {state}" + (f", reason: {reason}" if reason not in ("", "none") else ""),
        expected="idle, mixed or allocated",
        because="slurmd does not answer slurmctld" if state.endswith("*") else "",
        fix="leave it out, or have it looked at: scontrol update "
        f"nodename={name} state=resume once it is well",
        next=f"sinfo -R; scontrol show node {name}",
    )


def need_possible(job: Job) -> None:
    """Ask Slurm whether it could ever start this; UsageError with its words where it could not."""
    if "jobid" in job.options:
        return
    done = ask(*request_words(job))
    if not done.returncode:
        return
    if _CONTROLLER.search(done.stderr):
        raise _unreachable(done.stderr)
    raise UsageError(
        f"Slurm refuses the request: {_last(done.stderr)}",
        expected="partition, account, nodes, GPUs, memory and time that the cluster has and allows",
        next="sinfo -o '%P %G %m %l %D'; sacctmgr show assoc user=$USER",
    )


def _unreachable(said: str) -> CannotMeasure:
    return CannotMeasure(
        f"Slurm's controller cannot be asked: {_last(said)}",
        expected="slurmctld to answer, munge to run here, and slurm.conf (or SLURM_CONF) to be found",
        next="scontrol ping; systemctl status munge",
    )


def _last(text: str) -> str:
    """Slurm's last words that mean something, without `srun: error:` before them."""
    lines = [line for line in text.splitlines() if line.strip() and "No error" not in line]
    return re.sub(r"^(?:\w+: )?(?:error|fatal): ", "", (lines or ["no reason given"])[-1]).strip()
