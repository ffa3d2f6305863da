"""One local rank: its program, once its environment says which one it is."""

import ctypes
import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from wirespeed.errors import WorldError
from wirespeed.node.identity import detect
from wirespeed.node.secret import Seal, SealedStore
from wirespeed.plan import Plan
from wirespeed.rank.program import run_rank, stay_away_if_told
from wirespeed.watchdog.heartbeat import Heartbeat

CONNECT_S = 20.0
_OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SET_NAME = 15
"""PR_SET_NAME."""


def run_local_rank() -> None:
    """Connect to the session, carry out the plan. What ends it early is reported, then raised."""
    environ = os.environ
    identity = detect({name: environ[name] for name in _OURS})
    if identity is None:
        raise WorldError("a local rank without a rank", expected=", ".join(_OURS))
    _name_process(f"rank {identity.rank}")
    plan = Plan.from_json(json.loads(Path(environ["WIRESPEED_PLAN"]).read_text()))
    host, _, port = environ["WIRESPEED_CONSOLE"].rpartition(":")
    heartbeat = Heartbeat(
        host,
        int(port),
        environ.pop("WIRESPEED_TOKEN"),  # no child of a rank needs it
        identity.rank,
        identity.world_size,
        stack_file=Path(environ["WIRESPEED_STACK"]),
    )
    stay_away_if_told(plan, identity.rank)
    heartbeat.connect(CONNECT_S)
    store = partial(_open_store, environ["WIRESPEED_STORE"], identity.world_size)
    run_rank(identity, plan, heartbeat, store, environ["WIRESPEED_BACKEND"])


def _name_process(name: str) -> None:
    """What ps and top call it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode())


def _open_store(path: str, world_size: int) -> SealedStore:
    """A store in a file of this user's own: one machine needs no port, so none can be taken."""
    import torch.distributed as dist

    return SealedStore(dist.FileStore(path, world_size), Seal(None, ""))
