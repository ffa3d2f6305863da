"""`python -m wirespeed.ranks`: one local rank, started by the launcher; not for hands."""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from wirespeed.plan import Plan
from wirespeed.ranks.program import leave_at_once, run_rank, stay_away_if_told
from wirespeed.world.identity import detect
from wirespeed.world.secret import Seal, SealedStore
from wirespeed.world.watch.beacon import Beacon

CONNECT_S = 20.0
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def main() -> int:
    environ = os.environ
    identity = detect({name: environ[name] for name in _OURS})
    if identity is None:
        sys.stderr.write("this program is started by wirespeed, not by hand\n")
        return 2
    # A rank that is stopped would never see that its console was killed.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    plan = Plan.from_json(json.loads(Path(environ["WIRESPEED_PLAN"]).read_text()))
    host, _, port = environ["WIRESPEED_CONSOLE"].rpartition(":")
    beacon = Beacon(
        host,
        int(port),
        environ.pop("WIRESPEED_TOKEN"),  # no child of a rank needs it
        identity.rank,
        identity.world_size,
        stack_file=Path(environ["WIRESPEED_STACK"]),
    )
    stay_away_if_told(plan, identity.rank)
    beacon.connect(CONNECT_S)
    store = partial(_open_store, environ["WIRESPEED_STORE"], identity.world_size)
    run_rank(identity, plan, beacon, store, environ["WIRESPEED_BACKEND"])
    return 0


_OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def _open_store(path: str, world_size: int) -> SealedStore:
    """A store in a file of this user's own: one machine needs no port, so none can be taken."""
    import torch.distributed as dist

    return SealedStore(dist.FileStore(path, world_size), Seal(None, ""))


if __name__ == "__main__":
    leave_at_once(main())
