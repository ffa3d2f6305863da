"""Where a rank stands: its world, device, engine, and how ranks talk around the measurements."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from wirespeed.collectives.collective import Collective, DType, Geometry, dtype_named, members_of
from wirespeed.collectives.engines import Call, Engine, Group
from wirespeed.collectives.oracle import allocate
from wirespeed.plan import Case
from wirespeed.training.exchange import gathered, gathered_states

T = TypeVar("T")
_CPU = torch.device("cpu")


class Control:
    """The control group of this world."""

    def __init__(self, group: dist.ProcessGroup | None, rank: int, world_size: int) -> None:
        self.rank, self.world_size, self._group = rank, world_size, group
        self._token = torch.zeros(1)

    def barrier(self) -> None:
        """Returns when every rank has come here."""
        dist.all_reduce(self._token, group=self._group)

    def matrix(self, row: Sequence[float], *, within_s: float | None = None) -> torch.Tensor:
        """Every rank's row of the same length, float64, shape (world size, len(row)).

        within_s: TimeoutError when the others have not come by then; this group is then of no more use.
        """
        # Gather and broadcast take a third of all_gather's time on gloo (docs/benchmarks.md), and
        # nobody can get other figures than the rest.
        mine = torch.tensor(row, dtype=torch.float64)
        every = torch.empty(self.world_size, len(row), dtype=torch.float64)
        rows = list(every) if self.rank == 0 else None
        if within_s is None:
            dist.gather(mine, rows, dst=0, group=self._group)
            dist.broadcast(every, src=0, group=self._group)
            return every
        bound = timedelta(seconds=within_s)
        _wait(dist.gather(mine, rows, dst=0, group=self._group, async_op=True), bound)
        _wait(dist.broadcast(every, src=0, group=self._group, async_op=True), bound)
        return every

    def all_true(self, value: bool) -> bool:
        """Whether it holds on every rank."""
        return bool(self.matrix([float(value)]).min() > 0)

    def objects(self, value: T, shape: Any) -> list[T]:
        """Every rank's value, by rank, as that shape (training/exchange.py); small ones.

        WorldError where a rank sent anything else.
        """
        return gathered(value, shape, self._group, _CPU)

    def states(self, state: Any, *, keeps: bool = True) -> list[Any]:
        """Every rank's tree of values and tensors, by rank; `keeps`: whether this one needs them."""
        return gathered_states(state, self._group, _CPU, keeps=keeps)


def _wait(work: Any, bound: timedelta) -> None:
    try:
        work.wait(bound)
    except RuntimeError as error:
        raise TimeoutError(str(error)) from error


@dataclass(slots=True)
class Place:
    """What every step needs and no step changes."""

    rank: int
    world_size: int
    hosts: tuple[str, ...]
    """Host name by global rank."""
    local_ranks: tuple[int, ...]
    """Local rank by global rank."""
    racks: tuple[str, ...]
    """Rack (or leaf switch) by global rank, empty where that rank does not know it."""
    gpus: tuple[str, ...]
    """UUID of the GPU by global rank, empty where a rank has none."""
    engine: Engine
    control: Control
    store: dist.Store
    tick: Callable[[], None]
    """Tells the watchdog of progress within an operation."""
    busy: Callable[[float | None], None]
    """Announces local work that may take so many seconds; None: it is over."""
    cache_bytes: int | None
    groups: dict[str, tuple[list[tuple[int, ...]], Group | None]]
    """Cuts of the world made so far: all members, and the group that this rank is in."""
    connected: set[tuple[str, str]] = field(default_factory=set)
    """(operation, groups) of which a first call was made."""

    @property
    def local_ranks_here(self) -> int:
        """Ranks that share this rank's host."""
        return self.hosts.count(self.hosts[self.rank])

    def sharers(self, rank: int) -> list[int]:
        """Ranks whose buffers lie in the same memory as that rank's: of its host, or of its GPU."""
        memory = self.hosts if self.device.type == "cpu" else self.gpus
        known = bool(memory[rank])
        return [one for one, at in enumerate(memory) if at == memory[rank]] if known else [rank]

    @property
    def device(self) -> torch.device:
        return self.engine.device

    def cut(self, spec: str) -> tuple[list[tuple[int, ...]], Group | None]:
        """The groups of that name; collective the first time."""
        if spec not in self.groups:
            members = members_of(spec, self.hosts, self.local_ranks)
            with busy_for(self, CONNECT_S if self.device.type == "cuda" else 0.0):
                self.groups[spec] = members, self.engine.group(members)
        return self.groups[spec]


@dataclass(frozen=True)
class Site:
    """A case as it stands on this rank; `group` is None on a rank outside of every group."""

    case: Case
    collective: Collective
    dtype: DType
    members: list[tuple[int, ...]]
    group: Group | None
    count: int

    @cached_property
    def ranks(self) -> int:
        """Ranks of one group (the largest, should they differ)."""
        return max((len(ranks) for ranks in self.members), default=1)

    @cached_property
    def geometry(self) -> Geometry:
        rank = self.group.rank if self.group else 0
        ranks = len(self.group.ranks) if self.group else 1
        return Geometry(rank, ranks, self.count, max(self.case.root, 0))

    @cached_property
    def size_bytes(self) -> int:
        """The real size, after rounding to whole elements and ranks."""
        return self.collective.size_bytes(self.count, self.dtype.itemsize, self.ranks)

    @cached_property
    def torch_dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.dtype.name)
        return found

    def call(self, input: torch.Tensor, output: torch.Tensor, *, blocking: bool = True) -> Call:
        """The operation on these buffers; ValueError on a rank outside of every group."""
        if self.group is None:
            raise ValueError("a rank outside of every group has no call")
        return Call(
            collective=self.collective,
            geometry=self.geometry,
            redop=self.case.redop,
            input=input,
            output=output,
            group=self.group,
            blocking=blocking,
        )

    def told(self, engine: str) -> dict[str, Any]:
        """What each record of this case says of it."""
        case = self.case
        return {
            "op": case.op,
            "engine": engine,
            "dtype": self.dtype.name,
            "redop": case.redop,
            "root": case.root,
            "in_place": case.in_place,
            "size_bytes": self.size_bytes,
            "count": self.count,
            "ranks": self.ranks,
            "groups": case.groups,
        }


def site_of(place: Place, case: Case, collective: Collective, size_bytes: int) -> Site:
    """Place a case on this rank, for about that size."""
    members, group = place.cut(case.groups)
    dtype = dtype_named(case.dtype)
    ranks = max((len(ranks) for ranks in members), default=1)
    count = collective.count_for(size_bytes, dtype.itemsize, ranks)
    return Site(case, collective, dtype, members, group, count)


def sync_point(place: Place, site: Site) -> Callable[[], object]:
    """What a timed call comes after: the barrier of its own group, as in a plain program.

    Behind one over other connections, its own ones had time to fall asleep: 90 µs more on gloo.
    Groups side by side begin together, so that all ranks meet before each group does.
    """
    own = place.engine.sync_point(site.group) if site.group is not None else None
    if own is None:
        return place.control.barrier
    if site.ranks == place.world_size:
        return own

    def meet() -> None:
        place.control.barrier()
        own()

    return meet


def align_point(device: torch.device, group: Group | None) -> Callable[[], object]:
    """What is issued so that no device of the group goes on before all have come; nothing on CPUs.

    The host does not wait for it. None: this rank is in no group.
    """
    if device.type != "cuda" or group is None:
        return lambda: None
    return partial(dist.all_reduce, torch.zeros(1, device=device), group=group.handle)


CONNECT_S = 120.0
"""NCCL makes communicators and connections when they are first needed; of many ranks that takes longer
than any call, and is no hang."""


def connect(place: Place, site: Site) -> None:
    """Make the first call of this operation in these groups, with time to connect. Collective.

    On GPUs only.
    """
    key = (site.case.op, site.case.groups)
    if place.device.type != "cuda" or key in place.connected:
        return
    place.connected.add(key)
    if site.group is None or not site.collective.has_data:
        return
    redop = "sum" if site.collective.reduces else "none"
    case = replace(site.case, dtype="float32", redop=redop, in_place=False)
    small = site_of(place, case, site.collective, 1 << 16)
    (buffers,) = allocate(
        site.collective, small.geometry, torch.float32, place.device, in_place=False
    )
    with busy_for(place, CONNECT_S):
        place.engine.bind(small.call(buffers.input, buffers.output))()
        synchronize(place.device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was issued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def busy_for(place: Place, bound_s: float) -> Iterator[None]:
    """Within, local work goes on that may take so many seconds; 0: too little to announce it."""
    if bound_s:
        place.busy(bound_s)
    try:
        yield
    finally:
        if bound_s:
            place.busy(None)


def is_first_of_node(place: Place) -> bool:
    """Whether this rank is the first of its host."""
    return place.hosts.index(place.hosts[place.rank]) == place.rank


_LATE_S = 0.02
"""How late the late rank comes: long enough for a barrier that does not wait to be seen."""

_rounds = count()
"""Number of rounds so far; advances alike on every rank and keeps the marks apart."""


def broken_barriers(place: Place, site: Site) -> tuple[int, int]:
    """(ranks that passed before all had come, passages checked), summed over the world."""
    wrong = checked = 0
    for late in sorted({0, site.ranks - 1}):
        mark = f"wirespeed/barrier/{next(_rounds)}"
        place.control.barrier()
        if site.group is not None:
            empty = torch.empty(0, device=place.device)
            call = site.call(empty, empty)
            wrong += not _waited(place, call, late, mark)
            checked += 1
    totals = place.control.matrix([float(wrong), float(checked)]).sum(0)
    return int(totals[0]), int(totals[1])


def _waited(place: Place, call: Call, late: int, mark: str) -> bool:
    """Whether every rank of the group had left its mark when this rank came out."""
    pass_through = place.engine.bind(call)
    if call.geometry.rank == late:
        time.sleep(_LATE_S)
    # Not `set`, which a TCP store does not answer: the barrier could end before the mark is there.
    place.store.add(f"{mark}/{place.rank}", 1)
    place.tick()
    pass_through()
    synchronize(place.device)
    return bool(place.store.check([f"{mark}/{rank}" for rank in call.group.ranks]))
