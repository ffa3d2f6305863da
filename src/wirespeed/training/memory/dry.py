"""A plain step's memory without taking it: torch's fake tensors have sizes and no bytes.

Fake tensors choose kernels by the device that they pretend to be on, so that what autograd keeps
is the same as in earnest (tests compare). Models whose course depends on values cannot be run so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import ModelSpec
from wirespeed.training.memory.ledger import Ledger, Story
from wirespeed.training.memory.predicted import Footprint
from wirespeed.training.models.sizes import FLOAT32_BYTES
from wirespeed.training.step import LOWER, Precision
from wirespeed.training.strategies.fsdp import blocks_of

_STANDING = ("parameters", "buffers")


def footprint(
    spec: ModelSpec,
    samples: int,
    optimizer_class: type[torch.optim.Optimizer],
    optimizer_options: Mapping[str, Any],
    device: torch.device,
    precision: Precision = "float32",
) -> Footprint:
    """What predictions need of a model with that batch; only one sample is allocated.

    CannotMeasure: the model's course depends on values that fake tensors do not have.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            model, story, since = _passed(spec, samples, device, LOWER.get(precision))
    except RuntimeError as error:
        raise CannotMeasure(
            f"the memory of {spec.name} cannot be foretold: {str(error).splitlines()[0]}",
            expected="a model that runs on torch's fake tensors",
        )
    layout = optimizer_layout(optimizer_class, optimizer_options)
    together = device.type == "cuda"
    trained = [p for p in model.parameters() if p.requires_grad]
    # As fully_shard would gather them.
    blocks = [_bytes(block.parameters()) for block in blocks_of(model)]
    return Footprint(
        parameters=_bytes(model.parameters()),
        buffers=_bytes(model.buffers()),
        activations=story.highest(since)[1].get("activations", 0),
        transient=story.highest(since, without=_STANDING)[0],
        apart=story.highest(since, without=(*_STANDING, "gradients"))[0],
        state_per_byte=layout.per_byte,
        state_per_tensor=layout.per_tensor,
        update_own=0.0 if together else layout.update_own,
        update_before=0.0 if together else layout.update_before,
        update_per_byte=1.0 if together else 0.0,
        tensor_bytes=tuple(_bytes([p]) for p in trained),
        unit_bytes=(_bytes(model.parameters()) - sum(blocks), *blocks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What an optimizer keeps and takes; see `Footprint`."""

    per_byte: float
    per_tensor: int
    update_own: float
    update_before: float


def optimizer_layout(
    optimizer_class: type[torch.optim.Optimizer], options: Mapping[str, Any]
) -> Layout:
    """From real steps of small tensors on the CPU, where they are stepped one by one."""
    few, many = 16**2, 64**2
    small, _ = _stepped(optimizer_class, options, few, 1)
    large, alone = _stepped(optimizer_class, options, many, 1)
    _, after_another = _stepped(optimizer_class, options, many, 2)
    per_byte = (large - small) / (FLOAT32_BYTES * (many - few))
    own = round(alone / (FLOAT32_BYTES * many), 1)
    return Layout(
        per_byte=per_byte,
        per_tensor=round(small - per_byte * FLOAT32_BYTES * few),
        update_own=own,
        update_before=round(after_another / (FLOAT32_BYTES * many) - own, 1),
    )


def _passed(
    spec: ModelSpec, samples: int, device: torch.device, lower: torch.dtype | None
) -> tuple[nn.Module, Story, int]:
    """Forward and backward of that many samples, which the first dimension of a batch counts.

    (the model, what became of its storages, the change from which on these passes are).
    """
    sample = spec.batch(1, 1)
    ledger = Ledger(torch.device("meta"))
    with FakeTensorMode(allow_non_fake_inputs=True), ledger:
        model = _moved(spec.build(), device)
        ledger.mark(model.parameters(), "parameters")
        ledger.mark(model.buffers(), "buffers")
        since = len(ledger.story.changes)
        inputs, targets = (
            torch.empty((samples, *one.shape[1:]), dtype=one.dtype, device=device) for one in sample
        )
        ledger.mark((inputs, targets), "batch")
        with ledger.saved(), torch.autocast(device.type, lower, enabled=lower is not None):
            loss = spec.loss(model, (inputs, targets))
        loss.backward()
        ledger.mark((p.grad for p in model.parameters() if p.grad is not None), "gradients")
    return model, ledger.story, since


def _moved(model: nn.Module, device: torch.device) -> nn.Module:
    """As model.to(device), which cannot swap fake parameters; tied ones stay tied."""
    moved: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.device.type != device.type and parameter not in moved:
                there = nn.Parameter(parameter.detach().to(device), parameter.requires_grad)
                moved[parameter] = there
            setattr(module, name, moved.get(parameter, parameter))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(device))
    return model


def _stepped(
    optimizer_class: type[torch.optim.Optimizer],
    options: Mapping[str, Any],
    elements: int,
    tensors: int,
) -> tuple[int, int]:
    """(bytes of one tensor's state, the most above what stays) of a second step."""
    ledger = Ledger(torch.device("cpu"))
    with ledger:
        parameters = [nn.Parameter(torch.zeros(elements)) for _ in range(tensors)]
        for parameter in parameters:
            parameter.grad = torch.zeros(elements)
        optimizer = optimizer_class(parameters, **options)
        optimizer.step()
        since = len(ledger.story.changes)
        stays = sum(change for _, change in ledger.story.changes)
        optimizer.step()
    state = optimizer.state[parameters[0]].values()
    kept = _bytes(value for value in state if isinstance(value, torch.Tensor))
    return kept, ledger.story.highest(since)[0] - stays


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Tied ones are given once by nn.Module already."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
