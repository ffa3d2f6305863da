"""How a job's environment goes along with DeepSpeed, whose own ways write it on command lines.

Its pdsh launcher starts a node with `export NAME=VALUE; …` on ssh's command line, and the others
tell mpirun or srun `-x NAME=VALUE` and the like: visible to all in the lists of processes. The pairs
are those of the file that DS_ENV_FILE names and, unasked, the launching process's own variables of
some families (deepspeed/launcher/runner.py and multinode_runner.py, `add_export`). So DeepSpeed is
given neither: what ranks need is carried around it, in a file of each node or in one variable that
is told by name, and `far` unpacks it.
"""

import base64
import json
from collections.abc import Iterable, Mapping

from wirespeed.world.redact import is_secret, redact_value

__all__ = ["CARRIED", "PYTHON_PATH", "bare", "carried", "pack", "unpack"]

CARRIED = "WIRESPEED_CARRIED"
"""Holds the ranks' variables where the engine hands on a variable by its name."""
PYTHON_PATH = "PYTHONPATH"
_FAMILIES = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
"""Prefixes of what DeepSpeed exports unasked: EXPORT_ENVS of its runner, and its CUDA part's NCCL."""


def carried(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What ranks get: the job's variables, and what DeepSpeed would have exported without secrets."""
    asked = {name: environ[name] for name in names if name in environ}
    unasked = {
        name: value
        for name, value in environ.items()
        if name.startswith(_FAMILIES) and not is_secret(name) and redact_value(value) == value
    }
    return {**unasked, **asked}


def bare(environ: Mapping[str, str]) -> dict[str, str]:
    """Without anything that DeepSpeed would write on a command line of its own accord."""
    return {name: value for name, value in environ.items() if not name.startswith(_FAMILIES)}


def pack(environment: Mapping[str, str]) -> str:
    """One word."""
    return base64.urlsafe_b64encode(json.dumps(dict(environment)).encode()).decode()


def unpack(text: str) -> dict[str, str]:
    """The variables of `pack`; ValueError for anything else."""
    told = json.loads(base64.urlsafe_b64decode(text))
    return {str(name): str(value) for name, value in told.items()}
