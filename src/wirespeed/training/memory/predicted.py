"""What a step should hold in memory, by strategy: formulas, and nothing that needs torch.

S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020,
section 5: with Ψ parameters, K bytes of optimizer state a parameter and N ranks a rank holds in
mixed precision 2Ψ + 2Ψ + KΨ (data parallel), 2Ψ + 2Ψ + KΨ/N (stage 1, P_os), 2Ψ + (2Ψ + KΨ)/N
(stage 2, P_os+g) and (2Ψ + 2Ψ + KΨ)/N (stage 3, P_os+g+p). In float32 the twos are fours and AdamW
has K = 8, two moments, where the paper's 12 add a float32 copy of the parameters.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from wirespeed.errors import UsageError
from wirespeed.model.training_records import TrainingMemory

_BUCKET_MB = 25.0
"""Where a strategy has a default of its own (torch DDP and ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a prediction needs to know of a model and its batch in one process; bytes."""

    parameters: int
    """All of them, tied ones once."""
    tensor_bytes: tuple[int, ...]
    """Of each that is trained."""
    unit_bytes: tuple[int, ...] = ()
    """Of what is gathered together where parameters are sharded: first what is in no block, then the
    blocks in their order."""
    buffers: int = 0
    activations: int = 0
    """With the batch that the footprint was made for."""
    transient: int = 0
    """The most above parameters and buffers in forward and backward: activations, gradients and the
    batch are in it."""
    apart: int = 0
    """The same without gradients, for strategies that keep gradients all the time."""
    state_per_byte: float = 2.0
    """Optimizer state for a byte of trained parameter: AdamW keeps two moments."""
    state_per_tensor: int = 4
    """And for a tensor of any size: AdamW's counter of steps."""
    update_own: float = 2.0
    """What a step of the optimizer takes for a while, in sizes of the tensor that is stepped: AdamW's
    root and denominator."""
    update_before: float = 1.0
    """And in sizes of the tensor before, whose denominator is not given back yet."""
    update_per_byte: float = 0.0
    """And for every byte that this rank steps, where all tensors are stepped together (torch's
    documentation of AdamW, `foreach`, the default on CUDA: about the size of the parameters)."""

    @property
    def trained(self) -> int:
        return sum(self.tensor_bytes)

    @property
    def update(self) -> int:
        """Bytes that stepping tensor after tensor takes at most."""
        sizes = (0, *self.tensor_bytes)
        needs = (self.update_own * now + self.update_before * last for last, now in pairwise(sizes))
        return round(max(needs, default=0))

    @property
    def largest(self) -> int:
        return max(self.tensor_bytes, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    model: Footprint
    ranks: int
    bucket: int
    """Bytes of gradients in a bucket."""


_Formula = Callable[[_Case], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """Bytes on the rank that needs most, by kind."""

    parameters: _Formula
    gradients: _Formula
    optimizer: _Formula
    steps: _Formula
    """Bytes of parameters that this rank's optimizer steps."""
    communication: _Formula
    keeps: bool = False
    """Gradients have their place all the time, in buckets."""
    copies: bool = False
    """And lie beside it while the backward pass lasts."""
    cut: bool = False
    """Each tensor is cut over the ranks; whole gradients exist of a block at a time."""
    sends: Literal["always", "in backward", "after"] = "always"
    """When the communication buffers are there."""
    on_host: tuple[str, ...] = ()
    """Kinds that are offloaded."""


def predict(
    strategy: str,
    model: Footprint,
    *,
    ranks: int,
    bucket_mb: float | None = None,
    host_counts: bool = True,
) -> TrainingMemory:
    """Bytes on the rank that needs most; UsageError for a strategy without a formula.

    ranks: those that shard with one another (of HSDP: the ranks of a node). host_counts: whether
    what is offloaded counts, as it does where ranks train on the CPU. `other` is buffers and what
    forward and backward hold beside activations. Of DeepSpeed's stages 1 to 3 communication and
    peak are rough: they set aside buckets of their full size and copy partitions in the step.
    """
    rule = PREDICTED.get(strategy)
    if rule is None:
        raise UsageError(
            f"there is no formula for the memory of {strategy!r}",
            expected="one of " + ", ".join(PREDICTED),
        )
    bucket = round((bucket_mb if bucket_mb is not None else _BUCKET_MB) * 10**6)
    case = _Case(model=model, ranks=ranks, bucket=bucket)
    kinds = {
        kind: 0 if kind in rule.on_host and not host_counts else getattr(rule, kind)(case)
        for kind in ("parameters", "gradients", "optimizer", "communication")
    }
    return TrainingMemory(
        **kinds,
        activations=model.activations,
        other=model.buffers + max(0, model.transient - model.activations - kinds["gradients"]),
        peak=_peak(rule, case, **kinds),
    )


def _peak(
    rule: _Rule, case: _Case, *, parameters: int, gradients: int, optimizer: int, communication: int
) -> int:
    """What stays, and the larger of forward and backward or what comes after them."""
    model = case.model
    if rule.cut:
        passes = max(model.apart, gradients)
    elif rule.keeps:
        passes = gradients + (model.transient if rule.copies else model.apart)
    else:
        passes = model.transient
    by_tensor = model.update // (case.ranks if rule.cut else 1)
    update = by_tensor + round(model.update_per_byte * rule.steps(case))
    after = gradients + max(update, communication if rule.sends == "after" else 0)
    if rule.sends != "after":
        passes += communication
    if rule.sends == "always":
        after += communication
    return parameters + optimizer + model.buffers + max(passes, after)


def largest_load(sizes: Sequence[int], ranks: int) -> int:
    """The most that any rank gets when whole tensors are dealt out, the largest first.

    Each goes to the rank that has least so far (R. L. Graham, Bounds on Multiprocessing Timing
    Anomalies, 1969), as ZeroRedundancyOptimizer and our own sharded optimizer do.
    """
    loads = [0] * ranks
    for size in sorted(sizes, reverse=True):
        heapq.heappush(loads, heapq.heappop(loads) + size)
    return max(loads)


def _whole(case: _Case) -> int:
    return case.model.parameters


def _shard_of_all(case: _Case) -> int:
    return -(-case.model.parameters // case.ranks)


def _trained(case: _Case) -> int:
    return case.model.trained


def _shard(case: _Case) -> int:
    """Every tensor is cut."""
    return -(-case.model.trained // case.ranks)


def _dealt(case: _Case) -> int:
    """Whole tensors are dealt out."""
    return largest_load(case.model.tensor_bytes, case.ranks)


def _state(case: _Case) -> int:
    return _state_of(case, case.model.trained, len(case.model.tensor_bytes))


def _shard_of_state(case: _Case) -> int:
    return _state_of(case, _shard(case), len(case.model.tensor_bytes))


def _dealt_state(case: _Case) -> int:
    return _state_of(case, _dealt(case), -(-len(case.model.tensor_bytes) // case.ranks))


def _state_and_copy(case: _Case) -> int:
    """DeepSpeed steps a float32 copy of its flat partition, in float32 training too."""
    return _state_of(case, _shard(case), 1) + _shard(case)


def _state_of(case: _Case, size: int, tensors: int) -> int:
    return round(case.model.state_per_byte * size) + case.model.state_per_tensor * tensors


def _nothing(_: _Case) -> int:
    return 0


def _buckets(case: _Case) -> int:
    """All of them stay, beside the gradients."""
    return case.model.trained


def _buckets_and_halves(case: _Case) -> int:
    """And each is sent as a bfloat16 copy; all may be under way at once."""
    return case.model.trained + case.model.trained // 2


def _gathered_units(case: _Case) -> int:
    """What is in no block stays gathered; of the blocks there are two at a time, and a buffer more.

    In backward a block's gradients are being reduce-scattered while the one before it is there as
    gathered (the all_gather's output) and as parameters (Y. Zhao et al., PyTorch FSDP, 2023,
    section 3.3: backward prefetching).
    """
    if case.ranks == 1:
        return 0
    rest, *blocks = case.model.unit_bytes or (case.model.parameters,)
    if not blocks:
        return 2 * rest
    pairs = [2 * before + after for before, after in pairwise(blocks)]
    return rest + max(pairs, default=2 * blocks[0])


def _one_bucket(case: _Case) -> int:
    return min(case.model.trained, max(case.bucket, case.model.largest))


def _three_buckets(case: _Case) -> int:
    """Two take turns (overlap_comm), and one more is flattened for sending."""
    return min(case.model.trained, 3 * max(case.bucket, case.model.largest))


def _gathered_all(case: _Case) -> int:
    """Up to 1e9 gathered elements stay (stage3_max_live_parameters), and one tensor is on its way."""
    return min(case.model.parameters, 4 * 10**9) + case.model.largest


_DATA_PARALLEL = _Rule(
    parameters=_whole,
    gradients=_trained,
    optimizer=_state,
    steps=_trained,
    communication=_nothing,
)
_SHARDED_STATE = replace(_DATA_PARALLEL, optimizer=_dealt_state, steps=_dealt)
_FULLY_SHARDED = _Rule(
    parameters=_shard_of_all,
    gradients=_shard,
    optimizer=_shard_of_state,
    steps=_shard,
    communication=_gathered_units,
    cut=True,
    sends="in backward",
)
_STAGE_2 = _Rule(
    parameters=_whole,
    gradients=_shard,
    optimizer=_state_and_copy,
    steps=_shard,
    communication=_three_buckets,
    sends="in backward",
)
_STAGE_3 = replace(_STAGE_2, parameters=_shard_of_all, communication=_gathered_all)

PREDICTED: dict[str, _Rule] = {
    "none": _DATA_PARALLEL,
    "naive": _DATA_PARALLEL,
    "overlap": _DATA_PARALLEL,
    "flat": replace(_DATA_PARALLEL, keeps=True, copies=True),
    "bucketed": replace(_DATA_PARALLEL, keeps=True),
    "ddp": replace(_DATA_PARALLEL, communication=_buckets),
    "ddp-view": replace(_DATA_PARALLEL, keeps=True),
    "ddp-bf16": replace(_DATA_PARALLEL, communication=_buckets_and_halves),
    "fsdp2": _FULLY_SHARDED,
    "hsdp": _FULLY_SHARDED,
    "zero1": replace(_SHARDED_STATE, communication=_buckets),
    "sharded": replace(_SHARDED_STATE, keeps=True),
    "deepspeed-zero0": replace(_DATA_PARALLEL, communication=_one_bucket, sends="after"),
    # In float32 with contiguous gradients stage 1 keeps no more of them than stage 2 does.
    "deepspeed-zero1": _STAGE_2,
    "deepspeed-zero2": _STAGE_2,
    "deepspeed-zero3": _STAGE_3,
    "deepspeed-zero2-offload": replace(_STAGE_2, on_host=("optimizer", "gradients")),
    "deepspeed-zero3-offload": replace(_STAGE_3, on_host=("optimizer", "gradients", "parameters")),
}
"""Formulas by strategy (training/strategies/registry.py)."""
