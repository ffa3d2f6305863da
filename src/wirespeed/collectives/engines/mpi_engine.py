"""mpi4py: the operations as MPI's own calls, on CPU buffers.

The ranks must be MPI's: started by mpirun; its order may differ from ours. Moving operations send a
type that MPI lacks as unsigned integers of its width; reductions exist for the types that MPI has.
bfloat16 and float16 are refused there, since mpi4py would reduce their bytes as something else
without an error. Runs in ranks only; needs the extra `mpi`.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import partner
from wirespeed.collectives.collective import Collective, Geometry
from wirespeed.collectives.engines import Call, Group, Handle, Issue
from wirespeed.errors import CannotMeasure, WorldError

try:
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False  # MpiEngine does, once it knows it may
    from mpi4py import MPI
except RuntimeError as error:
    raise CannotMeasure(
        f"mpi4py finds no MPI: {error}",
        expected="the library of the MPI whose mpirun starts the ranks",
        next="pip install 'wirespeed[mpi]', or name the library: MPI4PY_LIBMPI=/path/libmpi.so",
    ) from error


MOST_ELEMENTS = 2**31 - 1
"""Counts are C ints up to MPI 3.1, and in mpi4py over it; larger ones need MPI 4."""

_STARTED_BY = ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
"""One of these is in the environment of a process that an MPI launcher (or srun) started."""
_TYPES = {
    "float32": MPI.FLOAT,
    "float64": MPI.DOUBLE,
    "int8": MPI.INT8_T,
    "int32": MPI.INT32_T,
    "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T,
}
_WIDTHS = {1: MPI.UINT8_T, 2: MPI.UINT16_T}
_REDOPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}


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
        if device.type != "cpu":
            raise WorldError(
                "the engine mpi4py works on CPU buffers",
                expected="--backend gloo",
                next="mpirun … python -m wirespeed bench … --engine mpi4py --backend gloo",
            )
        self.device = device
        self._world = _open_world(dist.get_rank(), dist.get_world_size())

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        if not collective.mpi and not collective.point_to_point:
            return f"MPI has no {collective.name}"
        if in_place and not collective.in_place:
            return f"{collective.name} has no in-place form here"
        if in_place and collective.name == "reduce_scatter":
            return "MPI leaves the result at the start of the buffer, not in this rank's chunk"
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

    def sync_point(self, group: Group) -> Callable[[], object]:
        meet: Callable[[], object] = group.handle.Barrier
        return meet

    def bind(self, call: Call) -> Issue:
        elements = _largest_count(call)
        if elements > MOST_ELEMENTS:
            raise ValueError(f"{elements} elements in one call are not supported by mpi4py here")
        binder: Callable[[Call], Issue] = getattr(self, f"_bind_{call.collective.name}", _bind)
        return binder(call)

    def close(self) -> None:
        """Finalize here: a rank that ends without it is a failure to mpirun, which kills the rest."""
        MPI.Finalize()

    def _bind_all_to_all_v(self, call: Call) -> Issue:
        me, n, count = call.geometry.rank, call.geometry.ranks, call.geometry.count
        splits = call.collective.splits
        sent = [splits(me, peer, count) for peer in range(n)]
        received = [splits(peer, me, count) for peer in range(n)]
        return _issue(call, _parted(call.input, sent), _parted(call.output, received))

    def _bind_broadcast(self, call: Call) -> Issue:
        return _issue(call, _moved(call.output))

    def _bind_barrier(self, call: Call) -> Issue:
        return _issue(call)

    def _bind_send_recv(self, call: Call) -> Issue:
        me, n = call.geometry.rank, call.geometry.ranks
        return _exchange(call, to=(me + 1) % n, source=(me - 1) % n)

    def _bind_pair_exchange(self, call: Call) -> Issue:
        other = partner(call.geometry)
        if other is None:
            return partial(_Request, []) if not call.blocking else lambda: None
        return _exchange(call, to=other, source=other)


def _bind(call: Call) -> Issue:
    """On its buffers; in place MPI is given the larger alone, which the other one lies within."""
    typed = _typed if call.collective.reduces else _moved
    buffers: list[Any] = [typed(one) if one.numel() else None for one in (call.input, call.output)]
    if _in_place(call):
        two = Geometry(0, 2, 1)
        splits = call.collective.output_count(two) < call.collective.input_count(two)
        buffers[int(splits)] = MPI.IN_PLACE
    return _issue(call, *buffers)


def _issue(call: Call, *buffers: Any) -> Issue:
    """The blocking method, or its nonblocking twin (`Allreduce`, `Iallreduce`) with a handle.

    Buffers as MPI's memory, and operation and root without their names, save mpi4py 0.2 µs a call.
    """
    arguments = [*buffers]
    if call.collective.reduces:
        arguments.append(_REDOPS[call.redop])
    if call.collective.rooted:
        arguments.append(call.geometry.root)
    method = call.collective.mpi
    if call.blocking:
        return partial(getattr(call.group.handle, method), *arguments)
    start = partial(getattr(call.group.handle, f"I{method.lower()}"), *arguments)
    return lambda: _Request([start()])


def _exchange(call: Call, *, to: int, source: int) -> Issue:
    communicator = call.group.handle
    given, taken = _moved(call.input), _moved(call.output)
    if call.blocking:
        return partial(communicator.Sendrecv, given, to, recvbuf=taken, source=source)

    def start() -> Handle:
        return _Request([communicator.Irecv(taken, source), communicator.Isend(given, to)])

    return start


def _in_place(call: Call) -> bool:
    """Whether both buffers are views of one tensor."""
    storages = (one.untyped_storage().data_ptr() for one in (call.input, call.output))
    return len(set(storages)) == 1 and call.input.numel() > 0 < call.output.numel()


def _largest_count(call: Call) -> int:
    """The largest count or offset that a call hands to MPI; the same on every rank of the group."""
    count, ranks = call.geometry.count, call.geometry.ranks
    if call.collective.name == "all_to_all_v":
        return call.collective.size_bytes(count, 1, ranks)
    return count


def _typed(tensor: torch.Tensor) -> list[Any]:
    """To be reduced: the type must be one of MPI's."""
    return [_memory(tensor), _TYPES[_name(tensor)]]


def _moved(tensor: torch.Tensor) -> list[Any]:
    """To be moved only: a type that MPI lacks goes as integers of its width."""
    return [_memory(tensor), _moving_type(tensor)]


def _parted(tensor: torch.Tensor, counts: list[int]) -> list[Any]:
    """counts: elements for each peer, one after the other."""
    offsets = [sum(counts[:index]) for index in range(len(counts))]
    return [_memory(tensor), (counts, offsets), _moving_type(tensor)]


def _memory(tensor: torch.Tensor) -> Any:
    return MPI.memory(tensor.view(torch.uint8).numpy())


def _moving_type(tensor: torch.Tensor) -> MPI.Datatype:
    return _TYPES.get(_name(tensor)) or _WIDTHS[tensor.element_size()]


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _open_world(rank: int, ranks: int) -> MPI.Comm:
    """Initialise MPI; all its ranks in our order. WorldError when they are not the ranks of ours.

    A process that no MPI launcher started is refused before: alone, Open MPI 5 leaves a file in
    /dev/shm.
    """
    started = any(name in os.environ for name in _STARTED_BY)
    if ranks > 1 and not started:
        raise WorldError(
            f"these {ranks} ranks were not started by MPI",
            expected="ranks that mpirun (or srun with PMIx) started",
            next=_command(ranks),
        )
    MPI.Init_thread(MPI.THREAD_MULTIPLE)  # as mpi4py does by itself
    size = MPI.COMM_WORLD.Get_size()
    if size == ranks:
        return MPI.COMM_WORLD.Split(0, rank)
    MPI.Finalize()
    name, version = MPI.get_vendor()
    raise WorldError(
        f"MPI sees {size} rank(s), and this world has {ranks}; mpi4py uses {name} "
        + ".".join(map(str, version)),
        expected="ranks started by the mpirun of that same MPI",
        next=_command(ranks),
    )


def _command(ranks: int) -> str:
    return f"mpirun -n {ranks} python -m wirespeed bench … --engine mpi4py"
