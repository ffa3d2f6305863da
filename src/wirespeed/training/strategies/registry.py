"""The strategies by name, known without torch; the module is imported when one is built."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.training.contract import Build


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyInfo:
    name: str
    module: str
    """Within `wirespeed.training.strategies`; it exports `build`."""
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


def _known(*infos: StrategyInfo) -> dict[str, StrategyInfo]:
    return {info.name: info for info in infos}


STRATEGIES: dict[str, StrategyInfo] = _known(
    StrategyInfo(
        name="none",
        module="none",
        says="no synchronisation: each rank trains apart; the yardstick of exposed communication",
        synchronises=False,
        checkpoint="part",
    ),
    StrategyInfo(
        name="naive", module="naive", says="one all_reduce a parameter, after the backward pass"
    ),
    StrategyInfo(
        name="flat",
        module="flat",
        says="all gradients in one buffer, one all_reduce after backward",
    ),
    StrategyInfo(
        name="overlap",
        module="overlap",
        says="an asynchronous all_reduce a parameter, as soon as its gradient is ready",
    ),
    StrategyInfo(
        name="bucketed",
        module="bucketed",
        says="buckets of gradients, an asynchronous all_reduce as each becomes ready",
        buckets=True,
    ),
    StrategyInfo(name="ddp", module="ddp", says="torch's DistributedDataParallel", buckets=True),
    StrategyInfo(
        name="ddp-view",
        module="ddp",
        variant="view",
        says="torch's DistributedDataParallel, gradients as views of its buckets",
        buckets=True,
    ),
    StrategyInfo(
        name="ddp-bf16",
        module="ddp",
        variant="bf16",
        says="torch's DistributedDataParallel, gradients sent as bfloat16",
        buckets=True,
    ),
    StrategyInfo(
        name="fsdp2",
        module="fsdp2",
        says="torch's fully_shard over all ranks",
        checkpoint="part",
    ),
    StrategyInfo(
        name="hsdp",
        module="hsdp",
        says="torch's fully_shard within a node, replicated over the nodes",
        checkpoint="part",
    ),
    StrategyInfo(
        name="zero1",
        module="zero_redundancy",
        says="torch's DDP with ZeroRedundancyOptimizer: optimizer state sharded",
        buckets=True,
    ),
    StrategyInfo(
        name="sharded",
        module="sharded",
        says="our bucketed gradients with our ShardedOptimizer: optimizer state sharded",
        buckets=True,
    ),
    *(
        StrategyInfo(
            name=f"deepspeed-zero{stage}",
            module="deepspeed_zero",
            variant=str(stage),
            says=f"DeepSpeed, ZeRO stage {stage}",
            buckets=True,
            requires="deepspeed",
            checkpoint="",
        )
        for stage in range(4)
    ),
    StrategyInfo(
        name="deepspeed-zero2-offload",
        module="deepspeed_zero",
        variant="2-optimizer",
        says="DeepSpeed, ZeRO stage 2, optimizer state in the host's memory",
        buckets=True,
        requires="deepspeed",
        checkpoint="",
    ),
    StrategyInfo(
        name="deepspeed-zero3-offload",
        module="deepspeed_zero",
        variant="3-parameter",
        says="DeepSpeed, ZeRO stage 3, optimizer state and parameters in the host's memory",
        buckets=True,
        requires="deepspeed",
        checkpoint="",
    ),
)


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
    module = import_module(f"wirespeed.training.strategies.{STRATEGIES[name].module}")
    build: Build = module.build
    return build
