"""Is training under a strategy the same as training alone on the whole batch? The proof by doing.

Every rank trains a few steps under the strategy on its shard, and the whole batch alone; both begin
with rank 0's random numbers, though the ranks are seeded differently. A strategy that forgets a
parameter, adds gradients up twice, divides wrongly or lets ranks begin apart gives other parameters.

Give it an optimizer that is not blind for the size of gradients: under SGD a gradient that is twice
too large shows, under Adam it does not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.training.contract import Batch, Build, ModelSpec, Setup
from wirespeed.training.step import LOWER, LossNotFinite, Precision, Stepper

__all__ = ["Difference", "Proof", "differences"]


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
    return _gathered(alone, together, setup, proof)


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
    return {
        name: parameter.detach().to("cpu", torch.float32, copy=True)
        for name, parameter in model.named_parameters()
    }


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


def _gathered(
    alone: dict[str, torch.Tensor],
    together: dict[str, torch.Tensor],
    setup: Setup,
    proof: Proof,
) -> tuple[Difference, ...]:
    names = list(alone)
    by_rank = _shared([_beyond(together.get(name), alone[name], proof) for name in names], setup)
    found = [_difference(name, by_rank[:, index]) for index, name in enumerate(names)]
    return tuple(sorted((one for one in found if one), key=lambda one: (-one.largest, one.name)))


def _shared(values: Sequence[float], setup: Setup) -> torch.Tensor:
    """Every rank's values (ranks, values), on the CPU. Collective."""
    mine = torch.tensor(values, dtype=torch.float32, device=setup.device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(setup.group))]
    dist.all_gather(every, mine, group=setup.group)
    return torch.stack(every).cpu()


def _difference(name: str, by_rank: torch.Tensor) -> Difference | None:
    largest = float(by_rank.max())
    if not largest > 0:
        return None
    return Difference(name=name, largest=largest, rank=int(by_rank.argmax()))


def _beyond(found: torch.Tensor | None, wanted: torch.Tensor, proof: Proof) -> float:
    """Largest difference of an element where one is beyond the tolerance, else 0."""
    if found is None or found.shape != wanted.shape:
        return math.inf
    if torch.allclose(found, wanted, rtol=proof.rtol, atol=proof.atol):
        return 0.0
    largest = float((found.double() - wanted.double()).abs().max())
    return largest if math.isfinite(largest) and largest > 0 else math.inf
