"""Ranks as tasks of Slurm: srun inside an allocation, srun or sbatch that asks for its own.

The allocation is the one that this process is in (salloc, sbatch, `srun --pty`) or was told of. Slurm is
looked at before anything is submitted: programs, options it knows, nodes, the request.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError, WirespeedError
from wirespeed.launchers.base import Engine, Host, Job, Piece, Prepared, lacking
from wirespeed.launchers.node.snapshot import interface_variables
from wirespeed.launchers.rank_wrapper import DIRECTORY, MASTER
from wirespeed.launchers.slurm import ask, command_line
from wirespeed.launchers.slurm.command_line import OPTIONS, uneven
from wirespeed.launchers.texts import make_error, make_finding
from wirespeed.model.records import Choice, Finding, Subject
from wirespeed.process.frames import padded


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
        raise make_error(
            "no_allocation", job=job, why=done.stderr.strip() or "squeue does not show it"
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


def sized(job: Job) -> tuple[Job, tuple[Choice, ...]]:
    """With hosts' slots, or nodes and ranks a node, settled; UsageError for what does not come out."""
    each, choices = job.ranks_per_node, []
    if each is None and job.ranks is None and (gpus := gpus_of(job.options)):
        each = gpus
        choices.append(Choice("ranks per node", str(gpus), "a rank for each GPU that is asked for"))
    if job.hosts:
        return _on_hosts(job, each), tuple(choices)
    nodes = job.nodes or 1
    size = job.ranks if job.ranks is not None else nodes * (each or 1)
    if size % nodes or (job.ranks is not None and each is not None and each * nodes != size):
        raise make_error(
            "slurm_shape", size=size, nodes=nodes, each=f", {each} on each" if each else ""
        )
    if job.nodes is None:
        choices.append(Choice("nodes", "1", "--nodes was not given"))
    return replace(job, nodes=nodes, ranks=size, ranks_per_node=size // nodes), tuple(choices)


def gpus_of(options: Mapping[str, str]) -> int | None:
    """GPUs of each node, as `gpus-per-node` or `gres` asks."""
    found = re.search(r"(?:^|:)(\d+)$", options.get("gpus-per-node", ""))
    if found is None:
        asked = [one for one in options.get("gres", "").split(",") if one.split(":")[0] == "gpu"]
        found = re.search(r":(\d+)$", asked[0]) if asked else None
    return int(found[1]) if found and int(found[1]) else None


def _on_hosts(job: Job, each: int | None) -> Job:
    count = len(job.hosts)
    if each is None and job.ranks is not None and not any(host.slots for host in job.hosts):
        if job.ranks % count:
            raise make_error("slurm_hosts_ranks", ranks=job.ranks, count=count)
        each = job.ranks // count
    hosts = tuple(Host(host.name, host.slots or each or 1) for host in job.hosts)
    slots = sum(host.slots or 1 for host in hosts)
    if job.nodes not in (None, count) or job.ranks not in (None, slots):
        raise make_error(
            "slurm_hosts_shape",
            count=count,
            slots=slots,
            nodes=job.nodes or count,
            ranks=job.ranks or slots,
        )
    return replace(job, hosts=hosts, nodes=count, ranks=slots, ranks_per_node=each)


_PROGRAMS = ("srun", "squeue", "scancel", "sinfo")
_NODE = re.compile(r"[A-Za-z0-9_][\w.-]*")
_UNUSABLE = ("down", "drain", "fail", "error", "unk", "maint", "powering_down", "inval")
_CONTROLLER = re.compile(
    r"unable to contact slurm controller|socket timed out|establish.{0,20}config|dns srv|no answer"
    r"|munge|authentication|connection refused",
    re.I,
)


def need_known(job: Job) -> None:
    """UsageError for an option that this srun does not have; CannotMeasure where it does not run."""
    if not job.options.keys() & OPTIONS.keys():
        return
    done = ask("srun", "--help")
    if done.returncode:
        raise _unreachable(done.stderr)
    for name in job.options:
        if OPTIONS[name].of and not re.search(rf"--{name}(?![\w-])", done.stdout):
            srun = ask("srun", "--version").stdout.strip()
            if name.startswith("container-"):
                raise make_error("no_pyxis", name=name, srun=srun)
            raise make_error("no_srun_option", name=name, srun=srun)


def without_unusable(job: Job) -> tuple[Job, tuple[Finding, ...]]:
    """A sized job without the hosts that Slurm would not give us, and a finding for each.

    CannotMeasure where none is left.
    """
    for host in job.hosts:
        if not _NODE.fullmatch(host.name):
            raise make_error("slurm_node", host=host)
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
        return make_finding("allocation_unusable", name=name, subject=subject)
    state, reason = facts[0].strip(), facts[-1].strip()
    silent = state.endswith("*")
    if not (silent or state.lower().startswith(_UNUSABLE)):
        return None
    saw = f"state {state}" + (f", reason: {reason}" if reason not in ("", "none") else "")
    why = "slurmd does not answer slurmctld" if silent else ""
    return make_finding("unusable", name=name, state=state, saw=saw, because=why, subject=subject)


def need_possible(job: Job) -> None:
    """Ask Slurm whether it could ever start this; UsageError with its words where it could not."""
    if "jobid" in job.options:
        return
    done = ask(*command_line.request_words(job))
    if not done.returncode:
        return
    if _CONTROLLER.search(done.stderr):
        raise _unreachable(done.stderr)
    raise make_error("slurm_refuses", why=_last(done.stderr))


def _unreachable(said: str) -> WirespeedError:
    return make_error("no_controller", why=_last(said))


def _last(text: str) -> str:
    """Slurm's last words that mean something, without `srun: error:` before them."""
    lines = [line for line in text.splitlines() if line.strip() and "No error" not in line]
    return re.sub(r"^(?:\w+: )?(?:error|fatal): ", "", (lines or ["no reason given"])[-1]).strip()


WAIT = "24h"
"""How long a job may be pending, where `--with wait=` does not say."""


def _look(job: Job) -> Prepared:
    command_line.refuse_together(job.options)
    programs = _PROGRAMS + (("sbatch", "scontrol") if "batch" in job.options else ())
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and not job.written:
        raise make_error("no_slurm", missing=", ".join(missing))
    asks = not missing
    notes = [f"not checked here: {', '.join(missing)} not on PATH, so Slurm was not asked"]
    notes = notes if missing else []
    allocation, unasked = _allocation(job)
    job, choices = _placed(job, allocation)
    if asks:
        notes += lacking(job, lambda: need_known(job))
    job, size_choices = sized(job)
    findings: tuple[Finding, ...] = ()
    if asks and not notes:
        try:
            job, findings = without_unusable(job)
        except CannotMeasure as error:
            if not job.written:
                raise
            notes.append(f"not known here: {error.saw}")
    job, python_choices = _with_python(job)
    environment = {**interface_variables(job.interface), **padded(job.environment)}
    if uneven(job):  # else rank 0 is on the step's first node, as ranks find themselves
        environment.setdefault(MASTER, job.hosts[0].name)
    if inside := job.options.get("container-workdir"):
        environment[DIRECTORY] = inside  # the job's folder is another one in a container
    job = replace(job, environment=environment)
    if asks and not findings and not notes:
        notes += lacking(job, lambda: need_possible(job))
    prepared = SlurmPrepared(
        job=job,
        findings=findings,
        choices=(*choices, *size_choices, *python_choices),
        notes=(*notes, *unasked),
    )
    prepared.pieces(Path("/"))  # what cannot be written down is refused now
    return prepared


def _allocation(job: Job) -> tuple[Allocation | None, tuple[str, ...]]:
    """Return the allocation that we are in or that is named, and a note where it was not asked."""
    try:
        return allocation_of(os.environ, job.options), ()
    except CannotMeasure:
        if not job.written:
            raise
        given = job.options["jobid"]
        note = f"not known here: whether job {given} runs, and its nodes"
        if job.nodes is None and not job.hosts:
            note += "; --nodes=1 stands for the number of its nodes"
        return Allocation(job=given, nodes=1), (note,)


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
        command=(*words, "--", *command_line.srun_words(job, inside=bool(jobid))),
        environment={**job.environment, **({"SLURM_HOSTFILE": hosts} if uneven(job) else {})},
        files={hosts: command_line.host_file(job)} if uneven(job) else {},
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
        files={script: command_line.batch_script(job)},
        script=command_line.batch_script(job, by_hand=True),
        ends_with_stdin=True,
        queue_s=_wait_s(job),
    )


def _driver(module: str, job: Job) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", f"wirespeed.launchers.slurm.{module}"),
        f"--name={command_line.job_name(job)}",
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
    return command_line.seconds(job.options.get("wait", WAIT))


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
    if names := command_line.allocating(options):
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


ENGINE = Engine("slurm", _look)
