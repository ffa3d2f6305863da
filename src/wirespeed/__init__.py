"""wirespeed: is my training cluster ready, how close to wire speed is it, which machine is to blame?

`DistributedDataParallel` and `ShardedOptimizer` need torch, which is imported when one is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.training.sharded_optimizer import ShardedOptimizer
    from wirespeed.training.wrapper import DistributedDataParallel

__all__ = ["DistributedDataParallel", "ShardedOptimizer", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "DistributedDataParallel": "wirespeed.training.wrapper",
    "ShardedOptimizer": "wirespeed.training.sharded_optimizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
