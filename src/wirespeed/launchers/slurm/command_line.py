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
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Job
from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.launchers.texts import engine_texts, make_error

_WAIT = re.compile(r"(\d+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


OPTIONS = {option.name: option for option in engine_texts("slurm").options}
"""By name, in the order in which they are passed."""

_TOGETHER = (("gres", "gpus-per-node"),)


def refuse_together(options: Mapping[str, str]) -> None:
    """UsageError for options that exclude each other, or need another."""
    for one, other in _TOGETHER:
        if one in options and other in options:
            raise UsageError(f"--with {one} and --with {other}", expected="one of them")
    if "output" in options and "batch" not in options:
        raise UsageError("--with output is about a batch job", expected="--with batch as well")


def passed(options: Mapping[str, str], *to: str) -> list[str]:
    """The words for Slurm of those that one of these is given: the `allocation`, the `step`."""
    return [
        f"--{name}" if one.flag else f"--{name}={options[name]}"
        for name, one in OPTIONS.items()
        if name in options and set(one.of) & set(to)
    ]


def allocating(options: Mapping[str, str]) -> list[str]:
    """Names of those that ask for nodes: nothing that a step could have inside an allocation."""
    return [name for name in options if OPTIONS[name].of == ("allocation",)]


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
    return [
        "srun",
        f"--job-name={job_name(job)}",
        *_size(job),
        *passed(job.options, *(() if inside else ("allocation",)), "step"),
        *_ALWAYS,
        *wrapped(job.python or sys.executable, job.command),
    ]


def request_words(job: Job) -> list[str]:
    """srun that asks whether the request could ever run, and runs nothing."""
    # Asked without SLURM_HOSTFILE, srun would refuse an arbitrary distribution.
    size = [word for word in _size(job) if not word.startswith("--distribution=")]
    named = f"--nodelist={','.join(host.name for host in job.hosts)}"
    size += [named] if job.hosts and named not in size else []
    return ["srun", "--test-only", *size, *passed(job.options, "allocation"), "true"]


def batch_script(job: Job, *, by_hand: bool = False) -> str:
    """The script that sbatch is given.

    `by_hand`: by a user, some day: variables of the job are in it. Else they are in the environment
    of sbatch, and no value is in the script.
    """
    if uneven(job):
        raise make_error("batch_uneven")
    asked = [f"--job-name={job_name(job)}", *_size(job, spread=False)]
    asked += passed(job.options, "allocation")
    # Whoever follows it has seen its ranks end: a second start would be another job. If a site starts
    # it again all the same, nothing that it said is lost.
    asked += ["--no-requeue", "--open-mode=append", "--export=ALL", "--chdir=/"]
    folder = job.directory.rstrip("/")
    if by_hand and re.fullmatch(r"[\w./-]+", folder):  # else Slurm's own choice: below --chdir
        asked.append(f"--output={folder}/slurm-%j.out")
    words = srun_words(job, inside=True)
    start = next(index for index, word in enumerate(words) if not word.startswith(("srun", "--")))
    settings = sorted(job.environment.items())
    exports = [f"export {name}={shlex.quote(value)}" for name, value in settings]
    lines = [*(shlex.quote(word) for word in words[:start]), shlex.join(words[start:])]
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH {word}" for word in asked),
            *(exports if by_hand else ()),
            'echo "wirespeed: job $SLURM_JOB_ID began on $SLURMD_NODENAME"',
            " \\\n  ".join(lines),
            "code=$?",
            'echo "wirespeed: job $SLURM_JOB_ID ended with $code"',
            'exit "$code"',
            "",
        ]
    )


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
