"""Our bucketed gradients with our ShardedOptimizer: each rank keeps a part of the optimizer's state."""

from torch import nn

from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.sharded_optimizer import ShardedOptimizer
from wirespeed.training.strategies.bucketed import DEFAULT_BUCKET_MB, Bucketed
from wirespeed.training.strategies.plain import PlainTrainer


def build(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train, or no such bucket size."""
    model = model.to(setup.device)
    size = DEFAULT_BUCKET_MB if setup.bucket_mb is None else setup.bucket_mb
    synchroniser = Bucketed(model, setup.group, size)
    optimizer = ShardedOptimizer(
        synchroniser.parameters,
        setup.optimizer_class,
        process_group=setup.group,
        **setup.optimizer_options,
    )
    return PlainTrainer(model, synchroniser, optimizer)
