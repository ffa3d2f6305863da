"""What the links found allow: a model by name, never a verdict.

The model is the ring: each byte of busbw crosses every link of the ring once, so a ring is as fast
as its narrowest link, which is a GPU's link within a node and all network cards of a node together
between nodes (NVIDIA/nccl-tests, doc/PERFORMANCE.md). Algorithms that let nodes or switches add up
first move less than a ring, so busbw can be above this limit; `passed` says why.
"""

from dataclasses import dataclass

from wirespeed.reference.figures import INTERCONNECTS
from wirespeed.reference.shape import CPU, Shape
from wirespeed.units import format_bandwidth

__all__ = ["Limit", "passed", "roofline", "share"]

_RINGS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
_NVLS = ("H100", "H200", "B200", "B300", "GB200", "GB300")
"""GPUs whose NVSwitches can add up (NVLink SHARP, from the third NVSwitch on)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one model says of one operation on one world."""

    busbw: float
    """Bytes a second."""
    model: str
    """Its name and what it is made of."""


def roofline(shape: Shape, op: str) -> Limit | None:
    """The limit of busbw, or None where a link's rate or a model for the operation is not known.

    On processors of one machine the limit is the memory's bandwidth, which no fact tells.
    """
    if shape.ranks < 2 or op not in (*_RINGS, "all_to_all", "all_to_all_v"):
        return None
    if shape.nodes == 1 or shape.interconnect == "mnnvl":
        return _inside(shape)
    return _between(shape, op)


def _inside(shape: Shape) -> Limit | None:
    if shape.gpu_link is None:
        return None
    name = "NVLink" if shape.interconnect == "mnnvl" else INTERCONNECTS[shape.interconnect]
    return Limit(shape.gpu_link, f"ring over {name}, one direction of one GPU")


def _between(shape: Shape, op: str) -> Limit | None:
    if not shape.nics or not shape.nic_Gbitps:
        return None
    rate = shape.nic_carries_Gbitps or shape.nic_Gbitps
    node = shape.nics * rate * 1e9 / 8
    cards = f"{shape.nics} × {rate:g} Gbit/s a node"
    if shape.nic_carries_Gbitps:
        cards += f" (ports of {shape.nic_Gbitps:g}, narrowed by their PCIe link)"
    if op in _RINGS:
        return Limit(node, f"ring over {cards}")
    # Of the n-1 parts that a rank sends, n-g leave the node, through its share of the cards.
    n, g = shape.ranks, shape.per_node
    return Limit(node / g * (n - 1) / (n - g), f"every pair at once over {cards}")


def share(busbw: float, limit: Limit) -> str:
    """`0.78 of 400 GB/s, the limit of the model "ring over 8 × 400 Gbit/s a node"`."""
    ratio = busbw / limit.busbw
    return f'{ratio:.2f} of {format_bandwidth(limit.busbw)}, the limit of the model "{limit.model}"'


def passed(shape: Shape, op: str, busbw: float, limit: Limit | None) -> str:
    """Why busbw may be above the ring's limit; empty where it is not above."""
    if limit is None or busbw <= limit.busbw or shape.gpu == CPU:
        return ""
    above = f"busbw is {busbw / limit.busbw:.2f} times the limit of a ring"
    if op not in ("all_reduce", "reduce_scatter", "all_gather"):
        return f"{above}: look again at rates and operation; nothing that is known explains it"
    if shape.nodes == 1 or shape.interconnect == "mnnvl":
        if shape.gpu.startswith(_NVLS) and shape.switch != "nvls off":
            return (
                f"{above}: with NVLS the NVSwitches add up, so each GPU sends its data once, not "
                "twice; busbw counts as if a ring had moved them, and is no rate on the wire"
            )
        return f"{above}: look again at the rates; these GPUs' switches do not add up"
    off = busbw * (shape.nodes - 1) / (shape.ranks - 1)
    text = (
        f"{above}: GPUs of a node add up first over NVLink, so that only about "
        f"{format_bandwidth(off)} for each GPU cross the network"
    )
    if shape.interconnect not in ("ib", "rdma"):
        return text
    return text + "; where SHARP is on, the switches add up, too, and a node sends its data once"
