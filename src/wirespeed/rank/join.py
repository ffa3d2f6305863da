"""Join the world: choose backend and device, open the process group, learn who is where."""

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from wirespeed.collectives.engines import open_engine
from wirespeed.errors import WorldError
from wirespeed.model.records import Choice
from wirespeed.node.identity import Identity, distinct_names, own_seat
from wirespeed.node.limits import llc_bytes
from wirespeed.plan import Plan
from wirespeed.rank.faulty_engine import CALL_FAULTS, DATA_FAULTS, Fault, FaultyEngine
from wirespeed.rank.place import Control, Place

SLACK_S = 60.0
"""The process group's own time-out lies this far behind the watchdog's, which names the culprit."""


def choose_backend(asked: str, identity: Identity) -> Choice:
    """NCCL where every local rank has a GPU of its own, else gloo; with the reason."""
    if asked != "auto":
        return Choice("backend", asked, "asked for")
    if not torch.cuda.is_available():
        return Choice("backend", "gloo", "torch sees no GPU here")
    gpus = torch.cuda.device_count()
    if not dist.is_nccl_available():
        return Choice("backend", "gloo", f"{gpus} GPUs, but this torch is built without NCCL")
    local = identity.local_world_size or 1
    if local > gpus:
        return Choice("backend", "gloo", f"{local} ranks on this node share {gpus} GPUs")
    return Choice("backend", "nccl", f"{gpus} GPUs for {local} local ranks")


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
    group = dist.new_group(backend="gloo")
    control = Control(group, identity.rank, identity.world_size)
    seat = (*own_seat(), identity.local_rank or 0, rack, _uuid(device))
    seats = control.objects(seat, (str, int, int, str, str))
    engine = open_engine(plan.engine, backend, device)
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
        racks=tuple(rack for _, _, _, rack, _ in seats),
        gpus=tuple(uuid for *_, uuid in seats),
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


def _device(backend: str, identity: Identity) -> torch.device:
    if backend != "nccl":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise WorldError(
            "backend nccl needs a GPU, and torch sees none on this node",
            expected="torch.cuda.is_available() on every node",
            next="wirespeed check --backend gloo",
        )
    device = torch.device("cuda", (identity.local_rank or 0) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
