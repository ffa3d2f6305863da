"""Joining a world: choose backend and device, open the process group, learn who is where."""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from wirespeed.collectives.engines import open_engine
from wirespeed.errors import WorldError
from wirespeed.model.records import Choice
from wirespeed.node.identity import Identity, distinct_names, own_seat
from wirespeed.node.limits import llc_bytes
from wirespeed.node.secret import SealedStore
from wirespeed.plan import Plan
from wirespeed.rank.faulty_engine import CALL_FAULTS, DATA_FAULTS, Fault, FaultyEngine
from wirespeed.rank.place import Control, Place, synchronize
from wirespeed.training.exchange import read

SLACK_S = 60.0
"""The process group's own time-out lies this far behind the watchdog's, which names the culprit."""
_SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
_SHARES_SINCE = (2, 30)
"""NCCL from which that variable lets several ranks use one GPU (its init.cc); older ones refuse them."""


def choose_backend(asked: str, identity: Identity, store: SealedStore) -> Choice:
    """NCCL where every rank has a GPU of its own, else gloo; with the reason. The same on every rank.

    Where somebody else started the ranks each may see its own GPU only (`srun --gpus-per-task=1`), or
    one may see none, so they tell each other in the store. Ranks that a session of ours started on this
    machine, which share a file as their store, all see the same.
    """
    if asked != "auto":
        return Choice("backend", asked, "asked for")
    lacks = _lacks()
    if identity.world_size == 1 or isinstance(store.store, dist.FileStore):
        if lacks:
            return Choice("backend", "gloo", lacks)
        gpus, local = torch.cuda.device_count(), identity.local_world_size or 1
        if local > gpus:
            return _of_shared(f"{local} ranks on this node share {gpus} GPUs")
        return Choice("backend", "nccl", f"{gpus} GPUs for {local} local ranks")
    return _agreed([lacks, "" if lacks else _uuid(_gpu(identity))], identity, store)


def _lacks() -> str:
    """Why NCCL cannot be used here, or nothing."""
    if not torch.cuda.is_available():
        return "torch sees no GPU here"
    if not dist.is_nccl_available():
        gpus = torch.cuda.device_count()
        return f"{gpus} GPUs, but this torch is built without NCCL"
    return ""


def _of_shared(said: str) -> Choice:
    """said: who shares a GPU."""
    if os.environ.get(_SHARING) != "1":
        return Choice("backend", "gloo", said)
    version = torch.cuda.nccl.version()
    if version < _SHARES_SINCE:
        told = ".".join(map(str, version))
        return Choice(
            "backend", "gloo", f"{said}, which NCCL {told} refuses: {_SHARING} is of 2.30"
        )
    return Choice("backend", "nccl", f"{said}, as {_SHARING}=1 allows")


def _agreed(own: Sequence[str], identity: Identity, store: SealedStore) -> Choice:
    """own: (what this rank lacks, the UUID of its GPU). Rank 0 decides.

    WorldError for what no rank of this world has told.
    """
    key = "wirespeed/backend"
    store.set(f"{key}/{identity.rank}", json.dumps(own))
    try:
        if identity.rank == 0:
            keys = [f"{key}/{rank}" for rank in range(identity.world_size)]
            choice = of_all([read((str, str), json.loads(store.get(one))) for one in keys])
            store.set(key, json.dumps([choice.value, choice.reason]))
        value, reason = read((str, str), json.loads(store.get(key)))
        if value not in ("gloo", "nccl"):
            raise ValueError(f"{value!r:.40} is neither gloo nor nccl")
    except ValueError as error:
        raise WorldError(
            f"the store holds a choice of the backend that no rank has told: {error}",
            expected="nobody else who writes to the store",
        ) from error
    return Choice("backend", value, reason)


def of_all(told: Sequence[Sequence[str]]) -> Choice:
    """told: (what it lacks, the UUID of its GPU, empty where this torch does not tell), by rank."""
    users: dict[str, list[int]] = defaultdict(list)
    for rank, (lacks, gpu) in enumerate(told):
        if lacks:
            return Choice("backend", "gloo", f"rank {rank}: {lacks}" if rank else lacks)
        users[gpu or f"of rank {rank}"].append(rank)
    shared = max(users.values(), key=len)
    if len(shared) > 1:
        ranks = ", ".join(map(str, shared[:8])) + (", …" if len(shared) > 8 else "")
        return _of_shared(f"ranks {ranks} share one GPU")
    return Choice("backend", "nccl", f"{len(users)} GPUs for {len(told)} ranks")


def join(
    identity: Identity,
    plan: Plan,
    store: dist.Store,
    backend: str,
    tick: Callable[[], None],
    busy: Callable[[float | None], None],
    rack: str = "",
) -> Place:
    """Open the process group; collective. WorldError if the backend cannot be opened here.

    rack: the smallest known group of neighbours that this node is in, from a rank that knows it.
    """
    device = _device(backend, identity)
    kinds = f"cpu:gloo,cuda:{backend}" if device.type == "cuda" else backend
    dist.init_process_group(
        kinds,
        store=dist.PrefixStore("wirespeed/node", store),
        rank=identity.rank,
        world_size=identity.world_size,
        timeout=timedelta(seconds=plan.op_timeout_s + SLACK_S),
        device_id=device if device.type == "cuda" else None,
    )
    if device.type == "cuda":  # what connects belongs to joining, and has its time
        dist.all_reduce(torch.zeros(1, device=device))
        synchronize(device)
    group = dist.new_group(backend="gloo")
    control = Control(group, identity.rank, identity.world_size)
    seat = (*own_seat(), identity.local_rank or 0, rack, _uuid(device), _capability(device))
    seats = control.objects(seat, (str, int, int, str, str, int))
    engine = open_engine(plan.engine, backend, device, min(least for *_, least in seats))
    for text in plan.faults:
        fault = Fault.parse(text)
        if fault.kind in DATA_FAULTS | CALL_FAULTS:
            engine = FaultyEngine(engine, fault, identity.rank)
    torch.manual_seed(plan.seed)
    return Place(
        rank=identity.rank,
        world_size=identity.world_size,
        hosts=distinct_names([(host, space) for host, space, *_ in seats]),
        local_ranks=tuple(local for _, _, local, *_ in seats),
        racks=tuple(rack for _, _, _, rack, *_ in seats),
        gpus=tuple(uuid for *_, uuid, _ in seats),
        engine=engine,
        control=control,
        store=dist.PrefixStore("wirespeed/marks", store),
        tick=tick,
        busy=busy,
        cache_bytes=llc_bytes() if device.type == "cpu" else torch_cache_bytes(device),
        groups={},
    )


def leave(place: Place) -> None:
    """Close the process group, after every rank has come here."""
    place.control.barrier()
    place.engine.close()
    dist.destroy_process_group()


def torch_cache_bytes(device: torch.device) -> int | None:
    """The GPU's L2 cache, where torch tells it."""
    size = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)
    return int(size) if size else None


def _uuid(device: torch.device) -> str:
    """The GPU's, as NVML spells it; empty for a CPU, or where this torch does not tell."""
    if device.type != "cuda":
        return ""
    told = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{told}" if told else ""


def _capability(device: torch.device) -> int:
    """The GPU's compute capability: 90 for Hopper; 0 for a CPU."""
    if device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _gpu(identity: Identity) -> torch.device:
    return torch.device("cuda", (identity.local_rank or 0) % torch.cuda.device_count())


def _device(backend: str, identity: Identity) -> torch.device:
    if backend != "nccl":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise WorldError(
            "backend nccl needs a GPU, and torch sees none on this node",
            expected="torch.cuda.is_available() on every node",
            next="wirespeed check --backend gloo",
        )
    # Of a group that is bound to a GPU torch 2.6 and 2.7.0 make communicators without waiting for
    # them, in which NCCL 2.26 hangs (pytorch's issue 153960).
    os.environ.setdefault("TORCH_NCCL_USE_COMM_NONBLOCKING", "0")
    device = _gpu(identity)
    torch.cuda.set_device(device)
    return device
