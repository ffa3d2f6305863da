"""Which devices there are, and which rank works with which: GPUs, and the cores of NUMA nodes.

A rank works with its own GPU. Cores are those that the ranks of a node may run on, one thread of each
core (its hyper-threads share what multiplies); of each NUMA node one rank works with all of them.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from wirespeed.model.records import Choice
from wirespeed.model.units import counted
from wirespeed.node.limits import cpu_quota, gather_cpus
from wirespeed.node.reading import Notes, numbered, read_text
from wirespeed.rank.place import Place

Kind = Literal["cpu", "gpu"]
_KINDS: tuple[Kind, ...] = ("cpu", "gpu")
_ROOT = Path("/")
_PART = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Unit:
    """A device that this rank works with."""

    kind: Kind
    name: str
    product: str
    turn: int
    """When it works alone: devices of one kind and node have their turns one after the other."""
    cpus: tuple[int, ...] = ()
    """One of each core."""
    beside: tuple[int, ...] = ()
    """Cores of the next NUMA node; of a machine that has one its own."""
    stricken: tuple[tuple[int, int], ...] = ()
    """(number of the core among `cpus`, global rank whose faults strike there); of a GPU core 0."""


@dataclass(frozen=True, slots=True)
class Units:
    mine: tuple[Unit, ...]
    turns: dict[Kind, int]
    """How many turns a kind of device takes: most of one node."""
    choices: tuple[Choice, ...]


def units_of(place: Place, *, gpus_only: bool, root: Path = _ROOT) -> Units:
    """Collective. gpus_only: where any rank has a GPU, cores are left alone."""
    masks = place.control.objects(sorted(os.sched_getaffinity(0)), [int])
    host = place.hosts[place.rank]
    here = [rank for rank, name in enumerate(place.hosts) if name == host]
    cpus = sorted({cpu for rank in here for cpu in masks[rank]})
    own = _gpu(place, here)
    choices: tuple[Choice, ...] = ()
    any_gpu = not place.control.all_true(place.device.type == "cpu")
    if not gpus_only or not any_gpu:
        cores, choices = _cores(place, here, cpus, root)
        own += cores
    mine = [max((one.turn + 1 for one in own if one.kind == kind), default=0) for kind in _KINDS]
    turns = place.control.matrix(list(map(float, mine))).max(0).values.tolist()
    return Units(tuple(own), {kind: int(n) for kind, n in zip(_KINDS, turns, strict=True)}, choices)


def _gpu(place: Place, here: Sequence[int]) -> list[Unit]:
    """This rank's own, unless another rank of the node has the same."""
    uuids = [place.gpus[rank] or f"rank {rank}" for rank in here]
    mine = uuids[here.index(place.rank)]
    if place.device.type == "cpu" or uuids.index(mine) != here.index(place.rank):
        return []
    product = torch.cuda.get_device_name(place.device)
    sharing = tuple((0, rank) for rank, uuid in zip(here, uuids, strict=True) if uuid == mine)
    turn = list(dict.fromkeys(uuids)).index(mine)
    return [Unit("gpu", str(place.device), product, turn, stricken=sharing)]


def _cores(
    place: Place, here: Sequence[int], cpus: Sequence[int], root: Path
) -> tuple[list[Unit], tuple[Choice, ...]]:
    """NUMA nodes that this rank works with; the ranks of a node take them in turn."""
    notes = Notes(root)
    gather_cpus(notes)
    cores = one_of_each_core(cpus, root)
    quota = cpu_quota(root)
    kept = cores[: max(1, int(quota))] if quota else cores
    shared = ((n, tuple(cpu for cpu in kept if cpu in all_)) for n, all_ in numa_nodes(root, cpus))
    nodes = [(number, own) for number, own in shared if own]
    model = notes.facts.cpu_model or "CPU"
    units = [
        Unit(
            kind="cpu",
            name=f"NUMA node {number}",
            product=model,
            turn=turn,
            cpus=own,
            beside=nodes[(turn + 1) % len(nodes)][1],
            stricken=_stricken(own, [cpu for _, others in nodes for cpu in others], here),
        )
        for turn, (number, own) in enumerate(nodes)
        if turn % len(here) == here.index(place.rank)
    ]
    why = f"one of each core that the ranks of {place.hosts[place.rank]} may run on"
    if len(kept) < len(cores):
        why += f"; of {len(cores)} as many as the CPU quota ({quota:g}) lets run at once"
    choice = Choice("cores", f"{len(kept)} on {counted(len(nodes), 'NUMA node')}", why)
    return units, (choice,) if place.rank == 0 else ()


def _stricken(
    own: Sequence[int], every: Sequence[int], here: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Each rank of a node has one of its cores, by its place among them."""
    ranks = ((every[place % len(every)], rank) for place, rank in enumerate(here))
    return tuple((own.index(cpu), rank) for cpu, rank in ranks if cpu in own)


def one_of_each_core(cpus: Iterable[int], root: Path = _ROOT) -> list[int]:
    """Of hyper-threads that are one core the first; all where the kernel does not tell."""
    found: dict[str, int] = {}
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        core = read_text(folder / "core_cpus_list") or read_text(folder / "thread_siblings_list")
        found.setdefault(core or f"cpu {cpu}", cpu)
    return list(found.values())


def numa_nodes(root: Path, cpus: Sequence[int]) -> list[tuple[int, frozenset[int]]]:
    """CPUs by NUMA node; one node 0 with all of them where the kernel does not tell."""
    found = [
        (int(node.name.removeprefix("node")), _listed(read_text(node / "cpulist") or ""))
        for node in numbered(root / "sys/devices/system/node", "node")
    ]
    known = frozenset[int]().union(*(own for _, own in found))
    return found if known.issuperset(cpus) else [(0, frozenset(cpus))]


def _listed(text: str) -> frozenset[int]:
    """Of `0-3,8`."""
    ends = [match.groups() for match in _PART.finditer(text)]
    return frozenset(n for low, high in ends for n in range(int(low), int(high or low) + 1))
