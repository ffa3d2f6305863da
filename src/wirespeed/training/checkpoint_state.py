"""What a checkpoint holds: parameters, buffers, the optimizer, random numbers, the loss scale.

Strategies whose ranks hold the same have one state for all (`shared_state`, made on rank 0), with what
each rank has of its own beside it; strategies that shard have one state a rank (`part_state`). All of
it are tensors, numbers and texts, so that it is read with `weights_only=True`.
"""

import io
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from wirespeed.errors import UsageError
from wirespeed.training.checkpoint_files import Refused
from wirespeed.training.contract import Trainer
from wirespeed.training.sharded_optimizer import ShardedOptimizer, whole_state
from wirespeed.training.strategies.plain import ModuleTrainer

State = dict[str, Any]


def to_bytes(state: State) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes, name: str = "it") -> State:
    """Tensors on the CPU; nothing but tensors and plain values is ever loaded. Raises Refused."""
    try:
        state: State = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or forged file makes of torch's reader
        raise Refused(f"{name} holds no state that can be read: {error}") from error
    return state


def shared_state(trainer: Trainer, rank: int) -> State:
    """The whole state on rank 0, {} on the others; collective."""
    plain, optimizer = _open(trainer)
    if isinstance(optimizer, ShardedOptimizer):
        packed = optimizer.state_dict(to=0)
    elif hasattr(optimizer, "consolidate_state_dict"):
        # ZeroRedundancyOptimizer (its import is slow): its own way has rank 0 load pickles of others.
        zero: Any = optimizer
        state = whole_state(zero, zero.optim, zero.process_group, keeps=rank == 0)
        packed = {**torch.optim.Optimizer.state_dict(zero), "state": state}
    else:
        packed = optimizer.state_dict() if rank == 0 else {}
    return {"model": plain.state_dict(), "optimizer": packed} if rank == 0 else {}


def load_shared(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """The whole state, on every rank."""
    plain, optimizer = _open(trainer)
    plain.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def own_state(trainer: Trainer, device: torch.device) -> State:
    """What differs between ranks that train the same: random numbers, and buffers."""
    plain, _ = _open(trainer)
    return {"random": _random_state(device), "buffers": dict(_buffers(plain))}


def load_own(trainer: Trainer, device: torch.device, state: Mapping[str, Any]) -> None:
    plain, _ = _open(trainer)
    for name, buffer in _buffers(plain):
        buffer.copy_(state["buffers"][name])
    _set_random_state(device, state["random"])


def part_state(trainer: Trainer, device: torch.device) -> State:
    """This rank's part of everything."""
    plain, optimizer = _open(trainer)
    packed = optimizer.state_dict()
    state = packed["state"]
    entries = {number: _all_local(values) for number, values in state.items()}
    return {
        "model": _all_local(plain.state_dict()),
        "optimizer": {**packed, "state": entries},
        "sharded": [
            (number, key)
            for number, values in state.items()
            for key, value in values.items()
            if isinstance(value, DTensor)
        ],
        "random": _random_state(device),
    }


@torch.no_grad()
def load_part(trainer: Trainer, device: torch.device, state: Mapping[str, Any]) -> None:
    plain, optimizer = _open(trainer)
    for name, value in plain.state_dict().items():
        _local(value).copy_(state["model"][name])
    packed = state["optimizer"]
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for number, key in state["sharded"]:
        values = packed["state"][number]
        values[key] = _as_shard_of(parameters[number], values[key])
    optimizer.load_state_dict(packed)
    _set_random_state(device, state["random"])


def _open(trainer: Trainer) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    if not isinstance(trainer, ModuleTrainer):
        raise UsageError(
            f"{type(trainer).__name__} has no checkpoints here",
            expected="a strategy of torch's or ours",
            next="wirespeed train --for 30m --strategy ddp",
        )
    return trainer.plain, trainer.optimizer


def _buffers(plain: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Those that belong to the state."""
    parameters = {name for name, _ in plain.named_parameters(remove_duplicate=False)}
    for name, value in plain.state_dict().items():
        if name not in parameters and isinstance(value, torch.Tensor):
            yield name, value


def _all_local(values: Mapping[str, Any]) -> State:
    return {key: _local(value) for key, value in values.items()}


def _local(value: Any) -> Any:
    return value.to_local().detach() if isinstance(value, DTensor) else value


def _as_shard_of(parameter: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local.to(parameter.device),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _random_state(device: torch.device) -> State:
    state: State = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [name, keys.tolist(), *rest]
    return state


def _set_random_state(device: torch.device, state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(state["numpy"]))
