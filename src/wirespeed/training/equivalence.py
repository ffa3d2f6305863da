"""Is training under a strategy the same as training alone on the whole batch? The proof by doing.

Every rank trains a few steps under the strategy on its shard, and the whole batch alone; both begin
with rank 0's random numbers, though the ranks are seeded differently. A strategy that forgets a
parameter, adds gradients up twice, divides wrongly or lets ranks begin apart gives other parameters.

Give it an optimizer that is not blind for the size of gradients: under SGD a gradient that is twice
too large shows, under Adam it does not.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.errors import UsageError, WorldError
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup
from wirespeed.training.exchange import gathered
from wirespeed.training.step import LOWER, LossNotFinite, Precision, Stepper


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How to train, and how near is equal: |a - b| <= atol + rtol |b|, as torch.allclose has it."""

    steps: int = 5
    seed: int = 1
    clip: float | None = None
    precision: Precision = "float32"
    """bf16 and fp16: autocast, fp16 with a gradient scaler, together and alone alike; shards and
    the whole batch round differently, which needs wider tolerances."""
    rtol: float = 1e-5
    atol: float = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A parameter that is another than alone on the full batch."""

    name: str
    largest: float
    """Largest absolute difference of an element, over all ranks; infinite where one is NaN."""
    rank: int
    """Of the group; the lowest one that has it."""


def differences(
    spec: ModelSpec, build: Build, setup: Setup, proof: Proof | None = None
) -> tuple[Difference, ...]:
    """Parameters that differ beyond the tolerance on any rank, worst first. Collective.

    `setup` gives the shard: `samples` of each of `micro_batches` on every rank; the whole batch is
    ranks x micro_batches x samples. Random numbers of torch's default generator are put back.
    LossNotFinite: the loss is NaN or infinite alone already.
    """
    proof = proof or Proof()
    rank = dist.get_rank(setup.group)
    state = torch.get_rng_state()
    try:
        torch.manual_seed(proof.seed)
        alone = _alone(spec, setup, proof)
        torch.manual_seed(proof.seed + rank)
        together = _together(spec, build, setup, proof)
    finally:
        torch.set_rng_state(state)
    names = list(alone)
    by_rank = _shared([_beyond(together.get(name), alone[name], proof) for name in names], setup)
    found = [
        Difference(name=name, largest=float(largest), rank=int(rank))
        for name, largest, rank in zip(names, *by_rank.max(dim=0), strict=True)
        if largest > 0
    ]
    return tuple(sorted(found, key=lambda one: (-one.largest, one.name)))


def _alone(spec: ModelSpec, setup: Setup, proof: Proof) -> dict[str, torch.Tensor]:
    """Parameters after training on whole batches without any communication."""
    model = spec.build().to(setup.device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = setup.optimizer_class(trained, **setup.optimizer_options)
    kind, lower = setup.device.type, LOWER.get(proof.precision)
    scaler = torch.amp.GradScaler(kind, enabled=proof.precision == "fp16")
    for step in range(proof.steps):
        inputs, targets = _whole(spec, setup, proof, step)
        with torch.autocast(kind, lower, enabled=lower is not None):
            loss = spec.loss(model, (inputs.to(setup.device), targets.to(setup.device)))
        if not torch.isfinite(loss):
            raise LossNotFinite([(dist.get_rank(setup.group), loss.item())], step)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if proof.clip is not None:
            nn.utils.clip_grad_norm_(trained, proof.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {name: whole(parameter) for name, parameter in model.named_parameters()}


def _together(spec: ModelSpec, build: Build, setup: Setup, proof: Proof) -> dict[str, torch.Tensor]:
    rank, samples = dist.get_rank(setup.group), setup.samples
    ranks = dist.get_world_size(setup.group)

    def shard(step: int, micro: int) -> Batch:
        inputs, targets = _whole(spec, setup, proof, step)
        begin = (micro * ranks + rank) * samples
        return inputs[begin : begin + samples], targets[begin : begin + samples]

    trainer = build(spec.build(), setup)
    try:
        step = Stepper(
            trainer,
            spec,
            shard,
            rank=rank,
            device=setup.device,
            micro_batches=setup.micro_batches,
            precision=proof.precision,
            clip=proof.clip,
            share=lambda loss: _shared([loss], setup).flatten().tolist(),
        )
        for number in range(proof.steps):
            step(number)
        return trainer.full_parameters()
    except LossNotFinite:  # on all ranks alike, and not alone: different in every parameter
        return {}
    finally:
        trainer.close()


def _whole(spec: ModelSpec, setup: Setup, proof: Proof, step: int) -> Batch:
    samples = dist.get_world_size(setup.group) * setup.micro_batches * setup.samples
    return spec.batch(proof.seed * 1_000_003 + step, samples)


def _shared(values: Sequence[float], setup: Setup) -> torch.Tensor:
    """Every rank's values (ranks, values), on the CPU. Collective."""
    mine = torch.tensor(values, dtype=torch.float32, device=setup.device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(setup.group))]
    dist.all_gather(every, mine, group=setup.group)
    return torch.stack(every).cpu()


def _beyond(found: torch.Tensor | None, wanted: torch.Tensor, proof: Proof) -> float:
    """Largest difference of an element where one is beyond the tolerance, else 0."""
    if found is None or found.shape != wanted.shape:
        return math.inf
    if torch.allclose(found, wanted, rtol=proof.rtol, atol=proof.atol):
        return 0.0
    largest = float((found.double() - wanted.double()).abs().max())
    return largest if math.isfinite(largest) and largest > 0 else math.inf


def whole(parameter: torch.Tensor) -> torch.Tensor:
    """A copy of all of it on the CPU, float32 (collective for a DTensor)."""
    shown = parameter.detach()
    if hasattr(shown, "full_tensor"):
        shown = shown.full_tensor()
    return shown.to("cpu", torch.float32, copy=True)


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that get gradients, in the order of registration, tied ones once.

    UsageError where there is none, or where one has no shape yet (lazy modules).
    """
    for parameter in module.parameters():
        if nn.parameter.is_lazy(parameter):
            raise UsageError(
                "the module has lazy parameters: their shapes are not known yet",
                next="call it once with an input before wrapping it",
            )
    found = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not found:
        raise UsageError(
            f"{type(module).__name__} has no trainable parameter: there is no gradient to share",
            expected="at least one parameter with requires_grad=True",
        )
    return found


def begin_alike(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Give every rank the parameters (frozen ones too) and buffers of the group's first. Collective.

    WorldError, on every rank alike, where names, shapes or dtypes differ: what would follow is a
    collective of unequal sizes, which hangs or mixes tensors up.
    """
    _check_same(module, group)
    source = dist.get_global_rank(group, 0)
    for _, tensor in _tensors(module):
        _broadcast(tensor, source, group)


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, shared ones once."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _check_same(module: nn.Module, group: dist.ProcessGroup) -> None:
    lines = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}"
        for name, tensor in _tensors(module)
    ]
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    device = next(module.parameters()).device
    first, *others = gathered(digest, bytes, group, device)
    odd = [rank for rank, other in enumerate(others, 1) if other != first]
    if odd:
        raise WorldError(
            f"the model of rank {', '.join(map(str, odd))} is another than rank 0's",
            expected="the same parameters and buffers on every rank: names, shapes, dtypes",
        )


def _broadcast(tensor: torch.Tensor, source: int, group: dist.ProcessGroup) -> None:
    """As bytes, since backends lack some dtypes (gloo: int16, float8)."""
    if not tensor.numel():
        return
    values = tensor.detach()
    for dimension, stride in enumerate(values.stride()):
        if stride == 0:  # expanded: its elements share memory, which is written once
            values = values.narrow(dimension, 0, 1)
    plain = values.is_contiguous() and 0 not in values.stride()
    sent = values if plain else values.new_empty(values.shape).copy_(values)
    dist.broadcast(sent.reshape(-1).view(torch.uint8), source, group=group)
    if not plain:
        values.copy_(sent)
