"""The strategies by name, known without torch; the module is imported when one is built."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.training.contract import Build


@dataclass(frozen=True, slots=True)
class StrategyInfo:
    name: str
    build: str
    """`module:function` within `wirespeed.training.strategies`."""
    says: str
    """What it does, in one line."""
    variant: str = ""
    buckets: bool = False
    """Whether a bucket size means something to it."""
    synchronises: bool = True
    """False: ranks train apart (the yardstick of exposed communication)."""
    requires: str = ""
    """The package that it needs beside torch."""
    checkpoint: Literal["whole", "part", ""] = "whole"
    """`whole`: rank 0 can write the state of all; `part`: each rank writes its own; "": neither here."""


def _ddp(variant: str, how: str) -> StrategyInfo:
    says = f"torch's DistributedDataParallel{how}"
    name = f"ddp-{variant}" if variant else "ddp"
    return StrategyInfo(name, "ddp:ddp", says, variant, buckets=True)


def _deepspeed(stage: int, offload: str = "", where: str = "") -> StrategyInfo:
    return StrategyInfo(
        name=f"deepspeed-zero{stage}" + ("-offload" if offload else ""),
        build="deepspeed_zero:build",
        says=f"DeepSpeed, ZeRO stage {stage}{where}",
        variant=f"{stage}-{offload}" if offload else str(stage),
        buckets=True,
        requires="deepspeed",
        checkpoint="",
    )


_KNOWN = (
    StrategyInfo(
        "none",
        "plain:none",
        "no synchronisation: each rank trains apart; the yardstick of exposed communication",
        synchronises=False,
        checkpoint="part",
    ),
    StrategyInfo("naive", "plain:naive", "one all_reduce a parameter, after the backward pass"),
    StrategyInfo(
        "flat", "plain:flat", "all gradients in one buffer, one all_reduce after backward"
    ),
    StrategyInfo(
        "overlap",
        "plain:overlap",
        "an asynchronous all_reduce a parameter, as soon as its gradient is ready",
    ),
    StrategyInfo(
        "bucketed",
        "plain:bucketed",
        "buckets of gradients, an asynchronous all_reduce as each becomes ready",
        buckets=True,
    ),
    _ddp("", ""),
    _ddp("view", ", gradients as views of its buckets"),
    _ddp("bf16", ", gradients sent as bfloat16"),
    StrategyInfo("fsdp2", "fsdp:fsdp2", "torch's fully_shard over all ranks", checkpoint="part"),
    StrategyInfo(
        "hsdp",
        "fsdp:hsdp",
        "torch's fully_shard within a node, replicated over the nodes",
        checkpoint="part",
    ),
    StrategyInfo(
        "zero1",
        "ddp:zero1",
        "torch's DDP with ZeroRedundancyOptimizer: optimizer state sharded",
        buckets=True,
    ),
    StrategyInfo(
        "sharded",
        "plain:sharded",
        "our bucketed gradients with our ShardedOptimizer: optimizer state sharded",
        buckets=True,
    ),
    *(_deepspeed(stage) for stage in range(4)),
    _deepspeed(2, "optimizer", ", optimizer state in the host's memory"),
    _deepspeed(3, "parameter", ", optimizer state and parameters in the host's memory"),
)
STRATEGIES = {info.name: info for info in _KNOWN}


def strategies_named(text: str) -> tuple[str, ...]:
    """Names from `naive,ddp`, in that order and once each; UsageError names what is unknown."""
    names = list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    unknown = [name for name in names if name not in STRATEGIES]
    if unknown or not names:
        raise UsageError(
            f"no strategy is called {unknown[0]!r}" if unknown else "no strategy was named",
            expected="some of " + ", ".join(STRATEGIES),
            next="wirespeed train --list",
        )
    return tuple(names)


def build_of(name: str) -> "Build":
    """The function that makes a trainer of that strategy (imports torch)."""
    module, _, function = STRATEGIES[name].build.partition(":")
    build: Build = getattr(import_module(f"wirespeed.training.strategies.{module}"), function)
    return build
