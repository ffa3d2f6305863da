"""deepspeed.comm: the same operations, called through DeepSpeed's layer over torch.distributed.

DeepSpeed takes up the process group that is open already. Its shared-memory kernel, which it would
compile for half a minute at the first start, serves only `inference_all_reduce`; it is left out.
Runs in ranks only; needs the extra `deepspeed`.
"""

import logging
import os
from typing import Any

import torch

from wirespeed.collectives.engines.base import Call, Handle, Issue
from wirespeed.collectives.engines.torch_engine import AllHandles, TorchEngine

__all__ = ["DeepSpeedEngine"]


class DeepSpeedEngine(TorchEngine):
    """Binds the catalogue to deepspeed.comm."""

    name = "deepspeed"

    def __init__(self, backend: str, device: torch.device) -> None:
        super().__init__(backend, device, api=_open(backend, device))

    def _exchange(self, call: Call, *, to: int, source: int) -> Issue:
        """DeepSpeed's isend and irecv (it has no coalesced form in all versions)."""
        isend, irecv = self._api.isend, self._api.irecv
        given, output, group = call.input, call.output, call.group.handle
        to, source = call.group.ranks[to], call.group.ranks[source]

        def start() -> Handle:
            return AllHandles([isend(given, to, group), irecv(output, source, group)])

        if not call.blocking:
            return start

        def exchange() -> None:
            start().wait()

        return exchange


def _open(backend: str, device: torch.device) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if device.type == "cuda" else "cpu")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    import deepspeed.comm
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.comm.init_distributed(
        dist_backend=backend, auto_mpi_discovery=False, verbose=False, dist_init_required=None
    )
    return deepspeed.comm
