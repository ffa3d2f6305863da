"""The allocation that this process is in (salloc, sbatch, `srun --pty`), or was told of."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from wirespeed.errors import CannotMeasure
from wirespeed.launchers.base import Job
from wirespeed.launchers.slurm.queue import ask

__all__ = ["Allocation", "allocation_of"]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What Slurm tells of it; see "OUTPUT ENVIRONMENT VARIABLES" of salloc(1) and sbatch(1)."""

    job: str
    nodes: int
    ranks_per_node: int | None = None
    """As it was asked for: tasks a node, else GPUs a node."""
    because: str = ""
    cpus_per_task: str = ""
    in_step: bool = False
    """We are a step ourselves, which holds what a second one would need."""

    def options(self, asked: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Options of srun that follow from it, with the reason of each."""
        found = {}
        if "jobid" not in asked:
            found["jobid"] = (self.job, "SLURM_JOB_ID: this is a shell of that allocation")
        if self.cpus_per_task and "cpus-per-task" not in asked:
            why = (
                "SLURM_CPUS_PER_TASK of the allocation, which srun has not taken since Slurm 22.05"
            )
            found["cpus-per-task"] = (self.cpus_per_task, why)
        if self.in_step and "overlap" not in asked:
            found["overlap"] = ("yes", "this shell is a step itself (srun --pty)")
        return found

    def sized(self, job: Job) -> Job:
        """With its nodes and ranks a node where the job does not say."""
        if job.hosts:
            return job
        nodes = job.nodes or self.nodes
        told = job.ranks_per_node is not None or job.ranks is not None
        each = job.ranks_per_node if told else self.ranks_per_node
        return replace(job, nodes=nodes, ranks_per_node=each)


def allocation_of(environ: Mapping[str, str], options: Mapping[str, str]) -> Allocation | None:
    """Where we are, or `--with jobid=`; None outside. CannotMeasure for one that does not run."""
    here = environ.get("SLURM_JOB_ID", "")
    told = options.get("jobid", "")
    if told and told != here:
        return _asked(told)
    if not here:
        return None
    each, because = _each(environ)
    return Allocation(
        job=here,
        nodes=_number(environ.get("SLURM_JOB_NUM_NODES", environ.get("SLURM_NNODES", ""))) or 1,
        ranks_per_node=each,
        because=because,
        cpus_per_task=environ.get("SLURM_CPUS_PER_TASK", ""),
        in_step="SLURM_PTY_PORT" in environ,
    )


def _asked(job: str) -> Allocation:
    done = ask("squeue", "--noheader", f"--jobs={job}", "--states=RUNNING", "--format=%D")
    nodes = _number(done.stdout.strip())
    if nodes is None:
        raise CannotMeasure(
            f"job {job} does not run: {done.stderr.strip() or 'squeue does not show it'}",
            expected="an allocation of yours that has its nodes",
            next=f"squeue --me; scontrol show job {job}",
        )
    return Allocation(job=job, nodes=nodes)


def _each(environ: Mapping[str, str]) -> tuple[int | None, str]:
    if tasks := _number(environ.get("SLURM_NTASKS_PER_NODE", "")):
        return tasks, "SLURM_NTASKS_PER_NODE"
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"):
        found = re.search(r"(\d+)$", environ.get(name, ""))
        if found and int(found[1]):
            return int(found[1]), name
    return None, ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and int(text) else None
