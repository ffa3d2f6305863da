"""DeepSpeed's configuration as a plain dict, made from the model and the world (no torch needed).

DeepSpeed takes three batch sizes and insists on micro × accumulation × world = train batch; it
fails on one that does not fit, without a word of what would. Here what is missing is derived, and
what contradicts itself is refused together with the nearest sizes that fit.

Keys and defaults: https://www.deepspeed.ai/docs/config-json/. Three of them mislead:
- bucket sizes count elements, not bytes; the default of 5e8 takes 2 GB a buffer in float32;
- the optimizer type "Adam" is AdamW unless `adam_w_mode` is false; here the name is kept exact;
- Adam and AdamW are compiled in C++ at the first start unless `torch_adam` is set.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.errors import UsageError

Precision = Literal["float32", "bfloat16", "float16"]
Offload = Literal["none", "optimizer", "parameter"]
"""What lives in the host's memory; `parameter` means the optimizer's state as well."""

DEFAULT_BUCKET_ELEMENTS = 500_000_000
DEFAULT_PERSISTENCE_ELEMENTS = 100_000
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_LEAST_STAGE = {"none": 0, "optimizer": 1, "parameter": 3}
_PROPOSALS = 3
_NEVER = 10**9
"""Steps between two of its progress lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """Sizes that fit each other."""

    micro: int
    """Samples of one forward pass on one rank."""
    accumulation: int
    """Backward passes before each step."""
    world: int
    """Ranks that train together."""

    @property
    def train(self) -> int:
        """Samples of one step, over all ranks."""
        return self.micro * self.accumulation * self.world

    def __str__(self) -> str:
        return f"{self.micro} × {self.accumulation} × {self.world} = {self.train}"


def batch_sizes(
    *,
    world: int,
    micro: int | None = None,
    accumulation: int | None = None,
    train_batch: int | None = None,
) -> BatchSizes:
    """Derive what is None; UsageError with the nearest valid sizes where they contradict.

    Without a train batch it is the product; without micro or accumulation they follow from it,
    and accumulation is 1 where nothing fixes it.
    """
    given = {"world": world, "micro": micro, "accumulation": accumulation}
    given["train batch"] = train_batch
    for name, value in given.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}", expected=f"{name} of at least 1")
    if micro is None and train_batch is None:
        raise UsageError(
            "no batch size was given", expected="the micro batch of one rank, or the train batch"
        )
    if train_batch is None:
        return BatchSizes(micro=micro or 1, accumulation=accumulation or 1, world=world)
    # The sizes that come closest to that train batch from below (at least 1 each).
    if micro is None:
        accumulation = accumulation or 1
        micro = max(1, train_batch // (accumulation * world))
    elif accumulation is None:
        accumulation = max(1, train_batch // (micro * world))
    sizes = BatchSizes(micro=micro, accumulation=accumulation, world=world)
    if sizes.train != train_batch:
        raise _contradiction(sizes, train_batch)
    return sizes


def _contradiction(sizes: BatchSizes, train: int) -> UsageError:
    nearest = _nearest(sizes, train)
    first = nearest[0]
    return UsageError(
        f"micro × accumulation × world is {sizes}, not the train batch {train}",
        expected="sizes that fit, such as " + "; ".join(str(one) for one in nearest),
        next=f"micro {first.micro}, accumulation {first.accumulation}, train batch {first.train}",
    )


def _nearest(sizes: BatchSizes, train: int) -> list[BatchSizes]:
    """Valid sizes on as many ranks: the nearest train batch, what is most alike, the same micro."""
    per_rank = train / sizes.world
    shares = {max(1, math.floor(per_rank)), math.ceil(per_rank)}
    candidates = {split for share in shares for split in _splits(share, sizes.world)}
    candidates |= {
        BatchSizes(micro=sizes.micro, accumulation=times, world=sizes.world)
        for times in (max(1, round(per_rank / sizes.micro)), sizes.accumulation)
    }

    def change(one: BatchSizes) -> float:
        ratio = abs(math.log(one.micro / sizes.micro))
        return ratio + abs(math.log(one.accumulation / sizes.accumulation))

    ranked = sorted(candidates, key=lambda one: (abs(one.train - train), change(one), one.micro))
    alike = min(ranked, key=lambda one: change(one) + abs(math.log(one.train / train)))
    # Memory often fixes the micro batch: one that keeps it is always among them.
    kept = next(one for one in ranked if one.micro == sizes.micro)
    return list(dict.fromkeys([ranked[0], alike, kept, *ranked]))[:_PROPOSALS]


def _splits(share: int, world: int) -> Iterator[BatchSizes]:
    """Every micro × accumulation that makes that many samples a rank."""
    for divisor in range(1, math.isqrt(share) + 1):
        if share % divisor == 0:
            for micro in {divisor, share // divisor}:
                yield BatchSizes(micro=micro, accumulation=share // micro, world=world)


def zero_config(
    stage: int,
    *,
    world: int,
    micro: int | None = None,
    accumulation: int | None = None,
    train_batch: int | None = None,
    precision: Precision = "float32",
    offload: Offload = "none",
    bucket_mb: float | None = None,
    parameters: int | None = None,
    optimizer: Mapping[str, Any] | None = None,
    clip: float = 0.0,
) -> dict[str, Any]:
    """What `deepspeed.initialize(config=…)` takes.

    `bucket_mb` is in megabytes (10**6 bytes) of gradients; None is DeepSpeed's own size, at most
    the model's. `parameters` is the model's number of elements: with it no buffer is larger than
    the model, and stage 3 shards small models too. `optimizer` holds the options of torch's AdamW;
    None: the program passes an optimizer of its own. `clip` is the largest 2-norm, 0 for none.
    """
    sizes = batch_sizes(
        world=world, micro=micro, accumulation=accumulation, train_batch=train_batch
    )
    if not clip >= 0 or math.isinf(clip):
        raise UsageError(f"clipping to the norm {clip:g}", expected="a norm above 0, or 0 for none")
    config: dict[str, Any] = {
        "train_batch_size": sizes.train,
        "train_micro_batch_size_per_gpu": sizes.micro,
        "gradient_accumulation_steps": sizes.accumulation,
        "gradient_clipping": clip,
        "steps_per_print": _NEVER,
        "zero_optimization": _zero_section(stage, precision, offload, bucket_mb, parameters),
        # Both only permit: any torch optimizer at any stage, in place of DeepSpeed's own.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if precision != "float32":
        config["bf16" if precision == "bfloat16" else "fp16"] = {"enabled": True}
    if optimizer is not None:
        # Options as JSON knows them: betas as a list.
        params = {k: list(v) if isinstance(v, tuple) else v for k, v in optimizer.items()}
        params |= {"torch_adam": True, "adam_w_mode": True}
        config["optimizer"] = {"type": "AdamW", "params": params}
    return config


def _zero_section(
    stage: int,
    precision: Precision,
    offload: Offload,
    bucket_mb: float | None,
    parameters: int | None,
) -> dict[str, Any]:
    _check_stage(stage, offload)
    if precision not in _BYTES:
        raise UsageError(f"no precision is called {precision!r}", expected=", ".join(_BYTES))
    bucket = _bucket_elements(bucket_mb, _BYTES[precision], parameters)
    section: dict[str, Any] = {
        "stage": stage,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
    }
    if stage >= 1:
        section |= {"overlap_comm": True, "contiguous_gradients": True}
    if stage == 3:
        section |= _stage3(bucket, parameters)
    if offload != "none":
        section["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload == "parameter":
        section["offload_param"] = {"device": "cpu", "pin_memory": True}
    return section


def _stage3(bucket: int, parameters: int | None) -> dict[str, Any]:
    """Stage 3 keeps tensors below the threshold whole on every rank.

    The default of 1e5 elements would keep all of a small model: it is brought down to a
    thousandth of the model.
    """
    persistence = DEFAULT_PERSISTENCE_ELEMENTS
    if parameters is not None:
        persistence = min(persistence, parameters // 1000)
    return {
        "stage3_prefetch_bucket_size": bucket // 10,
        "stage3_param_persistence_threshold": persistence,
        "stage3_gather_16bit_weights_on_model_save": True,
    }


def _check_stage(stage: int, offload: str) -> None:
    if stage not in range(4):
        raise UsageError(f"there is no ZeRO stage {stage}", expected="0, 1, 2 or 3")
    if offload not in _LEAST_STAGE:
        raise UsageError(f"no offload is called {offload!r}", expected=", ".join(_LEAST_STAGE))
    least = _LEAST_STAGE[offload]
    if stage < least:
        raise UsageError(
            f"ZeRO stage {stage} cannot offload: {offload}",
            expected=f"stage {least} or higher for that",
            next=f"stage {least}, or offload none",
        )


def _bucket_elements(bucket_mb: float | None, element_bytes: int, parameters: int | None) -> int:
    """At most the model, since DeepSpeed makes its buffers that large at once; and an even number:
    stages 1 and 2 refuse another (they align to 4 bytes of 2-byte elements)."""
    if bucket_mb is None:
        elements = DEFAULT_BUCKET_ELEMENTS
    elif not bucket_mb > 0 or math.isinf(bucket_mb):
        raise UsageError(f"a bucket of {bucket_mb:g} MB", expected="a size above 0")
    else:
        elements = int(bucket_mb * 1e6 / element_bytes) // 2 * 2
    elements = min(elements, parameters or elements)
    return max(2, elements + elements % 2)
