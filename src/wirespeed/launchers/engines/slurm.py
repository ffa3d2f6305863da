"""Ranks as tasks of Slurm: srun inside an allocation, srun or sbatch that asks for its own."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine, Job, Piece, Prepared
from wirespeed.launchers.node.snapshot import interface_variables
from wirespeed.launchers.rank_wrapper import DIRECTORY, MASTER
from wirespeed.launchers.slurm.allocation import (
    Allocation,
    allocation_of,
    missing_programs,
    need_known,
    need_possible,
    need_programs,
    sized,
    without_unusable,
)
from wirespeed.launchers.slurm.command_line import (
    allocating,
    batch_script,
    host_file,
    job_name,
    refuse_together,
    seconds,
    srun_words,
    uneven,
)
from wirespeed.launchers.texts import make_error
from wirespeed.model.records import Choice, Finding
from wirespeed.process.frames import padded

WAIT = "24h"
"""How long a job may be pending, where `--with wait=` does not say."""


def _look(job: Job) -> Prepared:
    refuse_together(job.options)
    batch = "batch" in job.options
    asks = not job.written or not missing_programs(batch=batch)
    if asks:
        need_programs(batch=batch)
    job, choices = _placed(job, allocation_of(os.environ, job.options))
    if asks:
        need_known(job)
    job, size_choices = sized(job)
    findings: tuple[Finding, ...] = ()
    if asks:
        job, findings = without_unusable(job)
    job, python_choices = _with_python(job)
    own = _master(job) | interface_variables(job.interface)
    inside = _container_directory(job.options)
    job = replace(job, environment={**own, **padded(job.environment), **inside})
    if asks and not findings:
        need_possible(job)
    prepared = SlurmPrepared(
        job=job, findings=findings, choices=(*choices, *size_choices, *python_choices)
    )
    prepared.pieces(Path("/"))  # what cannot be written down is refused now
    return prepared


class SlurmPrepared(Prepared):
    def pieces(self, scratch: Path) -> list[Piece]:
        made = _batch if "batch" in self.job.options else _step
        return [made(self.job, scratch)]


def _step(job: Job, scratch: Path) -> Piece:
    jobid = job.options.get("jobid", "")
    words = [*_driver("step", job), *([f"--jobid={jobid}"] if jobid else [])]
    hosts = str(scratch / "slurm-hosts")
    return Piece(
        name="srun",
        command=(*words, "--", *srun_words(job, inside=bool(jobid))),
        environment={**job.environment, **({"SLURM_HOSTFILE": hosts} if uneven(job) else {})},
        files={hosts: host_file(job)} if uneven(job) else {},
        ends_with_stdin=True,
        queue_s=0.0 if jobid else _wait_s(job),
    )


def _batch(job: Job, scratch: Path) -> Piece:
    script = str(scratch / "job.sh")
    words = [*_driver("batch", job), *_output(job), "--", script]
    return Piece(
        name="sbatch",
        command=tuple(words),
        environment=job.environment,
        files={script: batch_script(job)},
        script=batch_script(job, by_hand=True),
        ends_with_stdin=True,
        queue_s=_wait_s(job),
    )


def _driver(module: str, job: Job) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", f"wirespeed.launchers.slurm.{module}"),
        f"--name={job_name(job)}",
        f"--size={job.size}",
        f"--startup={job.startup_s:g}",
        f"--wait={_wait_s(job):g}",
        f"--grace={job.grace_s:g}",
    ]


def _output(job: Job) -> list[str]:
    """Where a batch job's output goes: the job's folder, as a rule on all nodes, else as asked."""
    if "output" in job.options:
        return [f"--output={job.options['output']}", "--keep"]
    return [f"--output={job.directory}"] if job.directory else []


def _wait_s(job: Job) -> float:
    return seconds(job.options.get("wait", WAIT))


# Preparing.


def _placed(job: Job, allocation: Allocation | None) -> tuple[Job, tuple[Choice, ...]]:
    """With the allocation that it starts in, if there is one, and what srun must be told in it."""
    if allocation is None:
        return job, ()
    _refuse_inside(job.options, allocation)
    own = allocation.options(job.options)
    choices = tuple(Choice(name, value, reason) for name, (value, reason) in own.items())
    options = {**job.options, **{name: value for name, (value, _) in own.items()}}
    placed = allocation.sized(replace(job, options=options))
    if placed.ranks_per_node != job.ranks_per_node:
        why = f"{allocation.because} of the allocation"
        choices = (*choices, Choice("ranks per node", str(placed.ranks_per_node), why))
    return placed, choices


def _refuse_inside(options: Mapping[str, str], allocation: Allocation) -> None:
    if "batch" in options:
        raise make_error("batch_inside", job=allocation.job)
    if names := allocating(options):
        raise make_error(
            "chosen_inside", first=names[0], names=", ".join(names), job=allocation.job
        )


def _with_python(job: Job) -> tuple[Job, tuple[Choice, ...]]:
    if job.python:
        if job.python.startswith("-"):
            raise UsageError(f"--python {job.python!r} is no program", expected="a path")
        return job, ()
    if "container-image" in job.options:
        reason = "the one of the container; --python names another"
        return replace(job, python="python3"), (Choice("python", "python3", reason),)
    reason = "the same path as here: nodes of Slurm share their file systems"
    return replace(job, python=sys.executable), (Choice("python", sys.executable, reason),)


def _master(job: Job) -> dict[str, str]:
    """Rank 0 is on the step's first node, as ranks find themselves, but where a file orders them."""
    return {MASTER: job.hosts[0].name} if uneven(job) else {}


def _container_directory(options: Mapping[str, str]) -> dict[str, str]:
    """The wrapper goes to the job's folder, which in a container is another one."""
    return {DIRECTORY: options["container-workdir"]} if "container-workdir" in options else {}


ENGINE = Engine("slurm", _look)
