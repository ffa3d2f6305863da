"""What a step should hold in memory, by strategy, and the largest batch that fits; without torch.

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


@dataclass(frozen=True, slots=True)
class _Case:
    model: Footprint
    ranks: int
    bucket: int
    """Bytes of gradients in a bucket."""

    def share(self, size: int) -> int:
        """Of one rank, where the ranks share it evenly."""
        return -(-size // self.ranks)

    def stepped(self, how: "_Steps") -> tuple[int, int]:
        """(bytes of parameters that one rank's optimizer steps, in how many tensors)."""
        trained, tensors = self.model.trained, len(self.model.tensor_bytes)
        if how == "all":
            return trained, tensors
        if how == "dealt":
            return largest_load(self.model.tensor_bytes, self.ranks), self.share(tensors)
        return self.share(trained), tensors if how == "cut" else 1


_Steps = Literal["all", "dealt", "cut", "flat"]
"""What a rank steps: every tensor, whole ones that are dealt out, its part of each, or (DeepSpeed) a
float32 copy of its part of all in one piece, in float32 training too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How the rank that needs most holds its bytes."""

    steps: _Steps = "all"
    shares: tuple[str, ...] = ()
    """Kinds of which each rank holds its part only."""
    communication: Callable[[_Case], int] = lambda _: 0
    keeps: bool = False
    """Gradients have their place all the time, in buckets."""
    copies: bool = False
    """And lie beside it while the backward pass lasts."""
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
    case = _Case(model, ranks, bucket)
    stepped, tensors = case.stepped(rule.steps)
    state = round(model.state_per_byte * stepped) + model.state_per_tensor * tensors
    whole = {"parameters": model.parameters, "gradients": model.trained}
    kinds = {kind: case.share(n) if kind in rule.shares else n for kind, n in whole.items()}
    kinds["optimizer"] = state + (stepped if rule.steps == "flat" else 0)
    kinds["communication"] = rule.communication(case)
    kinds |= {kind: 0 for kind in rule.on_host if not host_counts}
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
    if rule.steps == "cut":
        passes = max(model.apart, gradients)
    elif rule.keeps:
        passes = gradients + (model.transient if rule.copies else model.apart)
    else:
        passes = model.transient
    by_tensor = model.update // (case.ranks if rule.steps == "cut" else 1)
    update = by_tensor + round(model.update_per_byte * case.stepped(rule.steps)[0])
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


_FULLY_SHARDED = _Rule(
    steps="cut",
    shares=("parameters", "gradients"),
    communication=_gathered_units,
    sends="in backward",
)
_STAGE_2 = _Rule(
    steps="flat", shares=("gradients",), communication=_three_buckets, sends="in backward"
)
_STAGE_3 = replace(_STAGE_2, shares=("parameters", "gradients"), communication=_gathered_all)

PREDICTED: dict[str, _Rule] = {
    "none": _Rule(),
    "naive": _Rule(),
    "overlap": _Rule(),
    "flat": _Rule(keeps=True, copies=True),
    "bucketed": _Rule(keeps=True),
    "ddp": _Rule(communication=_buckets),
    "ddp-view": _Rule(keeps=True),
    "ddp-bf16": _Rule(communication=_buckets_and_halves),
    "fsdp2": _FULLY_SHARDED,
    "hsdp": _FULLY_SHARDED,
    "zero1": _Rule(steps="dealt", communication=_buckets),
    "sharded": _Rule(steps="dealt", keeps=True),
    "deepspeed-zero0": _Rule(communication=_one_bucket, sends="after"),
    # In float32 with contiguous gradients stage 1 keeps no more of them than stage 2 does.
    "deepspeed-zero1": _STAGE_2,
    "deepspeed-zero2": _STAGE_2,
    "deepspeed-zero3": _STAGE_3,
    "deepspeed-zero2-offload": replace(_STAGE_2, on_host=("optimizer", "gradients")),
    "deepspeed-zero3-offload": replace(_STAGE_3, on_host=("optimizer", "gradients", "parameters")),
}
"""Formulas by strategy (training/strategies/registry.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the search found."""

    samples: int
    """The most that fitted; 0: not even one did."""
    too_many: int | None
    """The fewest that did not fit; None: none of those tried."""
    tried: tuple[int, ...]
    """In the order in which they were tried."""
    ended: bool
    """It was told to end before the two above met."""


def largest_that_fits(
    fits: Callable[[int], bool],
    *,
    first: int = 1,
    most: int = 1 << 20,
    within: float = 0.0,
    more: Callable[[], bool] = lambda: True,
) -> Fit:
    """Try `first` samples, twice as many and so on up to `most`, then halve what is left between.

    fits: whether that many fit; what fits once is taken to fit with fewer. Where ranks search
    together it must answer alike on all. within: stop when the gap is at most this share of what
    fitted (0: to the last sample). more: asked before each try but the first; False ends the search.
    """
    tried: list[int] = []

    def fit(samples: int) -> bool:
        tried.append(samples)
        return fits(samples)

    def wide(good: int, bad: int | None) -> bool:
        return good < most if bad is None else bad - good > max(1, within * good)

    good, bad, ended = 0, None, False
    while wide(good, bad):
        if tried and not more():
            ended = True
            break
        doubled = min(2 * good, most) if good else max(1, min(first, most))
        samples = doubled if bad is None else (good + bad) // 2
        if fit(samples):
            good = samples
        else:
            bad = samples
    return Fit(samples=good, too_many=bad, tried=tuple(tried), ended=ended)
