"""What the links found allow: a model by name, never a verdict.

The model is the ring: each byte of busbw crosses every link of the ring once, so a ring is as fast
as its narrowest link, which is a GPU's link within a node and all network cards of a node together
between nodes (NVIDIA/nccl-tests, doc/PERFORMANCE.md). Of gather and scatter all passes the links of the
root. Algorithms that let nodes or switches add up first move less than a ring, so busbw can be above
this limit; `passed` says why.

Ranks of one machine without GPUs: copies. gloo writes to sockets and reads from them, so each byte that
crosses the loopback interface is copied twice, out of the sender's memory into the kernel's and from
there into the receiver's (even MSG_ZEROCOPY copies there: Linux, networking/msg_zerocopy.rst); where
values are added, one more pass reads and writes each. No algorithm moves less than a ring in all, so
with what one core copies and the cores that the ranks have this is an upper bound. It is no bound for
what stays in caches: where busbw is above it, it says nothing.
"""

from dataclasses import dataclass

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Collective
from wirespeed.model.units import format_bandwidth
from wirespeed.reference.figures import INTERCONNECTS
from wirespeed.reference.shape import CPU, XGMI_LINKS, Shape

NVLS = ("H100 SXM", "H200 SXM", "H800", "H20", "B200", "B300", "GB200", "GB300")
"""GPUs whose NVSwitches can add up (NVLink SHARP, from the third NVSwitch on)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one model says of one operation on one world."""

    busbw: float
    """Bytes a second."""
    model: str
    """Its name and what it is made of."""
    copies: bool = False
    """Of copies in memory, which caches may pass; else of links."""

    def holds(self, busbw: float) -> bool:
        """Whether it says something about that figure."""
        return not self.copies or busbw <= self.busbw


def roofline(shape: Shape, op: str, engine: str = "torch") -> Limit | None:
    """The limit of busbw, or None where a rate or a model for the operation is not known.

    engine: of the measurement; MPI shares memory on one machine, and of its copies there is no model.
    """
    collective = CATALOGUE.get(op)
    if shape.ranks < 2 or collective is None or not collective.links:
        return None
    if shape.gpu == CPU and shape.nodes == 1:
        return None if engine == "mpi" or collective.links == "root" else _copies(shape, collective)
    if shape.nodes == 1 or shape.interconnect == "mnnvl":
        return _inside(shape, collective)
    return _between(shape, collective)


def _inside(shape: Shape, collective: Collective) -> Limit | None:
    if shape.gpu_link is None:
        return None
    if collective.links == "root":
        # Over XGMI the root reaches each GPU by a link of its own, of which the model knows the sum.
        return Limit(shape.gpu_link, "all through the links of the root's GPU, one direction")
    racks = shape.interconnect in ("mnnvl", "")
    name = "NVLink" if racks else INTERCONNECTS[shape.interconnect]
    used = min(shape.per_node - 1, XGMI_LINKS)
    if shape.interconnect != "xgmi" or used == XGMI_LINKS:
        return Limit(shape.gpu_link, f"ring over {name}, one direction of one GPU")
    part = f"{used} of {XGMI_LINKS} {name} links of one GPU"
    return Limit(shape.gpu_link * used / XGMI_LINKS, f"rings over {part}, one direction")


def _copies(shape: Shape, collective: Collective) -> Limit | None:
    """A rank keeps two cores busy at most: it sends with one and receives with another."""
    if not shape.copy_rate or not shape.cores:
        return None
    n = shape.ranks
    passes = 2 + collective.adds
    # With a root the n ranks together move n-1 times the data, with the others n times busbw's.
    each = passes * ((n - 1) / n if collective.rooted else 1.0)
    cores = min(shape.cores, 2.0 * n)
    added = f" and {collective.adds:g} to add" if collective.adds else ""
    model = (
        f"copies over loopback, at most: 2{added} for each byte of busbw and rank; {cores:g} cores for "
        f"{n} ranks, {format_bandwidth(shape.copy_rate)} each"
    )
    return Limit(shape.copy_rate * cores / n / each, model, copies=True)


def _between(shape: Shape, collective: Collective) -> Limit | None:
    if not shape.nics or not shape.nic_Gbitps:
        return None
    rate = shape.nic_carries_Gbitps or shape.nic_Gbitps
    node = shape.nics * rate * 1e9 / 8
    cards = f"{shape.nics} × {rate:g} Gbit/s a node"
    if shape.nic_carries_Gbitps:
        cards += f" (ports of {shape.nic_Gbitps:g}, narrowed by their PCIe link)"
    if collective.links == "ring":
        return Limit(node, f"ring over {cards}")
    # Of the n-1 parts that a rank sends, n-g leave the node, through its share of the cards.
    n, g = shape.ranks, shape.per_node
    if collective.links == "root":
        return Limit(node * (n - 1) / (n - g), f"all through the root's {cards}")
    return Limit(node / g * (n - 1) / (n - g), f"every pair at once over {cards}")


def share(busbw: float, limit: Limit) -> str:
    """`0.78 of 400 GB/s, the limit of the model "ring over 8 × 400 Gbit/s a node"`.

    Empty where the limit does not hold for the figure.
    """
    if not limit.holds(busbw):
        return ""
    ratio = busbw / limit.busbw
    return f'{ratio:.2f} of {format_bandwidth(limit.busbw)}, the limit of the model "{limit.model}"'


CHECK = "check the unit or the clock"
"""Ends every line about a rate that neither links nor switches explain."""


def switches_add_up(shape: Shape, op: str) -> bool:
    """Return whether the fabric may have switches that reduce what this operation sends.

    NVSwitches with NVLink SHARP within a node, InfiniBand's with SHARP between nodes.
    """
    collective = CATALOGUE.get(op)
    if collective is None or not collective.reduces:
        return False
    if shape.nodes == 1 or shape.interconnect == "mnnvl":
        return shape.gpu.startswith(NVLS) and shape.switch != "nvls off"
    return shape.interconnect == "ib"


def passed(shape: Shape, op: str, busbw: float, limit: Limit | None) -> str:
    """Return why busbw may be above the ring's limit; empty where it is not above.

    What no reduction on the way explains ends with `CHECK`.
    """
    if limit is None or limit.copies or busbw <= limit.busbw:
        return ""
    above = f"busbw is {busbw / limit.busbw:.2f} times the limit of the links"
    collective = CATALOGUE[op]
    if collective.reduces and collective.links == "ring" and not collective.rooted:
        explained = _reduced_on_the_way(shape, op, busbw, limit)
        if explained:
            return f"{above}: {explained}"
    reasons = ["a unit or clock that is wrong"]
    if shape.nodes > 1 and shape.interconnect != "mnnvl":
        reasons.insert(0, "a traffic shaper that lets bursts pass")
        if shape.per_node > 1:
            reasons.insert(1, "ranks of one node that share its memory")
    listed = ", ".join(reasons[:-1]) + (" or " if len(reasons) > 1 else "") + reasons[-1]
    return f"{above}, as by {listed}; {CHECK}"


def _reduced_on_the_way(shape: Shape, op: str, busbw: float, limit: Limit) -> str:
    """Return how values that are added up on their way explain the rate; empty where they do not."""
    adds = switches_add_up(shape, op)
    if shape.nodes == 1 or shape.interconnect == "mnnvl":
        if not adds or busbw > 2 * limit.busbw:
            return ""
        return (
            "with NVLS the NVSwitches add up, so each GPU sends its data once, not "
            "twice; busbw counts as if a ring had moved them, and is no rate on the wire"
        )
    off = busbw * (shape.nodes - 1) / (shape.ranks - 1)
    if shape.gpu == CPU or off * shape.per_node > limit.busbw * (2 if adds else 1):
        return ""
    text = (
        f"GPUs of a node add up first over NVLink, so that only about "
        f"{format_bandwidth(off)} for each GPU cross the network"
    )
    if not adds:
        return text
    return text + "; where SHARP is on, the switches add up, too, and a node sends its data once"
