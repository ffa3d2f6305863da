"""What DeepSpeed's launchers need beyond what DeepSpeed tells them: words for pdsh, mpirun, srun."""

import os
import shlex
from collections.abc import Mapping, Sequence

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Job
from wirespeed.launchers.deepspeed.environment import CARRIED

__all__ = ["launcher_args", "ssh_args"]

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
        raise UsageError(
            f"DeepSpeed's launcher {launcher} gives every node as many ranks as the others",
            expected="the same slots on each host",
        )
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
