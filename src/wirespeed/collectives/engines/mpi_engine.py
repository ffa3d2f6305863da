"""mpi4py: the operations as MPI's own calls, on CPU buffers.

The ranks must be MPI's: started by mpirun, in the same order as ours. Moving operations send any type
as bytes; reductions exist for the types that MPI has. bfloat16 and float16 are refused there, since
mpi4py would reduce their bytes as something else without an error. Runs in ranks only; needs the
extra `mpi`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from wirespeed.collectives.catalogue import Collective, partner, split_count
from wirespeed.collectives.engines.base import Call, Group, Handle, Issue
from wirespeed.errors import WorldError

__all__ = ["MpiEngine"]

_TYPES = {
    "float32": MPI.FLOAT,
    "float64": MPI.DOUBLE,
    "int8": MPI.INT8_T,
    "int32": MPI.INT32_T,
    "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T,
}
_REDOPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}
_NO_IN_PLACE = {
    "reduce_scatter": "MPI leaves the result at the start of the buffer, not in this rank's chunk",
    "all_to_all": "all_to_all has no in-place form here",
    "all_to_all_v": "all_to_all_v has no in-place form here",
    "send_recv": "send_recv has no in-place form here",
    "pair_exchange": "pair_exchange has no in-place form here",
    "barrier": "a barrier has no buffers",
}


class _Request:
    """One or more MPI requests as a handle."""

    __slots__ = ("_requests",)

    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests

    def wait(self) -> None:
        MPI.Request.Waitall(self._requests)


class MpiEngine:
    """Binds the catalogue to an MPI communicator."""

    name = "mpi4py"
    backend = "mpi"
    in_place_only = frozenset({"broadcast"})

    def __init__(self, device: torch.device) -> None:
        self.device = device
        world = MPI.COMM_WORLD
        if world.Get_size() != dist.get_world_size():
            raise WorldError(
                f"MPI sees {world.Get_size()} rank(s), and this world has {dist.get_world_size()}",
                expected="ranks that mpirun started",
                next=f"mpirun -n {dist.get_world_size()} python -m wirespeed bench … --engine mpi4py",
            )
        if device.type != "cpu":
            raise WorldError(
                "the engine mpi4py works on CPU buffers",
                expected="--backend gloo",
                next="mpirun … python -m wirespeed bench … --engine mpi4py --backend gloo",
            )
        self._world = world.Split(0, dist.get_rank())

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        if in_place and collective.name in _NO_IN_PLACE:
            return _NO_IN_PLACE[collective.name]
        if collective.reduces and dtype not in _TYPES:
            return f"MPI has no {dtype}; mpi4py would reduce its bytes as another type"
        if collective.reduces and redop not in _REDOPS:
            return f"MPI has no reduction {redop}"
        return ""

    def ulps(self, redop: str, ranks: int) -> int:
        return 0

    def group(self, members: list[tuple[int, ...]]) -> Group | None:
        mine = next((ranks for ranks in members if dist.get_rank() in ranks), None)
        color = members.index(mine) if mine else MPI.UNDEFINED
        communicator = self._world.Split(color, dist.get_rank())
        return Group(mine, mine.index(dist.get_rank()), communicator) if mine else None

    def bind(self, call: Call) -> Issue:
        binder: Callable[[Call], Issue] = getattr(self, f"_bind_{call.collective.name}")
        return binder(call)

    def close(self) -> None:
        """Finalize here: a rank that ends without it is a failure to mpirun, which kills the rest."""
        MPI.Finalize()

    def _bind_all_reduce(self, call: Call) -> Issue:
        given = MPI.IN_PLACE if _in_place(call) else _typed(call.input)
        return _issue(call, "Allreduce", given, _typed(call.output), op=_REDOPS[call.redop])

    def _bind_reduce_scatter(self, call: Call) -> Issue:
        return _issue(
            call,
            "Reduce_scatter_block",
            _typed(call.input),
            _typed(call.output),
            op=_REDOPS[call.redop],
        )

    def _bind_all_gather(self, call: Call) -> Issue:
        given = MPI.IN_PLACE if _in_place(call) else _bytes(call.input)
        return _issue(call, "Allgather", given, _bytes(call.output))

    def _bind_all_to_all(self, call: Call) -> Issue:
        return _issue(call, "Alltoall", _bytes(call.input), _bytes(call.output))

    def _bind_all_to_all_v(self, call: Call) -> Issue:
        me, n, width = call.geometry.rank, call.geometry.ranks, call.input.element_size()
        count = call.geometry.count * width
        sent = [split_count(me, peer, count) for peer in range(n)]
        received = [split_count(peer, me, count) for peer in range(n)]
        return _issue(call, "Alltoallv", _parted(call.input, sent), _parted(call.output, received))

    def _bind_broadcast(self, call: Call) -> Issue:
        return _issue(call, "Bcast", _bytes(call.output), root=call.geometry.root)

    def _bind_reduce(self, call: Call) -> Issue:
        root = _is_root(call)
        given = MPI.IN_PLACE if root and _in_place(call) else _typed(call.input)
        taken = _typed(call.output) if root else None
        return _issue(call, "Reduce", given, taken, op=_REDOPS[call.redop], root=call.geometry.root)

    def _bind_gather(self, call: Call) -> Issue:
        root = _is_root(call)
        given = MPI.IN_PLACE if root and _in_place(call) else _bytes(call.input)
        taken = _bytes(call.output) if root else None
        return _issue(call, "Gather", given, taken, root=call.geometry.root)

    def _bind_scatter(self, call: Call) -> Issue:
        root = _is_root(call)
        given = _bytes(call.input) if root else None
        taken = MPI.IN_PLACE if root and _in_place(call) else _bytes(call.output)
        return _issue(call, "Scatter", given, taken, root=call.geometry.root)

    def _bind_send_recv(self, call: Call) -> Issue:
        me, n = call.geometry.rank, call.geometry.ranks
        return _exchange(call, to=(me + 1) % n, source=(me - 1) % n)

    def _bind_pair_exchange(self, call: Call) -> Issue:
        other = partner(call.geometry)
        if other is None:
            return partial(_Request, []) if not call.blocking else lambda: None
        return _exchange(call, to=other, source=other)

    def _bind_barrier(self, call: Call) -> Issue:
        return _issue(call, "Barrier")


def _issue(call: Call, method: str, *buffers: Any, **keywords: Any) -> Issue:
    """The blocking method, or its nonblocking twin (`Allreduce`, `Iallreduce`) with a handle."""
    if call.blocking:
        return partial(getattr(call.group.handle, method), *buffers, **keywords)
    start = partial(getattr(call.group.handle, f"I{method.lower()}"), *buffers, **keywords)
    return lambda: _Request([start()])


def _exchange(call: Call, *, to: int, source: int) -> Issue:
    communicator = call.group.handle
    given, taken = _bytes(call.input), _bytes(call.output)
    if call.blocking:
        return partial(communicator.Sendrecv, given, to, recvbuf=taken, source=source)

    def start() -> Handle:
        return _Request([communicator.Irecv(taken, source), communicator.Isend(given, to)])

    return start


def _is_root(call: Call) -> bool:
    return call.geometry.rank == call.geometry.root


def _in_place(call: Call) -> bool:
    """Whether both buffers are views of one tensor."""
    return (
        call.input.untyped_storage().data_ptr() == call.output.untyped_storage().data_ptr()
        and call.output.numel() > 0
    )


def _typed(tensor: torch.Tensor) -> list[Any]:
    return [tensor.numpy(), _TYPES[str(tensor.dtype).removeprefix("torch.")]]


def _bytes(tensor: torch.Tensor) -> list[Any]:
    return [tensor.view(torch.uint8).numpy(), MPI.BYTE]


def _parted(tensor: torch.Tensor, counts: list[int]) -> list[Any]:
    """counts: bytes for each peer, one after the other."""
    offsets = [sum(counts[:index]) for index in range(len(counts))]
    return [tensor.view(torch.uint8).numpy(), (counts, offsets), MPI.BYTE]
