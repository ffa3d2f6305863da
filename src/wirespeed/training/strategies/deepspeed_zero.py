"""DeepSpeed's ZeRO, stage 0 to 3, with offload; a torch optimizer inside, so nothing is compiled.

Its engine owns backward and step. Told where the accumulation ends, it takes the losses as they
come (it would divide them by the number of micro batches itself). From stage 1 on it sends
gradients during the backward pass, from stage 2 on for each micro batch. A parameter without a
gradient in this step counts as one with a gradient of zero there.
"""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.deepspeed_config import Offload, zero_config
from wirespeed.training.equivalence import whole


def build(model: nn.Module, setup: Setup) -> Trainer:
    """A trainer of the stage and offload that `setup.variant` names (`2`, `3-parameter`)."""
    _check_group(setup.group)
    stage, _, offload = setup.variant.partition("-")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise UsageError("the model has no parameter to train", expected="at least one")
    config = zero_config(
        int(stage),
        micro=setup.samples,
        accumulation=setup.micro_batches,
        world=dist.get_world_size(setup.group),
        offload=cast(Offload, offload or "none"),
        bucket_mb=setup.bucket_mb,
        parameters=sum(parameter.numel() for parameter in trained),
    )
    model.to(setup.device)
    _same_buffers(model, setup.group)
    optimizer = setup.optimizer_class(trained, **setup.optimizer_options)
    deepspeed, plain = _open(setup.device), functional.linear
    try:
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=config, dist_init_required=False
        )
        linear = _Linear(functional.linear)
    finally:
        functional.linear = plain
    return ZeroTrainer(
        engine, int(stage), linear, config["zero_optimization"]["reduce_bucket_size"]
    )


def _check_group(group: dist.ProcessGroup) -> None:
    """It shards over the default process group and takes no other."""
    ranks, world = dist.get_process_group_ranks(group), dist.get_world_size()
    if len(ranks) != world:
        raise CannotMeasure(
            f"DeepSpeed was to train on {len(ranks)} of the {world} ranks: {_listed(ranks)}",
            expected="all ranks: DeepSpeed always shards over the whole world",
            next="start as many ranks as are to train, or leave the deepspeed strategies out",
        )


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown + (", …" if len(ranks) > 8 else "")


def _same_buffers(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Rank 0's buffers everywhere; of the parameters DeepSpeed takes care."""
    for buffer in model.buffers():
        dist.broadcast(buffer.detach(), src=0, group=group)


def _open(device: torch.device) -> Any:
    """The package, told of the device, without its C++ kernels and without a word on stdout."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if device.type == "cuda" else "cpu")
    # It reads the index of its device there, at the start and in stage 3 at every forward pass.
    index = cast(int | None, device.index)
    if index is not None or "LOCAL_RANK" not in os.environ:
        os.environ["LOCAL_RANK"] = str(index or 0)
    logger = logging.getLogger("DeepSpeed")
    logger.addFilter(_warns)
    try:
        import deepspeed
        import deepspeed.ops
    except ImportError as error:
        raise CannotMeasure(
            f"DeepSpeed cannot be imported: {error}",
            expected="the extra deepspeed",
            next="DS_BUILD_OPS=0 pip install 'wirespeed[deepspeed]'",
        )
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)
    # It calls names that torch 2.13 deprecates, which is not for its user to mend.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    # Compiled for half a minute at the first start, and used by inference only.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.comm.init_distributed(auto_mpi_discovery=False, verbose=False)
    return deepspeed


def _warns(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


class _Linear:
    """Within it `torch.nn.functional.linear` is that function.

    Stage 3 brings a linear function of its own, which does not keep gathered weights for backward.
    DeepSpeed puts it in place of torch's for the whole process and for good, where it would change
    every model that trains beside this one; here it serves its own engine only.
    """

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        self._function = function
        self._before = function

    def __enter__(self) -> None:
        self._before, functional.linear = functional.linear, self._function

    def __exit__(self, *_: object) -> None:
        functional.linear = self._before

    def serve(self, engine: nn.Module) -> None:
        """Be in place during its forward passes, those that raise included."""
        engine.register_forward_pre_hook(lambda *_: self.__enter__())
        engine.register_forward_hook(lambda *_: self.__exit__(), always_call=True)


class _Autocast:
    """Autocast within the engine as the caller has it around.

    The engine turns torch.autocast on CUDA off for its forward passes, so that a step which is
    asked for in bfloat16 would be made, and timed, in float32.
    """

    def __init__(self, device_type: str) -> None:
        self._type = device_type
        self._asked = torch.autocast(device_type, enabled=False)

    def serve(self, engine: Any) -> None:
        engine.register_forward_pre_hook(lambda *_: self._note())
        engine.module.register_forward_pre_hook(lambda *_: self._enter())
        engine.module.register_forward_hook(lambda *_: self._leave(), always_call=True)

    def _note(self) -> None:
        enabled, dtype = torch.is_autocast_enabled(self._type), torch.get_autocast_dtype(self._type)
        self._asked = torch.autocast(self._type, dtype, enabled=enabled)

    def _enter(self) -> None:
        self._asked.__enter__()

    def _leave(self) -> None:
        self._asked.__exit__(None, None, None)


class ZeroTrainer:
    """A DeepSpeed engine behind the contract of a trainer."""

    def __init__(self, engine: Any, stage: int, linear: _Linear, bucket_elements: int) -> None:
        self.model: nn.Module = engine
        self._engine = engine
        self._stage = stage
        self._linear = linear
        linear.serve(engine)
        _Autocast(engine.device.type).serve(engine)
        self._bucket_elements = bucket_elements
        if stage == 0:
            # It would reduce within backward, in one piece of 5e8 elements whatever is configured.
            engine.enable_backward_allreduce = False
        engine.set_gradient_accumulation_boundary(True)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self._engine.set_gradient_accumulation_boundary(True)

    def backward(self, loss: torch.Tensor) -> None:
        with self._linear:  # checkpointed parts run forward again in here
            self._engine.backward(loss, scale_wrt_gas=False)

    def finish(self) -> None:
        if self._stage == 0:
            self._engine.allreduce_gradients(bucket_size=self._bucket_elements)

    def clip(self, max_norm: float) -> None:
        if self._stage == 0:
            nn.utils.clip_grad_norm_(self._engine.module.parameters(), max_norm)
        else:
            self._engine.optimizer.clip_grad = max_norm

    def step(self) -> None:
        self._engine.step()
        if self._stage > 0:
            self._engine.optimizer.clip_grad = 0.0

    def full_parameters(self) -> dict[str, torch.Tensor]:
        return {name: self._whole(one) for name, one in self._engine.module.named_parameters()}

    def _whole(self, parameter: nn.Parameter) -> torch.Tensor:
        if self._stage < 3:
            return whole(parameter)
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([parameter]):
            return whole(parameter)

    def close(self) -> None:
        self._engine.destroy()
