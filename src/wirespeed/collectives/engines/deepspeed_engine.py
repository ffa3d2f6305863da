"""deepspeed.comm: the same operations, called through DeepSpeed's layer over torch.distributed.

DeepSpeed takes up the process group that is open already. Its shared-memory kernel, which it would
compile for half a minute at the first start, serves only `inference_all_reduce`; it is left out.
Runs in ranks only; needs the extra `deepspeed`.
"""

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from wirespeed.collectives.collective import Collective
from wirespeed.collectives.engines.base import Call
from wirespeed.collectives.engines.torch_engine import TorchEngine


class DeepSpeedEngine(TorchEngine):
    """Binds the catalogue to deepspeed.comm."""

    name = "deepspeed"

    def __init__(self, backend: str, device: torch.device) -> None:
        super().__init__(backend, device, api=_open(backend, device))

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        if collective.point_to_point and self.backend == "nccl" and not _batches(self._api):
            # Alone, each rank's send waits in its stream before the receive that the peer needs.
            return "this DeepSpeed has no batch_isend_irecv, without which NCCL deadlocks"
        return super().why_not(collective, dtype, redop, in_place)

    def _both(self, call: Call, to: int, source: int) -> Callable[[], Sequence[Any]]:
        """DeepSpeed's batch where it has one (it came late), else its isend and irecv."""
        api, group = self._api, call.group.handle
        if _batches(api):
            send = api.P2POp(api.isend, call.input, to, group)
            receive = api.P2POp(api.irecv, call.output, source, group)
            return partial(api.batch_isend_irecv, [send, receive])
        send = partial(api.isend, call.input, to, group)
        receive = partial(api.irecv, call.output, source, group)
        return lambda: (send(), receive())


def _batches(api: Any) -> bool:
    return hasattr(api, "batch_isend_irecv") and hasattr(api, "P2POp")


def _open(backend: str, device: torch.device) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if device.type == "cuda" else "cpu")
    # It logs to stdout, where rank 0's report goes; a level would be set anew by the import.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    import deepspeed.comm
    import deepspeed.ops

    # It calls names that torch 2.13 deprecates, which is not for its user to mend.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.comm.init_distributed(
        dist_backend=backend, auto_mpi_discovery=False, verbose=False, dist_init_required=None
    )
    return deepspeed.comm
