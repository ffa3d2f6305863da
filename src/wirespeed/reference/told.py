"""What a person says of a world whose facts do not tell it all: it completes them, never bends them."""

from dataclasses import replace

from wirespeed.errors import UsageError
from wirespeed.records import ToldShape, World
from wirespeed.reference.figures import INTERCONNECTS
from wirespeed.reference.shape import CPU, Shape, gpu_called, gpu_listed, shape_of

__all__ = ["complete", "lacking"]

_RDMA = ("ib", "roce", "rdma")


def complete(world: World, said: ToldShape, *, whose: str) -> World:
    """The world with what was said of it.

    UsageError where that contradicts its facts, or what was read out of its log; `whose` names it.
    """
    before = world.told or ToldShape()
    if before.guessed and (said.gpus_per_node or said.nodes):
        before = replace(before, gpus_per_node=0, nodes=0, guessed=False, why="")
    found = shape_of(replace(world, told=before))
    _same_gpu(_gpu_of(world, found), said.gpu, whose)
    per_node = found.per_node if found else before.gpus_per_node
    nodes = found.nodes if found else before.nodes
    _same("GPUs a node", per_node, said.gpus_per_node, whose)
    _same("nodes", nodes, said.nodes, whose)
    _same_link(found, before, said, whose)
    sizes = _sizes(world.size, said.gpus_per_node or per_node, said.nodes or nodes, whose)
    told = replace(
        before,
        gpu=said.gpu or before.gpu,
        gpus_per_node=sizes[0],
        nodes=sizes[1],
        interconnect=said.interconnect or before.interconnect,
        nics=said.nics or before.nics,
        nic_Gbitps=said.nic_Gbitps or before.nic_Gbitps,
        why="; ".join(filter(None, dict.fromkeys((before.why, said.why)))),
    )
    return replace(world, told=told)


def lacking(world: World) -> list[str]:
    """What has to be said before the world has a shape: options of ours; empty where it has one."""
    if shape_of(world) is not None:
        return []
    told = world.told or ToldShape()
    words = [] if _gpu_of(world, None) else ["--gpu"]
    if not (told.nodes and told.gpus_per_node):
        words.append("--nodes" if world.size else "--nodes, --gpus-per-node")
    return words


def _gpu_of(world: World, found: Shape | None) -> str:
    if found is not None:
        return found.gpu
    return gpu_listed(world) or (world.told.gpu if world.told else "")


def _same_gpu(known: str, said: str, whose: str) -> None:
    if not known or not said:
        return
    name = CPU if said.lower() == CPU else gpu_called(said)
    short = known.lower().startswith(said.strip().lower() + " ")
    if name != gpu_called(known) and not short:
        raise UsageError(
            f"--gpu {said}, but {whose} is of {known}", expected="no --gpu, or the same one"
        )


def _same(what: str, known: int, said: int, whose: str) -> None:
    if known and said and known != said:
        raise UsageError(
            f"{said} {what} were told, but {whose} has {known}", expected=f"{known}, or none told"
        )


def _same_link(found: Shape | None, before: ToldShape, said: ToldShape, whose: str) -> None:
    known = found.interconnect if found else before.interconnect
    alike = known in _RDMA and said.interconnect in _RDMA and "rdma" in (known, said.interconnect)
    if known and said.interconnect and known != said.interconnect and not alike:
        raise UsageError(
            f"--interconnect {said.interconnect}, but {whose} goes over {INTERCONNECTS[known]}"
            + (f" ({found.why})" if found and found.why else ""),
            expected=f"--interconnect {known}, or none told",
        )
    cards = (found.nics or 0, found.nic_Gbitps or 0.0) if found else (before.nics, 0.0)
    _same("network cards a node", cards[0], said.nics, whose)
    if cards[1] and said.nic_Gbitps and cards[1] != said.nic_Gbitps:
        raise UsageError(
            f"cards of {said.nic_Gbitps:g} Gbit/s were told, but {whose} has {cards[1]:g}",
            expected="the same, or none told",
        )


def _sizes(size: int, per_node: int, nodes: int, whose: str) -> tuple[int, int]:
    """(GPUs a node, nodes) with the one that is missing, where the number of ranks tells it."""
    if size and per_node and not nodes and size % per_node == 0:
        return per_node, size // per_node
    if size and nodes and not per_node and size % nodes == 0:
        return size // nodes, nodes
    if size and (per_node or nodes) and (per_node or 1) * (nodes or 1) != size:
        told = f"{nodes or '?'} nodes of {per_node or '?'} GPUs"
        raise UsageError(
            f"{told} were told, but {whose} has {size} ranks",
            expected=f"--nodes times --gpus-per-node of {size}",
        )
    return per_node, nodes
