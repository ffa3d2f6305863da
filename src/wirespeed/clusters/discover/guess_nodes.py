"""GPUs and nodes: the largest group of like nodes, and what it takes to run on it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.clusters.discover.entry import Entry, Guess
from wirespeed.clusters.discover.found import Found, Node, Taint

__all__ = ["PRODUCT", "Group", "guess_nodes", "largest_group", "zones"]

PRODUCT = "nvidia.com/gpu.product"
"""Written by NVIDIA's GPU feature discovery."""
_OTHER_PRODUCTS = ("amd.com/gpu.product-name", "cloud.google.com/gke-accelerator", "accelerator")
_RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915",
    "gpu.intel.com/xe", "habana.ai/gaudi",
)  # fmt: skip
_SLICES = "nvidia.com/mig-"
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints of a state of the node, which ends by itself."""
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_DEFAULT_NODES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes that are alike."""

    nodes: tuple[Node, ...]
    resource: str = ""
    """Of the GPUs; empty: the nodes have none."""
    count: int = 0
    """GPUs of each node."""
    product: str = ""


def largest_group(nodes: Sequence[Node]) -> Group:
    """The like nodes that have most GPUs together; without any GPU all nodes for workloads."""
    usable = [one for one in nodes if one.ready and one.schedulable and not _controls(one)]
    groups: dict[tuple[str, int, str], list[Node]] = {}
    for one in usable:
        if resource := _resource(one):
            key = (resource, one.allocatable[resource], product_of(one))
            groups.setdefault(key, []).append(one)
    if not groups:
        return Group(nodes=tuple(usable))
    best = max(groups, key=lambda key: (len(groups[key]) * key[1], key))
    resource, count, product = best
    return Group(nodes=tuple(groups[best]), resource=resource, count=count, product=product)


def product_of(one: Node) -> str:
    """The GPU's name, by whichever label the vendor or the cloud writes."""
    keys = (PRODUCT, *_OTHER_PRODUCTS)
    return next((one.labels[key] for key in keys if one.labels.get(key)), "")


def zones(nodes: Sequence[Node]) -> Counter[str]:
    """How many nodes each zone has; nodes without a zone are left out."""
    return Counter(one.zone for one in nodes if one.zone)


def guess_nodes(found: Found, group: Group) -> Guess:
    """Keys of gpus and nodes."""
    entries = [*_gpus(group), *_tolerations(group)]
    wanted = min(_DEFAULT_NODES, len(group.nodes))
    if wanted:
        why = f"enough to cross the network, of {len(group.nodes)} such nodes; --nodes says others"
        entries.append(Entry(("gpus", "default_nodes"), wanted, why, guessed=True))
    return Guess(tuple(entries), tuple(_remarks(found, group)))


def _gpus(group: Group) -> list[Entry]:
    if not group.resource:
        why = "no node that is ready and takes pods offers GPUs: ranks run on CPUs, by gloo"
        return [Entry(("gpus", "per_node"), 0, why)]
    entries = [
        Entry(("gpus", "per_node"), group.count, f"allocatable on {len(group.nodes)} nodes"),
        Entry(("gpus", "resource"), group.resource, "what the device plugin offers"),
    ]
    if group.product and all(one.labels.get(PRODUCT) == group.product for one in group.nodes):
        why = f"the label {PRODUCT} of these nodes"
        entries.append(Entry(("gpus", "type"), group.product, why))
    return entries


def _tolerations(group: Group) -> list[Entry]:
    """Taints that all nodes of the group have; the GPU's own is borne always."""
    if not group.nodes:
        return []
    common = set.intersection(*(set(one.taints) for one in group.nodes))
    taints = sorted((one for one in common if _to_bear(one, group)), key=lambda one: one.key)
    if not taints:
        return []
    why = "all these nodes have the taint; it may be meant to keep others off, so ask who set it"
    value = [_toleration(one) for one in taints]
    return [Entry(("nodes", "tolerations"), value, why, guessed=True)]


def _to_bear(taint: Taint, group: Group) -> bool:
    passing = taint.key.startswith(_PASSING) or taint.key == group.resource
    return taint.effect in ("NoSchedule", "NoExecute") and not passing


def _toleration(taint: Taint) -> dict[str, str]:
    if not taint.value:
        return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    told = {"key": taint.key, "operator": "Equal", "value": taint.value}
    return {**told, "effect": taint.effect}


def _remarks(found: Found, group: Group) -> list[str]:
    told = []
    inside = {one.name for one in group.nodes}
    if others := [one for one in found.nodes if _resource(one) and one.name not in inside]:
        names = ", ".join(one.name for one in others[:8])
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        told.append(f"other nodes with GPUs, not ready, cordoned or of another kind: {names}{more}")
    if any(name.startswith(_SLICES) for one in found.nodes for name in one.allocatable):
        told.append("some GPUs are cut into MIG slices (nvidia.com/mig-…): those are not used here")
    if len(by_zone := zones(group.nodes)) > 1:
        counts = ", ".join(f"{zone} {count}" for zone, count in sorted(by_zone.items()))
        told.append(f"these nodes lie in several zones: {counts}")
    return told


def _resource(one: Node) -> str:
    return next((name for name in _RESOURCES if one.allocatable.get(name)), "")


def _controls(one: Node) -> bool:
    return any(taint.key in _CONTROL_PLANE for taint in one.taints)
