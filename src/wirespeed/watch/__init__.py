"""The user's own training, seen from inside while it runs: its steps, who is late, who hangs.

    wirespeed launch --watch --ranks 4 -- python train.py        where we start the ranks
    torchrun --nproc-per-node 4 -m wirespeed.watch train.py      where another launcher does
    import wirespeed.watch; wirespeed.watch.start()              first of all in the program

`inside/` runs in the ranks; its rows become a `StepTable`, which `judge` reads.
"""

__all__ = ["start", "step"]


def start() -> None:
    """Watch this process as a rank of its job, from now on; nothing where it is watched already.

    Rank 0 tells on stderr how the job does, and stores the run when it has ended.
    """
    import importlib
    import os
    import sys

    from wirespeed.launchers.watch_relay import INSIDE, VARIABLE
    from wirespeed.watch.beside import beside

    if not os.environ.get(VARIABLE):
        os.environ |= beside(os.getpid(), os.environ)
        sys.path.append(str(INSIDE))
        importlib.import_module("_wirespeed_inside").wait_for_torch()


def step() -> None:
    """A step of the program has ended; for loops without backward and optimizer. Call it every step."""
    import sys

    inside = sys.modules.get("_wirespeed_inside")
    if inside is not None:
        inside.safely(inside.RANK.step_by_hand)
