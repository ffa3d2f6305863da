"""Why busbw may be low: the three likeliest reasons, first what the facts show.

Order: what a setting or a fact of these nodes proves, then what the share reached points to, then
what is usual with that interconnect. A reason that somebody was seen to have names where, by its
number at github.com/NVIDIA: NCCL's makers ask for ACS and GPUDirect RDMA before anything else (nccl#489,
2021-04-02; nccl#1588, 2025-01-24), and about half of what is expected on two nodes is one bad node by
Azure's own guide (Azure/ai-infrastructure-on-azure, skills/ai-infra/references/nccl_diagnosis.md, read
2026-11). The order of the others is judgement, counted from no statistics.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from wirespeed.errors import UsageError
from wirespeed.model.records import NodeFacts, ToldShape, World
from wirespeed.reference.figures import INTERCONNECTS, rows_of
from wirespeed.reference.shape import CPU, Shape, gpu_called, gpu_listed, shape_of

_MOST = 3
_OVER_TCP = 0.15
"""RDMA reduced to TCP shows about a hundredth to a tenth: 4 of 340 GB/s in NVIDIA/aicr."""
_DROPPED = 0.05
_HALF = (0.35, 0.65)
_RING = (0.75, 0.9)
"""A ring over cards of 400 Gbit/s gets 46 to 48 GB/s from each, 368 to 384 of 445 (nccl-tests#290)."""
_NVLS = ("H100", "H200", "B200", "B300")
_RDMA = ("ib", "roce", "rdma", "mnnvl+ib")
_NETWORKS = ("ib", "roce", "rdma", "efa", "tcpxo", "mnnvl+ib")

_TEXTS = {row["name"]: row["reason"] for row in rows_of("reasons.csv")}
_FREQUENT = {
    "nvlink": ("no_nvls", "link_down", "gpu_slow"),
    "xgmi": ("part_of_gpus", "old_rccl", "numa_balancing"),
    "pcie": ("through_memory", "gpus_apart", "pcie_narrow"),
    "memory": ("busy_cores", "memory_apart", "throttled"),
    "mnnvl": ("no_imex", "other_clique", "nvlink_down"),
    "mnnvl+ib": ("no_imex", "one_slow", "through_host"),
    "ib": ("through_host", "fewer_cards", "one_slow"),
    "rdma": ("through_host", "fewer_cards", "one_slow"),
    "roce": ("drops", "through_host", "wrong_gid"),
    "efa": ("no_ofi_plugin", "efa_apart", "efa_no_gdr"),
    "tcpxo": ("no_fastrak", "no_profile", "not_compact"),
    "tcp": ("slow_interface", "few_sockets", "slow_cable"),
}
_UNKNOWN = ("other_way", "one_slower", "others_jobs")

_FORBID = {
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_NET": "Socket",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_COLLNET_ENABLE": "0",
    "FI_EFA_USE_DEVICE_RDMA": "0",
}
_NARROW = (
    *("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE"),
    *("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL", "NCCL_IB_HCA", "NCCL_IB_QPS_PER_CONNECTION"),
)
_WITHIN = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_P2P_LEVEL")


def reasons(shape: Shape, nodes: Sequence[NodeFacts], share: float) -> tuple[str, ...]:
    """Three reasons, likeliest first. share: what was reached of what is expected."""
    found = [
        *_settings(shape, nodes),
        *_facts(shape, nodes),
        *_pointed(shape, share),
        *map(_TEXTS.__getitem__, (*_frequent(shape), *_UNKNOWN)),
    ]
    return tuple(dict.fromkeys(found))[:_MOST]


def _frequent(shape: Shape) -> tuple[str, ...]:
    """Return the names of frequent reasons on that interconnect; NVLS exists from Hopper on."""
    names = _FREQUENT.get(shape.interconnect, ())
    if shape.gpu.startswith(_NVLS):
        return names
    return tuple(name for name in names if name != "no_nvls")


def _settings(shape: Shape, nodes: Sequence[NodeFacts]) -> Iterator[str]:
    if shape.gpu == CPU:
        return
    for name, value in _FORBID.items():
        hosts = [node.host for node in nodes if node.environment.get(name) == value]
        if hosts and (shape.nodes > 1 or name in _WITHIN):
            where = "" if len(hosts) == len(nodes) else f" on {', '.join(hosts[:3])}"
            yield f"{name}={value} is set{where}"
    for name in _NARROW:
        told = {node.environment[name] for node in nodes if node.environment.get(name)}
        network = name.startswith(("NCCL_NET", "NCCL_IB"))
        if told and (shape.nodes > 1 or not network):
            yield f"{name}={min(told)} is set: without it NCCL chooses itself"


def _facts(shape: Shape, nodes: Sequence[NodeFacts]) -> Iterator[str]:
    if shape.gpu == CPU:
        crowded = [one for one in nodes if len(one.ranks) > (one.facts.cpu_allowed or math.inf)]
        for node in crowded[:1]:
            yield f"{len(node.ranks)} ranks share {node.facts.cpu_allowed} cores on {node.host}"
        return
    for node in nodes:
        yield from _slow_gpus(node)
        if shape.nodes > 1 and shape.interconnect in _NETWORKS:
            yield from _network(shape, node)
    if shape.nics and shape.nic_carries_Gbitps and shape.nic_Gbitps:
        yield (
            f"a card's PCIe link carries {shape.nic_carries_Gbitps:.0f} Gbit/s, its port "
            f"{shape.nic_Gbitps:g}"
        )


def _slow_gpus(node: NodeFacts) -> Iterator[str]:
    for gpu in node.gpus:
        name = f"GPU {gpu.get('index', '?')} of {node.host}"
        if gpu.get("slowed_by"):
            yield f"{name} is slowed down by {', '.join(map(str, gpu['slowed_by']))}"
        down = [number for number, up in enumerate(gpu.get("nvlinks", ())) if not up]
        if down and len(down) < len(gpu["nvlinks"]):
            yield f"{name}: {len(down)} of {len(gpu['nvlinks'])} NVLinks are down"
        if gpu.get("pcie_width", 0) < gpu.get("pcie_width_max", 0):
            yield f"{name} at PCIe x{gpu['pcie_width']} of x{gpu['pcie_width_max']}"


def _network(shape: Shape, node: NodeFacts) -> Iterator[str]:
    active = [port for port in node.rdma if port.get("state") == "ACTIVE"]
    fast = [port for port in active if port.get("rate_Gbitps") == shape.nic_Gbitps]
    if shape.nics and active and len(fast) < shape.nics:
        rate = f"{shape.nic_Gbitps:g} Gbit/s"
        yield f"{node.host} has {len(fast)} ports of {rate}, the others {shape.nics}"
    soft = node.facts.memlock_soft
    if isinstance(soft, int) and soft < 2**30 and not node.facts.memlock_exempt:
        yield f"memlock is limited to {soft} bytes on {node.host}, too little for RDMA"
    dmabuf = node.facts.gpu_open_modules and node.facts.gpudirect_dmabuf_kernel
    if node.facts.gpudirect_peer_module == "" and not dmabuf:
        yield f"neither nvidia-peermem nor dma-buf on {node.host}: no GPUDirect RDMA"
    if node.facts.acs_redirects:
        yield f"ACS sends peer-to-peer traffic through the root complex on {node.host}"


def _pointed(shape: Shape, share: float) -> Iterator[str]:
    if shape.interconnect not in _NETWORKS or shape.nodes < 2:
        return
    if share < _OVER_TCP:
        meant = INTERCONNECTS[shape.interconnect]
        yield f"NCCL goes over TCP instead of {meant}: a hundredth to a tenth is what TCP gives"
        if share < _DROPPED and shape.interconnect == "roce":
            yield _TEXTS["drops"]
    elif _HALF[0] < share < _HALF[1] and shape.interconnect in _RDMA:
        yield from map(_TEXTS.__getitem__, ("through_host", "one_slow", "fewer_cards"))
    elif _HALF[0] < share < _HALF[1]:
        yield _TEXTS["half_of_cards"]
    elif _RING[0] < share < _RING[1] and shape.nodes == 2 and shape.gpu.startswith(_NVLS):
        yield _TEXTS["ring"]


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
    known = found.interconnect if found and not found.assumed else before.interconnect
    both = {known, said.interconnect}
    alike = both <= {"ib", "roce", "rdma"} and "rdma" in both
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
