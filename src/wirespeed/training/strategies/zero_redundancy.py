"""torch's DDP with its ZeroRedundancyOptimizer (ZeRO-1): `step` sends the parameters around."""

from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.equivalence import trainable
from wirespeed.training.strategies.ddp import DdpTrainer, wrapped


def build(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train, or no such bucket size. CannotMeasure: mixed dtypes."""
    dtypes = {str(parameter.dtype) for parameter in trainable(model)}
    if len(dtypes) > 1:
        raise CannotMeasure(
            f"the model has parameters of {' and '.join(sorted(dtypes))}",
            expected="one dtype: torch's ZeroRedundancyOptimizer takes no more",
            next="the strategy sharded",
        )
    ddp = wrapped(model, setup)
    optimizer = ZeroRedundancyOptimizer(
        trainable(model),
        optimizer_class=setup.optimizer_class,
        process_group=setup.group,
        **setup.optimizer_options,
    )
    return DdpTrainer(ddp, optimizer)
