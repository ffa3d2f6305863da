"""What hardware can reach: a limit that no algorithm passes, and what to expect of a collective.

Both follow from what is known of the machine itself: NVLink or xGMI, the slot, the network cards, the
ranks and the operation. Nothing here reads a published figure of a collective.

The limit counts the bytes that any algorithm must move over the busiest link, with the best that is
known: switches that reduce on the way (SHARP, NVLink SHARP) and nodes that add up among their GPUs
before anything leaves them. With n ranks, g of them on each of k nodes, and W bytes a second for the
cards of one node:

- all_reduce: a node sends at least 2(k−1)/k of the data; where switches reduce, all of it once. So
  busbw ≤ W·(n−1)/(n−g), or 2·W·(n−1)/n where that is more.
- all_gather, reduce_scatter, gather, scatter: a node must receive (or send) the (n−g)/n that the other
  nodes hold. So busbw ≤ W·(n−1)/(n−g).
- all_to_all: each of the g ranks of a node has a part of its own for each of the n−g others. So
  busbw ≤ W/g·(n−1)/(n−g).
- broadcast, reduce, send_recv: all of the data leave the node. So busbw ≤ W.

What is expected is a share of the ring's rate, by what carries the traffic (data/shares.csv).
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from msgspec import convert

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Collective
from wirespeed.reference.figures import INTERCONNECTS, rows_of
from wirespeed.reference.ramp import Ramp
from wirespeed.reference.roofline import NVLS, Limit, roofline
from wirespeed.reference.shape import BRIDGE, CPU, XGMI_LINKS, Shape

_SLOT = 64e9
"""Bytes a second: the fastest slot in use, PCIe 5 x16, with which a GPU reaches a card that nobody
described."""
_ONE_CARD = ("send_recv", "pair_exchange")
"""Operations between nodes of which each pair of ranks uses the card of its GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One row of data/shares.csv: what part of the ring's rate a collective gets, large sizes."""

    interconnect: str
    collective: str = ""
    """Empty: any other."""
    when: str = ""
    """`nvls`, `sharp` or `two nodes`; empty: otherwise."""
    low: float
    usual: float
    high: float
    source: str


@lru_cache(maxsize=1)
def shares() -> tuple[Share, ...]:
    """Return the rows of data/shares.csv."""
    return convert(rows_of("shares.csv"), tuple[Share, ...], strict=False)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the hardware that is known gives at one size, in bytes a second of busbw."""

    busbw: float
    low: float
    high: float
    full: float
    """What is usual at sizes that fill the links."""
    model: str
    """How it follows: the links, the share of them, and the size."""
    floor: float
    """What even a board without NVSwitches gives, where it is not known which board it is."""
    ring: float
    """What a ring usually gives, where another algorithm may give more between two nodes."""


def limit_of(shape: Shape, op: str, engine: str = "torch") -> Limit | None:
    """Return the most that any algorithm can reach, or None where no link's rate is known."""
    collective = CATALOGUE.get(op)
    if collective is None or shape.ranks < 2 or (shape.gpu == CPU and shape.nodes == 1):
        return roofline(shape, op, engine)
    bounds = [_inside_bound(shape, collective)]
    if shape.nodes > 1 and not shape.interconnect.startswith("mnnvl"):
        bounds.append(_between_bound(shape, collective))
    known = [bound for bound in bounds if bound is not None]
    return min(known, key=lambda bound: bound.busbw, default=None)


def _node_rate(shape: Shape) -> float | None:
    """Return what leaves one node, in bytes a second, through its cards and the slots of its GPUs.

    None: the cards are not known.
    """
    rate = shape.nic_carries_Gbitps or shape.nic_Gbitps
    if not shape.nics or not rate:
        return None
    cards = shape.nics * rate * 1e9 / 8
    return min(cards, shape.per_node * shape.slot) if shape.slot else cards


def _cards(shape: Shape) -> str:
    rate = shape.nic_carries_Gbitps or shape.nic_Gbitps or 0.0
    cards = f"{shape.nics} × {rate:g} Gbit/s a node"
    if shape.slot and shape.per_node * shape.slot < (shape.nics or 0) * rate * 1e9 / 8:
        cards += f" behind {shape.per_node} slots of {shape.slot / 1e9:.3g} GB/s"
    return cards


def _inside_bound(shape: Shape, collective: Collective) -> Limit | None:
    """Return what the links of one GPU allow: within its node, and to its share of the cards."""
    multi_node_links = shape.interconnect.startswith("mnnvl")
    if shape.gpu_link is None or (shape.per_node < 2 and not multi_node_links):
        return _slot_bound(shape, collective)
    n, link, name = shape.ranks, shape.gpu_link, INTERCONNECTS.get(shape.inside, "NVLink")
    around = shape.per_node
    words = f"{name} of one GPU"
    if shape.nodes == 1 or shape.interconnect == "mnnvl":
        around = n
    elif shape.inside != "pcie":
        rate = _node_rate(shape)
        link += rate / shape.per_node if rate else _SLOT
        words += " and its way to the network"
    if shape.inside == "xgmi" and shape.nodes == 1:
        used = min(shape.per_node - 1, XGMI_LINKS)
        link *= 1 / XGMI_LINKS if collective.name == "pair_exchange" else used / XGMI_LINKS
        words = f"{used} of {XGMI_LINKS} {name} links of one GPU"
    if collective.name == "all_reduce":
        # With rings a GPU sends 2·(g−1)/g of the data within its node, through switches that reduce 1.
        if shape.gpu.startswith(NVLS) and shape.switch != "nvls off":
            return Limit(2 * (n - 1) / n * link, f"{words}, with NVSwitches that reduce")
        return Limit((n - 1) / n * around / (around - 1) * link, words)
    return Limit(link, words)


def _slot_bound(shape: Shape, collective: Collective) -> Limit | None:
    """Return what the slot of a node's only GPU carries, where its data leave through it."""
    if shape.gpu_link is None or shape.inside != "pcie" or shape.nodes < 2:
        return None
    factor = 2 * (shape.ranks - 1) / shape.ranks if collective.name == "all_reduce" else 1.0
    return Limit(factor * shape.gpu_link, "the slot of the GPU")


def _between_bound(shape: Shape, collective: Collective) -> Limit | None:
    rate = _node_rate(shape)
    if rate is None:
        return None
    n, g, k = shape.ranks, shape.per_node, shape.nodes
    cards = _cards(shape)
    if collective.name == "all_reduce":
        alone = rate * (n - 1) / (n - g)
        if k == 2 or shape.interconnect != "ib" or shape.switch == "sharp off":
            return Limit(alone, f"{cards}, each node adding up first")
        return Limit(2 * rate * (n - 1) / n, f"{cards}, with switches that reduce (SHARP)")
    if collective.name == "all_to_all_v":
        return None  # its parts may all be for ranks of the same node
    if collective.links == "pairs":
        return Limit(rate / g * (n - 1) / (n - g), f"every pair at once over {cards}")
    if collective.name in ("broadcast", "reduce", *_ONE_CARD):
        inside_too = collective.name == "pair_exchange" and g > 1
        return None if inside_too else Limit(rate, cards)
    return Limit(rate * (n - 1) / (n - g), f"{cards}, each byte entering a node once")


def expected_by_hardware(shape: Shape, op: str, size_bytes: int, ramp: Ramp) -> Expected | None:
    """Return what such hardware gives at that size, or None where a rate or a share is not known.

    ramp: how busbw rises with the size, as published curves show it.
    """
    collective = CATALOGUE.get(op)
    if size_bytes < _LEAST_BYTES or (shape.gpu == CPU and shape.nodes == 1):
        return None
    base = _base(shape, op) if collective is not None else None
    share = _share(shape, op) if base is not None else None
    limit = limit_of(shape, op)
    if collective is None or base is None or share is None or limit is None:
        return None
    full = min(share.usual * base.busbw, limit.busbw)
    steps = collective.bus_factor(shape.ranks) or 1.0
    reached, least, most = ramp.reached(shape, size_bytes, full / steps)
    model = f"{share.low:g} to {share.high:g} of {base.busbw / 1e9:.3g} GB/s ({base.model})"
    if reached < _FULL:
        model += f", {reached:.2f} of it at this size"
    ring = (_share(replace(shape, nodes=3), op) or share).usual if shape.nodes > 1 else share.usual
    # The share of the links and the start of an operation differ for causes of their own, so what they
    # make together is less than both extremes at once.
    down = math.hypot(1 - share.low / share.usual, 1 - least / reached)
    up = math.hypot(share.high / share.usual - 1, most / reached - 1)
    return Expected(
        busbw=full * reached,
        low=full * reached * max(0.0, 1 - down),
        high=min(full * reached * (1 + up), limit.busbw),
        full=full,
        model=model,
        floor=full * reached * max(0.0, 1 - down) * _linked(shape),
        ring=ring * base.busbw * reached,
    )


_MESHED = {"V100 SXM2": 7, "A100 SXM": 4, "A800 SXM": 4, "H100 SXM": 4, "H200 SXM": 4, "H800": 4}
"""GPUs of a board on which each has links to each other one instead of switches, by product."""


def _linked(shape: Shape) -> float:
    """Return the share of a GPU's links that lead to the others that take part, on such a board.

    Two A100 of a board of four have 4 of 12 NVLinks between them: 100 of 300 GB/s (nccl-tests#331).
    """
    board = _MESHED.get(shape.gpu, 0)
    if shape.nodes > 1 or shape.inside != "nvlink" or shape.per_node >= board:
        return 1.0
    return (shape.per_node - 1) / (board - 1)


_LEAST_BYTES = 2**19
"""Size below which protocols for short messages decide, which no curve of bandwidth foretells."""
_FULL = 0.97
"""Share of its full rate from which on nothing is said of the size."""


def _base(shape: Shape, op: str) -> Limit | None:
    """Return the rate of the ring, or of what stands for it, of which a share is expected."""
    if op in _ONE_CARD:
        return _one_way(shape, op)
    crosses = shape.nodes > 1 and not shape.interconnect.startswith("mnnvl")
    if crosses and op in ("gather", "scatter"):
        # NCCL makes them of sends, which all take the card next to the root's GPU.
        card, n = _one_way(shape, "send_recv"), shape.ranks
        times = (n - 1) / (n - shape.per_node)
        return Limit(times * card.busbw, f"{card.model} next to the root") if card else None
    if crosses and op == "all_to_all_v":
        return None
    if shape.interconnect.startswith("mnnvl+"):
        return roofline(replace(shape, interconnect="mnnvl"), op)
    base = roofline(shape, op)
    if base is None or shape.nodes < 2:
        return base
    # One ring of a node without NVLink passes each slot; with NVLink all slots lead out side by side.
    slots = shape.gpu_link if shape.inside == "pcie" else None
    if shape.slot and shape.inside != "pcie":
        slots = shape.per_node * shape.slot
    if slots is None or base.busbw <= slots:
        return base
    return Limit(slots, "ring through the slots of the GPUs")


def _one_way(shape: Shape, op: str) -> Limit | None:
    crosses = shape.nodes > 1 and not shape.interconnect.startswith("mnnvl")
    if crosses and (op == "send_recv" or shape.per_node == 1):
        rate = shape.nic_carries_Gbitps or shape.nic_Gbitps
        return Limit(rate * 1e9 / 8, f"one card of {rate:g} Gbit/s") if rate else None
    if shape.gpu_link is None:
        return None
    if shape.inside == "xgmi":
        return Limit(shape.gpu_link / XGMI_LINKS, "one xGMI link")
    return Limit(shape.gpu_link, f"{INTERCONNECTS.get(shape.inside, 'NVLink')} of one GPU")


def _share(shape: Shape, op: str) -> Share | None:
    """Return the row that fits best: the operation's own before any, its condition before none."""
    kind = shape.interconnect
    if shape.nodes == 1 and shape.inside not in ("", BRIDGE):
        kind = shape.inside
    when = {""}
    if op == "all_reduce":
        inside = shape.nodes == 1 or shape.interconnect == "mnnvl"
        if inside and shape.gpu.startswith(NVLS) and shape.switch != "nvls off":
            when.add("nvls")
        if not inside and shape.nodes == 2 and shape.per_node > 1:
            when.add("two nodes")
        if shape.switch == "sharp":
            when.add("sharp")
    alike = [
        row
        for row in shares()
        if row.interconnect == kind and row.collective in ("", op) and row.when in when
    ]
    return max(alike, key=lambda row: (bool(row.collective), bool(row.when)), default=None)
