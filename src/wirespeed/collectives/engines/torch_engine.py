"""torch.distributed: gloo on CPUs, NCCL on GPUs, whatever else it was built with; DeepSpeed over it.

Of the functions that the catalogue names the newest that exists is called (`all_gather_single` and
`reduce_scatter_single` came with 2.13). Runs in ranks only.
"""

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import partner
from wirespeed.collectives.collective import Collective
from wirespeed.collectives.engines import Call, Group, Issue

_REDOPS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
_REFUSALS = (
    "Invalid scalar type",
    "not supported",
    "not currenlty supported",  # so spelt of float8 by torch 2.6
    "Unsupported",
    "unsupported",
    "Cannot use",
    "Unconvertible",
)
_FAILURES: tuple[type[Exception], ...] = tuple(
    found
    for found in (getattr(torch, "AcceleratorError", None), getattr(dist, "DistBackendError", None))
    if found is not None
)
"""What CUDA and NCCL themselves answer; in 2.7 and older CUDA's is a plain RuntimeError."""
_CUDA_ERROR = "CUDA error: "
_FP8_REDUCES = 90
"""NCCL reduces float8 from this compute capability on (its enqueue.cc, 2.24 and later)."""


def device_failed(error: Exception) -> bool:
    """Whether CUDA or NCCL answered with an error, in whose words there may be `not supported`, too."""
    return isinstance(error, _FAILURES) or _CUDA_ERROR in str(error)


def is_refusal(error: Exception) -> bool:
    """Whether the backend says that it has no such operation (as opposed to a failure)."""
    if device_failed(error):
        return False
    return isinstance(error, (RuntimeError, ValueError, TypeError, NotImplementedError)) and any(
        words in str(error) for words in _REFUSALS
    )


class _All:
    """Several handles as one, or none, with nothing to wait for."""

    __slots__ = ("_handles",)

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def wait(self) -> None:
        for handle in self._handles:
            handle.wait()


class TorchEngine:
    """Calls `api`, which is torch.distributed or a module with the same functions."""

    name = "torch"
    in_place_only = frozenset({"all_reduce", "broadcast", "reduce"})

    def __init__(
        self, backend: str, device: torch.device, api: Any = dist, *, capability: int = 0
    ) -> None:
        """capability: the least of all ranks' GPUs, 90 for Hopper; 0 on CPUs."""
        self.backend = backend
        self.device = device
        self._api, self._capability = api, capability

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        if in_place and not collective.in_place:
            return f"{collective.name} has no in-place form in torch.distributed"
        if dtype.startswith("float8") and collective.reduces:
            if self.backend != "nccl":
                return f"{self.backend} does not reduce {dtype} in this torch"
            if self._capability < _FP8_REDUCES:
                had = f"{self._capability / 10:.1f}"
                return f"NCCL reduces {dtype} on GPUs of compute capability 9.0 or later, not {had}"
        if self.backend == "gloo" and dtype.startswith("float8") and not collective.point_to_point:
            return f"gloo has no {dtype} outside send and receive"
        if redop == "avg" and not dtype.startswith(("float", "bfloat")):
            return f"an average of {dtype} is not defined in torch.distributed"
        return ""

    def ulps(self, redop: str, ranks: int) -> int:
        """NCCL multiplies by the rounded 1/n first; exact only for powers of two."""
        power_of_two = ranks & (ranks - 1) == 0
        return ranks if self.backend == "nccl" and redop == "avg" and not power_of_two else 0

    def group(self, members: list[tuple[int, ...]]) -> Group | None:
        mine = None
        for ranks in members:
            whole = len(ranks) == dist.get_world_size()
            handle = None if whole else self._api.new_group(list(ranks))
            if dist.get_rank() in ranks:
                mine = Group(ranks, ranks.index(dist.get_rank()), handle)
        return mine

    def bind(self, call: Call) -> Issue:
        """By its own `_bind_NAME`; else the function named in the catalogue on its buffers.

        Only keywords that differ from the defaults: each costs a timed call some 0.3 µs.
        """
        own = getattr(self, f"_bind_{call.collective.name}", None)
        if own is not None:
            return cast(Issue, own(call))
        one_buffer = call.collective.name in self.in_place_only
        return self._issue(call, *((call.output,) if one_buffer else (call.output, call.input)))

    def sync_point(self, group: Group) -> Callable[[], object]:
        return partial(self._api.barrier, **self._where(group), **self._whose())

    def close(self) -> None:
        return None

    def _where(self, group: Group) -> dict[str, Any]:
        return {} if group.handle is None else {"group": group.handle}

    def _whose(self) -> dict[str, Any]:
        """A barrier has no buffer that would tell the GPU."""
        return {"device_ids": [self.device.index]} if self.device.type == "cuda" else {}

    def _issue(self, call: Call, *given: Any, **keywords: Any) -> Issue:
        keywords |= self._where(call.group)
        if call.collective.reduces:
            keywords["op"] = getattr(self._api.ReduceOp, _REDOPS[call.redop])
        if not call.blocking:
            keywords["async_op"] = True
        return partial(_first(self._api, call.collective.functions), *given, **keywords)

    def _root(self, call: Call) -> int:
        return call.group.ranks[call.geometry.root]

    def _bind_all_to_all_v(self, call: Call) -> Issue:
        me, n, count = call.geometry.rank, call.geometry.ranks, call.geometry.count
        splits = call.collective.splits
        received = [splits(peer, me, count) for peer in range(n)]
        sent = [splits(me, peer, count) for peer in range(n)]
        return self._issue(call, call.output, call.input, received, sent)

    def _bind_broadcast(self, call: Call) -> Issue:
        return self._issue(call, call.output, self._root(call))

    def _bind_reduce(self, call: Call) -> Issue:
        mine = call.output if _is_root(call) else call.input
        return self._issue(call, mine, self._root(call))

    def _bind_gather(self, call: Call) -> Issue:
        chunks = _chunks(call.output, call) if _is_root(call) else None
        return self._issue(call, call.input, chunks, dst=self._root(call))

    def _bind_scatter(self, call: Call) -> Issue:
        chunks = _chunks(call.input, call) if _is_root(call) else None
        return self._issue(call, call.output, chunks, src=self._root(call))

    def _bind_send_recv(self, call: Call) -> Issue:
        me, n = call.geometry.rank, call.geometry.ranks
        return self._exchange(call, to=(me + 1) % n, source=(me - 1) % n)

    def _bind_pair_exchange(self, call: Call) -> Issue:
        other = partner(call.geometry)
        if other is None:
            return partial(_All, ()) if not call.blocking else lambda: None
        return self._exchange(call, to=other, source=other)

    def _exchange(self, call: Call, *, to: int, source: int) -> Issue:
        start = self._both(call, call.group.ranks[to], call.group.ranks[source])
        if not call.blocking:
            return lambda: _All(start())

        def exchange() -> None:
            for work in start():
                work.wait()

        return exchange

    def _both(self, call: Call, to: int, source: int) -> Callable[[], Sequence[Any]]:
        """What issues the send and the receive; `to` and `source` are global ranks."""
        return _batched(dist, call, to, source)

    def _bind_barrier(self, call: Call) -> Issue:
        return self._issue(call, **self._whose())


def _first(api: Any, names: Sequence[str]) -> Any:
    return next(getattr(api, name) for name in names if hasattr(api, name))


def _is_root(call: Call) -> bool:
    return call.geometry.rank == call.geometry.root


def _chunks(tensor: torch.Tensor, call: Call) -> list[torch.Tensor]:
    return list(tensor.split(call.geometry.count))


class DeepSpeedEngine(TorchEngine):
    """deepspeed.comm: the same operations through DeepSpeed's layer over torch.distributed.

    It takes up the process group that is open already. Its shared-memory kernel, which it would compile
    for half a minute at the first start, serves only `inference_all_reduce`; it is left out.
    """

    name = "deepspeed"

    def __init__(self, backend: str, device: torch.device, capability: int) -> None:
        super().__init__(backend, device, api=_open(backend, device), capability=capability)

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        if collective.point_to_point and self.backend == "nccl" and not _batches(self._api):
            # Alone, each rank's send waits in its stream before the receive that the peer needs.
            return "this DeepSpeed has no batch_isend_irecv, without which NCCL deadlocks"
        return super().why_not(collective, dtype, redop, in_place)

    def _both(self, call: Call, to: int, source: int) -> Callable[[], Sequence[Any]]:
        """DeepSpeed's batch where it has one (it came late), else its isend and irecv."""
        api, group = self._api, call.group.handle
        if _batches(api):
            return _batched(api, call, to, source)
        send = partial(api.isend, call.input, to, group)
        receive = partial(api.irecv, call.output, source, group)
        return lambda: (send(), receive())


def _batched(api: Any, call: Call, to: int, source: int) -> Callable[[], Sequence[Any]]:
    send = api.P2POp(api.isend, call.input, to, call.group.handle)
    receive = api.P2POp(api.irecv, call.output, source, call.group.handle)
    return partial(api.batch_isend_irecv, [send, receive])


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
