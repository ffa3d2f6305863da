"""Which mpirun there is, of which make, and what it would run on without being told hosts."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.mpi.hydra import INTEL, MPICH
from wirespeed.launchers.mpi.openmpi import FIVE, FOUR
from wirespeed.launchers.mpi.words import Flavour

__all__ = ["FLAVOURS", "first_of_allocation", "flavour_of", "mpirun_path", "with_own_folder"]

FLAVOURS: dict[str, Flavour] = {one.name: one for one in (FIVE, FOUR, MPICH, INTEL)}
_VERSION_S = 30.0
_INSTALL = "pip install 'wirespeed[mpi]', or apt-get install openmpi-bin, or pip install mpich"
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "LOADL_HOSTFILE")
"""A scheduler's job that mpirun asks for its nodes."""


def mpirun_path(asked: str) -> str:
    """Absolute path: what was asked for, else from PATH, else beside this Python.

    An absolute path makes Open MPI look for its daemon at the same place on the other nodes.
    """
    beside = str(Path(sys.executable).parent)
    if asked:
        found = shutil.which(Path(asked).expanduser())
        if found is None:
            raise UsageError(f"--with mpirun={asked}: no such program", expected="a path to mpirun")
    else:
        found = shutil.which("mpirun") or shutil.which("mpirun", path=beside)
        if found is None:
            raise CannotMeasure("there is no mpirun here", expected="mpirun on PATH", next=_INSTALL)
    return str(Path(found).absolute())


def flavour_of(program: str) -> Flavour:
    """What `mpirun --version` says; CannotMeasure where that is nothing we know."""
    try:
        done = subprocess.run(
            [program, "--version"],
            env={**os.environ, **with_own_folder(program)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotMeasure(f"{program} --version: {error}", expected="its version") from error
    said = done.stdout + done.stderr
    for flavour in FLAVOURS.values():
        if flavour.recognises(said):
            return flavour
    raise CannotMeasure(
        f"{program} --version says {' '.join(said.split())[:200]!r}",
        expected="Open MPI, MPICH (Hydra) or Intel MPI",
        next=f"name its kind: --with flavour={'|'.join(FLAVOURS)}; or another: --with mpirun=PATH",
    )


def with_own_folder(program: str) -> dict[str, str]:
    """PATH with the program's own folder first: Intel's mpirun is a script that searches there."""
    folder, path = str(Path(program).parent), os.environ.get("PATH", os.defpath)
    return {} if path.split(os.pathsep)[0] == folder else {"PATH": f"{folder}{os.pathsep}{path}"}


def first_of_allocation(environ: Mapping[str, str]) -> str | None:
    """The first node of the scheduler's job that we are in; None where there is none.

    Where the list cannot be read, the node that runs the script is the first one.
    """
    if not any(environ.get(name) for name in _ALLOCATIONS):
        return None
    nodes = environ.get("SLURM_JOB_NODELIST", "") or _first_line(environ.get("PBS_NODEFILE", ""))
    # `node-[3-5,7],other-[1-2]`: the first is node-3.
    first = re.match(r"(?:[^,\[\s]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0]) if first else os.uname().nodename


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0] if path else ""
    except OSError:
        return ""
