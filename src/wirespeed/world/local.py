"""What this machine offers to ranks that start here, found without importing torch."""

import os
from importlib.util import find_spec
from pathlib import Path

from wirespeed.errors import CannotMeasure
from wirespeed.records import Choice
from wirespeed.units import format_size
from wirespeed.world.limits import memory_available_bytes

__all__ = ["choose_ranks", "count_gpus", "require_torch"]

DEFAULT_RANKS = 4
RANK_BYTES = 145 << 20
"""Memory of its own that a process takes by importing torch (2.13 for CPUs: psutil's `uss`)."""


def count_gpus(root: Path = Path("/")) -> int:
    """GPUs that a process here may use: device files, cut by CUDA_VISIBLE_DEVICES."""
    devices = list((root / "dev").glob("nvidia[0-9]*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not devices:
        return len(devices)
    return min(len(devices), len([part for part in visible.split(",") if part.strip("- ")]))


def choose_ranks(asked: int | None, backend: str) -> Choice:
    """How many local ranks: one a GPU; without GPUs 4, or the cores if those are more (to 8).

    CannotMeasure for more than the memory holds: better than the kernel ending some of them.
    """
    if asked is not None:
        _refuse_beyond_memory(asked, memory_available_bytes())
        return Choice("ranks", str(asked), "asked for")
    gpus = count_gpus()
    if gpus and backend != "gloo":
        return Choice("ranks", str(gpus), f"{gpus} GPUs on this machine")
    cores = len(os.sched_getaffinity(0))
    if cores > DEFAULT_RANKS:
        return Choice("ranks", str(min(cores, 8)), f"no GPU; {cores} cores")
    return Choice("ranks", str(DEFAULT_RANKS), f"no GPU; 4 is the default on {cores} cores")


def _refuse_beyond_memory(ranks: int, available: int) -> None:
    """`available`: bytes, 0 where that is not known."""
    if available and ranks > 1 and ranks * RANK_BYTES > available:
        most = max(1, available // RANK_BYTES)
        raise CannotMeasure(
            f"--ranks {ranks} would take {format_size(ranks * RANK_BYTES)} of memory before the "
            f"first operation; {format_size(available)} are available here",
            expected=f"at most {most} ranks on this machine",
            next=f"the same command with --ranks {most}",
        )


def require_torch() -> None:
    """CannotMeasure when torch is not installed; ranks import it, this process does not."""
    if find_spec("torch") is None:
        raise CannotMeasure(
            "torch is not installed in this environment, and the ranks need it",
            expected="torch 2.6 or later",
            next="pip install 'wirespeed[torch]'  (or your site's build of torch)",
        )
