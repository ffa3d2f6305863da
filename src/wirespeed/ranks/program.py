"""What a rank does from its first line to its last."""

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NoReturn

from wirespeed import __version__
from wirespeed.errors import WirespeedError
from wirespeed.plan import Plan
from wirespeed.ranks.faults import Fault
from wirespeed.world.identity import Identity
from wirespeed.world.watch.beacon import Beacon

if TYPE_CHECKING:
    import torch.distributed as dist

    from wirespeed.ranks.place import Place

__all__ = ["leave_at_once", "run_rank", "stay_away_if_told"]


def run_rank(
    identity: Identity,
    plan: Plan,
    beacon: Beacon,
    open_store: Callable[[], "dist.Store"],
    backend: str,
) -> None:
    """Join, tell the facts, carry out the plan, leave. An exception is reported, then raised."""
    try:
        beacon.phase("importing", bound_s=plan.startup_timeout_s)
        import torch.distributed  # noqa: F401  (the slow import, named to the watchdog)

        beacon.phase("joining", bound_s=plan.startup_timeout_s)
        place = _join(identity, plan, beacon, open_store(), backend)
        beacon.phase("running")
        from wirespeed.ranks.steps import process_faults, run_steps

        run_steps(place, plan, beacon)
        if plan.pairs is not None:
            from wirespeed.ranks.locating import run_pairs

            faults = process_faults(plan, place.rank)
            run_pairs(place, plan.pairs, plan.seed, beacon, faults)
        from wirespeed.ranks.join import leave

        beacon.enter("leaving the process group")
        leave(place)
    except WirespeedError as error:
        beacon.record("refusal", {"rank": identity.rank, **error.to_json()})
        beacon.failed(error)
        raise
    except BaseException as error:
        beacon.failed(error)
        raise
    beacon.finish(0)
    if _has(plan, "abort", identity.rank):
        os.abort()


def leave_at_once(code: int) -> NoReturn:
    """End without the interpreter's teardown, after what was said is flushed.

    Backend threads that are torn down late end about one run in twenty by SIGABRT (seen with torch
    2.13 on gloo), which a launcher takes for a failed job; and a FileStore that is torn down writes
    its file anew.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stay_away_if_told(plan: Plan, rank: int) -> None:
    """Act out the fault `absent`: never come, for as long as anybody waits."""
    if _has(plan, "absent", rank):
        time.sleep(2 * plan.startup_timeout_s)
        sys.exit(1)


def _has(plan: Plan, kind: str, rank: int) -> bool:
    faults = [Fault.parse(text) for text in plan.faults]
    return any(fault.kind == kind and fault.rank == rank for fault in faults)


def _join(
    identity: Identity, plan: Plan, beacon: Beacon, store: "dist.Store", backend: str
) -> "Place":
    from wirespeed.ranks.join import choose_backend, join

    choice = choose_backend(backend, identity)
    place = join(
        identity,
        plan,
        store,
        choice.value,
        beacon.tick,
        lambda bound_s: beacon.phase("running", bound_s=bound_s),
    )
    if identity.rank == 0:
        beacon.record("choices", {"choices": [asdict(choice)]})
        beacon.record("versions", _versions())
        beacon.record("joined", {"backend": choice.value, "hosts": list(place.hosts)})
    _tell_facts(place, beacon)
    place.control.barrier()
    return place


def _tell_facts(place: "Place", beacon: Beacon) -> None:
    """The first rank of each node gathers what is to be known of it."""
    from wirespeed.world.facts import gather_node

    host = place.hosts[place.rank]
    here = [rank for rank, name in enumerate(place.hosts) if name == host]
    if place.rank == here[0]:
        beacon.record("node", asdict(replace(gather_node(here), host=host)))


def _versions() -> dict[str, str]:
    import torch

    versions = {
        "wirespeed": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
        if torch.distributed.is_nccl_available() and torch.cuda.is_available():
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for name in ("deepspeed", "mpi4py"):
        if name in sys.modules:
            versions[name] = str(sys.modules[name].__version__)
    return versions
