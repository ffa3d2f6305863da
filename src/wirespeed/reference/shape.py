"""What a world is to a figure: GPU, ranks a node, nodes, and what carries its traffic.

Told from the facts that each node gathered (`wirespeed.node`): names of GPUs, their NVLinks and
PCIe, ACTIVE ports of RDMA devices, interfaces, how fast a core copies. It is the hardware that is
told, not what a setting makes of it: a world with InfiniBand that a variable keeps on TCP is still
measured by InfiniBand.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import convert

from wirespeed.collectives.collective import ALIASES
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run, World
from wirespeed.reference.figures import INTERCONNECTS, Figure, rows_of
from wirespeed.statistics import lacks_samples

XGMI_LINKS = 7
"""Links of one GPU, each to another one of the node, over which its rate is spread."""

_GTPS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_OLD_CODING_GTPS = 5.0
"""Up to here 8 of 10 bits carry data, above 128 of 130 (PCIe 6 has no such coding)."""


def pcie_rate(generation: object, width: object) -> float | None:
    """Bytes a second in one direction, headers included; None where either is not known."""
    speed = _GTPS.get(generation) if isinstance(generation, int) else generation
    if not isinstance(speed, float) or not isinstance(width, int) or speed <= 0 or width <= 0:
        return None
    return speed * 1e9 / 8 * width * (8 / 10 if speed <= _OLD_CODING_GTPS else 128 / 130)


@dataclass(frozen=True, slots=True)
class Peak:
    flops_per_s: float
    """Dense, of one device as the driver counts devices."""
    product: str
    source: str
    """The vendor's publication."""
    date: str
    """When it was published, as far as it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One row of data/gpus.csv; TFLOP/s (of int8 TOP/s) are dense, None where the data sheet gives none.

    A device is known only by its whole product name as the driver reports it: a slice of a GPU (MIG), a
    variant for one customer or a new product is unknown, not "nearly". Where a data sheet gives a figure
    with sparsity only, it is halved, and the source says so. The driver shows each of the two dies of an
    MI250X as a device of its own: half of the sheet's 383 and 95.7 (float32 by matrix cores). Processors
    have no entry: their peak depends on clocks that no data sheet promises.
    """

    name: str
    pattern: str
    """A regular expression for the whole reported name, without `NVIDIA `, `Tesla `, `AMD Instinct `."""
    bfloat16: float | None = None
    float16: float | None = None
    tf32: float | None = None
    float32: float | None = None
    """Without TF32."""
    float8: float | None = None
    """e4m3 and e5m2 alike."""
    int8: float | None = None
    """TOP/s."""
    memory_GBps: float | None = None
    """Of its own memory, read and written together."""
    link: str = ""
    link_GBps: float = 0.0
    """In one direction of one GPU."""
    linked: int = 0
    """GPUs that the link joins, where a bridge joins only some of a node; 0: all."""
    pcie_generation: int = 0
    pcie_lanes: int = 0
    """Of its slot; 0: not in the table."""
    source: str
    date: str

    @property
    def is_verified(self) -> bool:
        """Return whether its link and slot were read in a source, which says so where they were not."""
        return NOT_VERIFIED not in self.source


NOT_VERIFIED = "not verified"
"""Stands in the source of a row before what was read nowhere: nothing fails by such a row."""

PEAKS = convert(rows_of("gpus.csv"), tuple[Product, ...], strict=False)

GPU_LINKS = {one.name: (one.link, one.link_GBps * 1e9) for one in PEAKS if one.link}
"""(interconnect, bytes a second in one direction of one GPU) by product."""
GPU_LINKS["GB300"] = GPU_LINKS["GB200"]  # of which no peak is published


BRIDGE = "bridge"
"""What connects the GPUs of a node, where cards have a bridge that is sold apart and nobody said so."""


def gpu_link(product: str, per_node: int, stated: str = "") -> tuple[str, float | None]:
    """Return (what connects such GPUs within a node, its bytes a second in one direction of one GPU).

    stated: `nvlink` or `pcie`, where somebody says which it is. A bridge that joins two GPUs serves no
    larger group; then the slot decides.
    """
    rows = [row for row in PEAKS if row.name == product]
    for row in rows:
        joined = row.link and stated != "pcie" and (not row.linked or per_node <= row.linked)
        if joined:
            return (BRIDGE if row.linked and not stated else row.link), row.link_GBps * 1e9
    if not rows:
        return GPU_LINKS.get(product, ("", None))
    slot = slot_rate(product)
    return ("pcie", slot) if slot else ("", None)


def slot_rate(product: str) -> float | None:
    """Return the bytes a second of such a GPU's slot in one direction; None: not known."""
    rows = [row for row in PEAKS if row.name == product]
    rates = [pcie_rate(row.pcie_generation, row.pcie_lanes) for row in rows]
    return min((rate for rate in rates if rate is not None), default=None)


def links_are_verified(product: str) -> bool:
    """Return whether all rows of such a GPU have their link and slot from a source that was read."""
    return all(row.is_verified for row in PEAKS if row.name == product)


def peak_flops(device_name: str, dtype: str) -> Peak | None:
    """The peak of a device for multiplications in dtype; None: not known.

    device_name: as `torch.cuda.get_device_name()` tells it. dtype: bfloat16, float16, tf32, float32,
    float8_e4m3fn, float8_e5m2 or int8 (also bf16, fp16, fp32), with or without `torch.` before it;
    tf32 is float32 where the program allows TF32 for it.
    """
    kind = dtype.removeprefix("torch.").lower()
    kind = ALIASES.get(kind, kind)
    kind = "float8" if kind.startswith("float8_") else kind
    if kind not in ("bfloat16", "float16", "tf32", "float32", "float8", "int8"):
        return None
    product = product_named(device_name)
    tera: float | None = getattr(product, kind) if product else None
    if product is None or tera is None:
        return None
    return Peak(tera * 1e12, product.name, product.source, product.date)


def product_named(device_name: str) -> Product | None:
    """The product whose driver reports that name; None: not known."""
    bare = _VENDOR.sub("", device_name.strip())
    return next((one for one in PEAKS if re.fullmatch(one.pattern, bare)), None)


_VENDOR = re.compile(r"^(?:(?:NVIDIA|Tesla|AMD|Instinct)\s+)*")


CPU = "cpu"
"""The `gpu` of worlds whose ranks work on processors."""
_IN_RACKS = ("GB200", "GB300")
_RACK = 18
"""Nodes of one NVL72 rack."""
_SLOWEST_COPY, _FASTEST_COPY = 0.1, 1000.0
"""GB/s of one core between which a copy's rate is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    gpu: str
    """Product as in data/gpus.csv, the driver's name where it is not known there, or `cpu`."""
    per_node: int
    """Ranks a node."""
    nodes: int
    interconnect: str
    """A key of INTERCONNECTS; empty: not known."""
    why: str = ""
    """How the interconnect is known."""
    nics: int | None = None
    """Network cards of one node, those of the highest rate."""
    nic_Gbitps: float | None = None
    """The rate of one port."""
    nic_carries_Gbitps: float | None = None
    """What card and PCIe link carry, where the link is the narrower one."""
    gpu_link: float | None = None
    """NVLink, xGMI or PCIe of one GPU in one direction, in bytes a second."""
    copy_rate: float | None = None
    """Bytes a second that one core copies, where ranks of one machine have no GPU."""
    cores: float | None = None
    """Cores that those ranks have together."""
    system: str = ""
    """Model of the CPU."""
    switch: str = ""
    """`nvls off` where a setting says so, `sharp`, `sharp off` or `nvls` where somebody does."""
    inside: str = ""
    """What connects the GPUs of one node: `nvlink`, `xgmi`, `gaudi`, `pcie` or `bridge`; empty: not
    known."""
    slot: float | None = None
    """What the slot of one GPU carries in one direction, in bytes a second."""
    site: str = ""
    """Whose cluster it is, for gates of that site; empty: not known."""
    assumed: bool = False
    """Whether the interconnect is what such GPUs usually have, so that what a person says counts."""

    @property
    def ranks(self) -> int:
        return self.per_node * self.nodes

    @property
    def words(self) -> str:
        """`2 nodes of 8 × H100 SXM, InfiniBand 8 × 400 Gbit/s`."""
        nodes = f"{self.nodes} nodes of " if self.nodes > 1 else ""
        parts = f"{nodes}{self.per_node} × {self.system if self.gpu == CPU else self.gpu}"
        link = INTERCONNECTS.get(self.interconnect, "interconnect not known")
        if self.nodes > 1 and self.nics and self.nic_Gbitps:
            link += f" {self.nics} × {self.nic_Gbitps:g} Gbit/s"
        return f"{parts}, {link}"


def gpu_called(text: str) -> str:
    """The product for what a driver reports or a person writes: `H100` is the SXM module.

    The node label nvidia.com/gpu.product (`NVIDIA-H100-80GB-HBM3`) will do. A name that nobody knows
    comes back without its vendor.
    """
    bare = text.strip().removeprefix("NVIDIA-")
    product = product_named(text) or product_named(bare) or product_named(bare.replace("-", " "))
    if product is not None:
        return product.name
    bare = text.strip().removeprefix("NVIDIA ").removeprefix("AMD Instinct ")
    names = [one.name for one in PEAKS]
    short = bare.lower()
    alike = [n for n in names if n.lower() == short or n.lower().startswith(short + " ")]
    alike = alike or [n for n in names if n.lower().endswith(" " + short)]
    # `RTX4090` and `rtx-4090` are how people write `RTX 4090`.
    alike = alike or [n for n in names if _without_gaps(n) == _without_gaps(short)]
    # What is sold most under the short name, and what nearly every figure is of.
    sockets = [name for name in alike if "SXM" in name] or alike
    return sockets[0] if sockets and bare else bare


def _without_gaps(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def shape_told(
    gpu: str,
    *,
    per_node: int,
    nodes: int,
    interconnect: str = "",
    nics: int | None = None,
    nic_Gbitps: float | None = None,
    switch: str = "",
    site: str = "",
) -> Shape:
    """The shape that a person tells; on one node a known GPU tells its interconnect itself."""
    product = CPU if gpu.lower() == CPU else gpu_called(gpu)
    stated = interconnect if interconnect in ("nvlink", "pcie") else ""
    kind, rate = ("memory", None) if product == CPU else gpu_link(product, per_node, stated)
    assumed = nodes > 1 and not interconnect and product.startswith(_IN_RACKS)
    if assumed:
        interconnect = "mnnvl" if nodes <= _RACK else "mnnvl+ib"
    return Shape(
        gpu=product,
        per_node=per_node,
        nodes=nodes,
        interconnect=interconnect or (kind if nodes == 1 and kind != BRIDGE else ""),
        why=f"{product} in racks" if assumed else "as told",
        nics=nics,
        nic_Gbitps=nic_Gbitps,
        gpu_link=rate,
        inside="" if product == CPU else kind,
        slot=slot_rate(product),
        switch=switch,
        site=site.lower(),
        assumed=assumed,
    )


def shape_of(world: World) -> Shape | None:
    """The shape by the nodes' facts, completed with what was told of an imported one.

    None where nodes differ in ranks or GPUs, or none is known.
    """
    found, told = _by_facts(world), world.told
    if told is None:
        return found
    if found is None:
        gpu = told.gpu or gpu_listed(world)
        if not (gpu and told.gpus_per_node and told.nodes):
            return None
        found = shape_told(gpu, per_node=told.gpus_per_node, nodes=told.nodes)
    stated = told.interconnect if found.nodes > 1 else ""
    if found.nodes == 1 and not found.interconnect and told.interconnect in ("nvlink", "pcie"):
        kind, rate = gpu_link(found.gpu, found.per_node, told.interconnect)
        found = replace(found, interconnect=kind, inside=kind, gpu_link=rate)
    return replace(
        found,
        interconnect=(stated if found.assumed else "") or found.interconnect or stated,
        assumed=found.assumed and not stated,
        nics=found.nics or told.nics or None,
        nic_Gbitps=found.nic_Gbitps or told.nic_Gbitps or None,
        why=told.why or found.why,
    )


def gpu_listed(world: World) -> str:
    """The product of all GPUs that the nodes name; empty where it is none or several."""
    return _one_product(world.nodes)


def _one_product(nodes: Iterable[NodeFacts]) -> str:
    names = {gpu_called(str(one["name"])) for node in nodes for one in node.gpus if one.get("name")}
    return names.pop() if len(names) == 1 else ""


def _by_facts(world: World) -> Shape | None:
    nodes = [node for node in world.nodes if node.ranks]
    counts = {len(node.ranks) for node in nodes}
    gpus = {_gpu(node, world.backend) for node in nodes}
    if len(counts) != 1 or len(gpus) != 1 or sum(len(n.ranks) for n in nodes) != world.size:
        return None
    gpu = gpus.pop()
    if gpu is None:
        return None
    known: dict[str, Any] = {"gpu": gpu, "per_node": counts.pop(), "nodes": len(nodes)}
    known["slot"] = slot_rate(gpu)
    models = {node.facts.cpu_model or "" for node in nodes}
    known["system"] = models.pop() if len(models) == 1 else ""
    if nodes[0].environment.get("NCCL_NVLS_ENABLE") == "0":
        known["switch"] = "nvls off"
    inside = _inside(gpu, nodes)
    between = _between(gpu, nodes) if len(nodes) > 1 else {}
    return Shape(**known, **{**inside, **between})


def _gpu(node: NodeFacts, backend: str) -> str | None:
    """The product of all GPUs of the node; None: they differ, or NCCL runs and none is known."""
    if "nccl" not in backend:
        return CPU
    return _one_product([node]) or None


def _inside(gpu: str, nodes: Sequence[NodeFacts]) -> dict[str, Any]:
    if gpu == CPU:
        why = {"interconnect": "memory", "why": "ranks without a GPU on one machine"}
        return why | (_copies(nodes[0].facts) if len(nodes) == 1 else {})
    product, rate_known = gpu_link(gpu, max(len(node.ranks) for node in nodes))
    links = [one["nvlinks"] for node in nodes for one in node.gpus if one.get("nvlinks")]
    bridged = product == BRIDGE and any(any(states) for states in links)
    product = "nvlink" if bridged else product
    known = None if product in ("", "pcie", BRIDGE) or not rate_known else (product, rate_known)
    if known is not None:
        kind, rate = known
        up = min((sum(states) / len(states) for states in links), default=1.0)
        said = (
            f"{min(map(sum, links))} of {len(links[0])} NVLinks active"
            if links
            else f"{gpu} has it"
        )
        return {"interconnect": kind, "inside": kind, "gpu_link": rate * up, "why": said}
    if any(any(states) for states in links):
        return {"interconnect": "nvlink", "inside": "nvlink", "why": "NVLinks are active"}
    # An idle GPU lowers the generation of its link, so the one that it can have counts.
    gpus = [gpu for node in nodes for gpu in node.gpus]
    rates = [pcie_rate(one.get("pcie_gen_max"), one.get("pcie_width")) for one in gpus]
    slowest = min((rate for rate in rates if rate is not None), default=None)
    if slowest is None and product == BRIDGE:
        return {"interconnect": "", "inside": BRIDGE, "gpu_link": rate_known, "why": "not known"}
    # A log names the product and nothing of its slot.
    slowest = rate_known if slowest is None else slowest
    kind = "pcie" if slowest else ""
    return {"interconnect": kind, "inside": kind, "gpu_link": slowest, "why": "no NVLink"}


def _copies(facts: Facts) -> dict[str, Any]:
    """What the copies of one machine can be; nothing where a fact is missing or out of its mind."""
    rate, quota = facts.memory_copy_GBps, facts.cpu_quota
    cores = facts.cpu_logical if facts.cpu_shared is None else facts.cpu_shared
    if rate is None or not _SLOWEST_COPY < rate < _FASTEST_COPY or cores is None or cores < 1:
        return {}
    if quota is not None and quota != "unlimited" and quota > 0:
        return {"copy_rate": rate * 1e9, "cores": float(min(quota, cores))}
    return {"copy_rate": rate * 1e9, "cores": float(cores)}


def _between(gpu: str, nodes: Sequence[NodeFacts]) -> dict[str, Any]:
    if gpu.startswith(_IN_RACKS):
        kind = "mnnvl" if len(nodes) <= _RACK else "mnnvl+ib"
        return {"interconnect": kind, "why": f"{gpu} in racks", "assumed": True}
    cards = [_cards(node, gpu) for node in nodes]
    kinds = {kind for kind, _, _ in cards}
    if len(kinds) != 1 or "" in kinds:
        return {"interconnect": "", "why": "the nodes' ports and interfaces do not tell"}
    kind = kinds.pop()
    rates = [(len(found), min(found)) for _, found, _ in cards if found]
    if len(rates) < len(cards):
        return {"interconnect": kind, "why": "rate not known", "gpu_link": None}
    # The weakest node decides, but what all were meant to have is what most of them have.
    (count, rate), _ = Counter(rates).most_common(1)[0]
    narrow = min(min(carries) for _, _, carries in cards)
    return {
        "interconnect": kind,
        "why": f"{count} × {rate:g} Gbit/s on each node",
        "nics": count,
        "nic_Gbitps": rate,
        "nic_carries_Gbitps": narrow if narrow < rate else None,
    }


_Cards = tuple[str, list[float], list[float]]
"""(interconnect, Gbit/s of each card, what it carries with its PCIe link)."""


def _cards(node: NodeFacts, gpu: str) -> _Cards:
    ports = [one for one in node.rdma if one.get("state") == "ACTIVE" and one.get("rate_Gbitps")]
    if gpu == CPU or not ports:
        return _interface(node, gpu)
    # Slower ports than the best are those of storage and management.
    best = max(float(port["rate_Gbitps"]) for port in ports)
    used = [port for port in ports if float(port["rate_Gbitps"]) == best]
    return _kind(used[0]), [best] * len(used), [_carries(port, best) for port in used]


def _kind(port: dict[str, Any]) -> str:
    if port.get("driver") == "efa" or str(port.get("device", "")).startswith("efa"):
        return "efa"
    return {"InfiniBand": "ib", "Ethernet": "roce"}.get(str(port.get("link_layer")), "rdma")


def _interface(node: NodeFacts, gpu: str) -> _Cards:
    """TCP over the interface that gloo or NCCL has chosen."""
    if gpu == CPU:
        names = [name for name in (node.facts.net_gloo_interface or "").split(",") if name]
    else:
        names = node.facts.net_nccl_interfaces or []
    known = {str(nic["name"]): nic for nic in node.nics if "name" in nic}
    used = [known[name] for name in names if name in known]
    rates = [float(nic["speed_Gbitps"]) for nic in used if nic.get("speed_Gbitps")]
    # A veth or tunnel reports a speed that nothing stands behind.
    made_up = any(nic.get("virtual", True) or nic.get("loopback") for nic in used)
    complete = rates if used and len(rates) == len(used) and not made_up else []
    carries = [_carries(nic, rate) for nic, rate in zip(used, complete, strict=False)]
    return "tcp" if names else "", complete, carries


def _carries(card: dict[str, Any], rate: float) -> float:
    link = pcie_rate(card.get("pcie_GTps"), card.get("pcie_width"))
    return rate if link is None else min(rate, link * 8 / 1e9)


def figures_of_run(run: Run, name: str) -> list[Figure]:
    """What a run measured, as figures of the set `name`; empty where its shape is not known.

    One figure an operation and size, of float32 and out of place where there are several.
    """
    shape = shape_of(run.world)
    if shape is None or not shape.interconnect:
        return []
    usual = [one for one in run.measurements if one.groups == "all" and one.time.median > 0]
    usual.sort(key=lambda one: (one.dtype != "float32", one.in_place))
    chosen: dict[tuple[str, int], Measurement] = {}
    for one in usual:
        chosen.setdefault((one.op, one.size_bytes), one)
    return [_as_figure(chosen[key], shape, run, name) for key in sorted(chosen)]


def _as_figure(one: Measurement, shape: Shape, run: Run, name: str) -> Figure:
    time = one.time
    return Figure(
        name=name,
        system=shape.system,
        gpu=shape.gpu,
        gpus_per_node=shape.per_node,
        nodes=shape.nodes,
        interconnect=shape.interconnect,
        nics=shape.nics,
        nic_Gbitps=shape.nic_Gbitps,
        switch=shape.switch,
        collective=one.op,
        size_bytes=one.size_bytes,
        busbw=one.busbw or None,
        busbw_range=busbw_interval(one),
        time_s=time.median,
        time_range=None if lacks_samples(one.samples) else (time.low, time.high),
        source=f"run {run.id}",
        published=run.started[:10],
    )


def busbw_interval(one: Measurement) -> tuple[float, float] | None:
    """The interval of the time turned into that of the bandwidth; None where there is none."""
    time = one.time
    if lacks_samples(one.samples) or not one.busbw or not 0 < time.low < time.high:
        return None
    return one.busbw * time.median / time.high, one.busbw * time.median / time.low
