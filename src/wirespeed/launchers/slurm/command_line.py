"""The words of srun and sbatch, and the batch script. Pure: nothing is asked, nothing is started.

Why these words, beside the size:

- `--export=ALL`: ranks find the environment of this process, as Slurm's users expect, with the job's
  own variables in it; values travel in Slurm's authenticated messages, never on a command line. A
  list of names instead would take PATH and LD_LIBRARY_PATH from the ranks, and lets sbatch run the
  user's login shell on a node (https://slurm.schedmd.com/sbatch.html, --export, --get-user-env). It
  is said since `SLURM_EXPORT_ENV=NONE`, left by `#SBATCH --export=NONE`, would take everything away.
- `--kill-on-bad-exit=0 --wait=0`: when a rank fails, the supervisor gives the others their grace.
  A site's KillOnBadExit or WaitTime would kill them before they can say what they know.
- no `--unbuffered`: slurmstepd then forwards whole lines. But what is left when a rank's output ends
  goes in blocks of 1,024 bytes, cut anywhere, between which srun prints other ranks' lines (seen on
  22.05 under load): so frames are padded to 512 bytes.
- `--chdir=/`: the rank's wrapper goes to the job's folder itself, or home where there is none.

The options of Slurm that `--with` takes: what a value may look like, and who is given it.

Each is one word, `--key=value`, to srun and sbatch (https://slurm.schedmd.com/srun.html). Values are
held to characters that neither Slurm nor the shell of a batch script could take for something else.
"""

import hashlib
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wirespeed.errors import UsageError
from wirespeed.launchers.base import EngineOption, Job
from wirespeed.launchers.rank_wrapper import wrapped

Scope = Literal["allocation", "step", "both", "ours"]
"""Who takes it: what asks for nodes; what starts ranks on them (pyxis's, for instance, also where
the nodes are ours already); both; or nobody but us."""

_NAME = r"[\w@+][\w.@+-]*"
_TIME = r"\d+(?::\d{1,2}){0,2}|\d+-\d{1,2}(?::\d{1,2}){0,2}|UNLIMITED|INFINITE"
_TEXT = r"[^\x00-\x1f\x7f]+"
_GRES = r"[a-zA-Z]\w*(?:[:/][\w.-]+)*"
_WAIT = re.compile(r"(\d+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class _Option:
    help: str
    scope: Scope
    pattern: str = ""
    """Empty: a flag."""
    sample: str = ""


OPTIONS: dict[str, _Option] = {
    "partition": _Option("partition", "allocation", rf"{_NAME}(?:,{_NAME})*", "gpu"),
    "account": _Option("account that is charged", "allocation", _NAME, "ml-research"),
    "qos": _Option("quality of service", "allocation", _NAME, "high"),
    "time": _Option("time limit: minutes, H:M:S or D-H:M", "both", _TIME, "2:00:00"),
    "gres": _Option("generic resources of each node", "both", rf"{_GRES}(?:,{_GRES})*", "gpu:8"),
    "gpus-per-node": _Option("GPUs of each node", "both", r"(?:[a-zA-Z][\w.-]*:)?\d+", "h100:8"),
    "cpus-per-task": _Option("cores of each rank", "both", r"[1-9]\d*", "12"),
    "mem": _Option("memory of each node; 0: all of it", "both", r"\d+[KMGT]?", "0"),
    "exclusive": _Option("no other job on these nodes", "allocation"),
    "constraint": _Option(
        "features of the nodes", "allocation", r"[\w(\[][\w.,&|*()\[\]!:@+-]*", "h100&ib"
    ),
    "exclude": _Option("nodes not to use", "allocation", r"\w[\w.,\[\]-]*", "node-7,node-9"),
    "reservation": _Option("reservation", "allocation", rf"{_NAME}(?:,{_NAME})*", "maintenance"),
    "switches": _Option(
        "at most so many leaf switches, and how long to wait for that",
        "allocation",
        rf"\d+(?:@(?:{_TIME}))?",
        "1@60:00",
    ),
    "segment": _Option(
        "nodes a block of a block topology, such as an NVL72 rack (Slurm 24.05)",
        "allocation",
        r"[1-9]\d*",
        "16",
    ),
    "container-image": _Option("image of the ranks (pyxis, enroot)", "step", _TEXT, "/img/a.sqsh"),
    "container-mounts": _Option("SRC:DST[:FLAGS],… in it", "step", _TEXT, "/data:/data:ro"),
    "container-workdir": _Option("working directory in it", "step", r"/[^\x00-\x1f\x7f]*", "/work"),
    "mpi": _Option("PMI that Slurm offers the ranks", "step", r"\w+", "pmix"),
    "cpu-bind": _Option("binding of ranks to cores", "step", r"[\w,:]+", "none"),
    "overcommit": _Option("more ranks than cores", "both"),
    "overlap": _Option("share the resources of a step that runs", "step"),
    "jobid": _Option("start in this allocation of mine", "step", r"[1-9]\d*(?:[_+]\d+)?", "811"),
    "batch": _Option("as a batch job: sbatch, and its output as it comes", "ours"),
    "output": _Option(
        "of a batch job: folder for its output, shared by the nodes, which is kept",
        "ours",
        r"/[^\x00-\x1f\x7f\\]*",
        "/shared/logs",
    ),
    "wait": _Option(
        "how long the job may be pending: 90s, 30m, 24h, 2d", "ours", _WAIT.pattern, "24h"
    ),
}
"""By name, in the order in which they are passed."""

_TOGETHER = (("gres", "gpus-per-node"),)


def engine_options() -> tuple[EngineOption, ...]:
    """As `wirespeed launch --list` shows them."""
    return tuple(
        EngineOption(
            name, f"{one.help}, such as {one.sample}" if one.sample else one.help, not one.pattern
        )
        for name, one in OPTIONS.items()
    )


def checked(options: Mapping[str, str]) -> None:
    """UsageError for a value that is none, and for options that exclude each other."""
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is None:
            raise UsageError(f"--on slurm has no option {name!r}", expected=", ".join(OPTIONS))
        if option.pattern and not re.fullmatch(option.pattern, value):
            raise UsageError(
                f"--with {name}={value!r}: no value for {name} ({option.help})",
                expected=f"such as --with {name}={option.sample}",
            )
    for one, other in _TOGETHER:
        if one in options and other in options:
            raise UsageError(f"--with {one} and --with {other}", expected="one of them")
    if "output" in options and "batch" not in options:
        raise UsageError("--with output is about a batch job", expected="--with batch as well")


def passed(options: Mapping[str, str], *scopes: Scope) -> list[str]:
    """The words for Slurm of those with one of these scopes."""
    return [
        f"--{name}={options[name]}" if one.pattern else f"--{name}"
        for name, one in OPTIONS.items()
        if name in options and one.scope in scopes
    ]


def allocating(options: Mapping[str, str]) -> list[str]:
    """Names of those that ask for nodes: nothing that a step could have inside an allocation."""
    return [name for name in options if OPTIONS[name].scope == "allocation"]


def seconds(text: str) -> float:
    """Of a checked `wait`."""
    found = _WAIT.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found else 0.0


_ALWAYS = ("--export=ALL", "--input=none", "--kill-on-bad-exit=0", "--wait=0", "--chdir=/")


def job_name(job: Job) -> str:
    """What squeue calls it; of this job alone, so that it is found again. Tells nothing secret."""
    mark = f"{job.token}|{job.command}|{job.size}"
    return f"wirespeed-{hashlib.sha256(mark.encode()).hexdigest()[:8]}"


def uneven(job: Job) -> bool:
    """Whether hosts have unlike numbers of ranks: then a file tells Slurm each rank's host."""
    each = job.ranks_per_node or 1
    return len({host.slots or each for host in job.hosts}) > 1


def host_file(job: Job) -> str:
    """A line a rank, for SLURM_HOSTFILE."""
    each = job.ranks_per_node or 1
    return "".join(f"{host.name}\n" * (host.slots or each) for host in job.hosts)


def srun_words(job: Job, *, inside: bool) -> list[str]:
    """srun with the ranks; `inside` an allocation it asks for no nodes of its own."""
    scopes = ("step", "both") if inside else ("allocation", "both", "step")
    return [
        "srun",
        f"--job-name={job_name(job)}",
        *_size(job),
        *passed(job.options, *scopes),
        *_ALWAYS,
        *wrapped(_python(job), job.command),
    ]


def request_words(job: Job) -> list[str]:
    """srun that asks whether the request could ever run, and runs nothing."""
    # Asked without SLURM_HOSTFILE, srun would refuse an arbitrary distribution.
    size = [word for word in _size(job) if not word.startswith("--distribution=")]
    named = f"--nodelist={','.join(host.name for host in job.hosts)}"
    size += [named] if job.hosts and named not in size else []
    return ["srun", "--test-only", *size, *passed(job.options, "allocation", "both"), "true"]


def batch_script(job: Job, *, by_hand: bool = False) -> str:
    """The script that sbatch is given.

    `by_hand`: by a user, some day: variables of the job are in it. Else they are in the environment
    of sbatch, and no value is in the script.
    """
    if uneven(job):
        raise UsageError(
            "hosts with unlike numbers of ranks in a batch job",
            expected="the same slots for every host with --with batch",
        )
    asked = [f"--job-name={job_name(job)}", *_size(job, spread=False)]
    asked += passed(job.options, "allocation", "both")
    # Whoever follows it has seen its ranks end: a second start would be another job. If a site starts
    # it again all the same, nothing that it said is lost.
    asked += ["--no-requeue", "--open-mode=append", "--export=ALL", "--chdir=/"]
    folder = job.directory.rstrip("/")
    if by_hand and re.fullmatch(r"[\w./-]+", folder):  # else Slurm's own choice: below --chdir
        asked.append(f"--output={folder}/slurm-%j.out")
    words = srun_words(job, inside=True)
    start = next(index for index, word in enumerate(words) if not word.startswith(("srun", "--")))
    lines = [*(shlex.quote(word) for word in words[:start]), shlex.join(words[start:])]
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH {word}" for word in asked),
            *(_exports(job) if by_hand else ()),
            'echo "wirespeed: job $SLURM_JOB_ID began on $SLURMD_NODENAME"',
            " \\\n  ".join(lines),
            "code=$?",
            'echo "wirespeed: job $SLURM_JOB_ID ended with $code"',
            'exit "$code"',
            "",
        ]
    )


def _exports(job: Job) -> list[str]:
    settings = sorted(job.environment.items())
    return [f"export {name}={shlex.quote(value)}" for name, value in settings]


def sbatch_words(script: Path, output: Path | None = None) -> list[str]:
    """sbatch that submits it and prints the job's number; without `output` it is only checked."""
    if output is None:
        return ["sbatch", "--test-only", str(script)]
    told = str(output).replace("%", "%%")
    return ["sbatch", "--parsable", f"--output={told}", f"--error={told}", str(script)]


def _size(job: Job, *, spread: bool = True) -> list[str]:
    nodes = len(job.hosts) or job.nodes or 1
    words = [f"--nodes={nodes}", f"--ntasks={job.size}"]
    if uneven(job):
        return [*words, "--distribution=arbitrary"]
    words += [f"--ntasks-per-node={job.size // nodes}"]
    words += ["--distribution=block"] if spread else []
    words += [f"--nodelist={','.join(host.name for host in job.hosts)}"] if job.hosts else []
    return words


def _python(job: Job) -> str:
    return job.python or sys.executable
