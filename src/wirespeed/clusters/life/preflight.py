"""Before anything is made: is there room? Each node that is short is named, with what holds it.

A pod takes a node for itself, so an environment of N pods needs N nodes that each have all of it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.life.fitting import Ask, Shortage, ask_of, is_scarce, shortages, unfit
from wirespeed.clusters.life.nodes import Holding, Node
from wirespeed.clusters.life.quantities import shown
from wirespeed.records import Finding, Subject

__all__ = ["Room", "room_findings"]

_MOST_NAMED, _MOST_EVIDENCE = 4, 40
_ORDINARY = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True)
class Room:
    """What the cluster has; `nodes` None: the user may not see nodes."""

    nodes: Sequence[Node] | None
    holdings: Mapping[str, Sequence[Holding]] | None = field(default_factory=dict)
    """By node; None: the user may not see the pods of other namespaces."""


@dataclass(frozen=True, slots=True)
class _Judged:
    fit: tuple[Node, ...]
    short: Mapping[str, list[Shortage]]
    """By node: those that take such pods, and have too little free."""
    out: Mapping[str, str]
    """By node: why it takes none whatever is free."""


def room_findings(deployment: Deployment, template: Mapping[str, Any], room: Room) -> list[Finding]:
    """None where every pod has a node; `not_checked` where the user may not look."""
    if room.nodes is None:
        return [_unseen("nodes", "what nodes have free")]
    ask = ask_of(template)
    judged = _judge(room.nodes, ask, room.holdings or {})
    found = _unnamed(deployment, room.nodes)
    able = _most_together(judged.fit, ask)
    if len(able) < deployment.nodes:
        found += _lacking(deployment, ask, room.nodes, judged, len(able))
    elif room.holdings is None and is_scarce(ask):
        found.append(_unseen("pods of other namespaces", "what other pods hold of the nodes"))
    return found


def _judge(nodes: Sequence[Node], ask: Ask, holdings: Mapping[str, Sequence[Holding]]) -> _Judged:
    out = {node.name: why for node in nodes if (why := unfit(node, ask))}
    able = [node for node in nodes if node.name not in out]
    short = {node.name: shortages(node, ask, holdings.get(node.name, ())) for node in able}
    fit = tuple(node for node in able if not short[node.name])
    return _Judged(fit, {name: one for name, one in short.items() if one}, out)


def _most_together(nodes: Sequence[Node], ask: Ask) -> Sequence[Node]:
    """Those that can take pods at once: where all must be in one zone, those of the largest."""
    if not ask.together_in:
        return nodes
    zones: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if zone := node.labels.get(ask.together_in):
            zones[zone].append(node)
    return max(zones.values(), key=len, default=[])


def _lacking(
    deployment: Deployment, ask: Ask, nodes: Sequence[Node], judged: _Judged, able: int
) -> list[Finding]:
    """By resource where nodes are short, and one for too few nodes where these would not do."""
    nowhere = [
        name
        for name, amount in ask.resources.items()
        if amount and not any(node.allocatable.get(name) for node in nodes)
    ]
    if nowhere and nodes:
        return [_no_node_has(deployment, name, nodes) for name in nowhere]
    by_resource: dict[str, list[Shortage]] = defaultdict(list)
    for one in judged.short.values():
        for shortage in one:
            by_resource[shortage.resource].append(shortage)
    found = [_short(deployment, able, one) for one in by_resource.values()]
    if len(judged.fit) + len(judged.short) < deployment.nodes or not found:
        found.append(_too_few(deployment, ask, judged, able))
    return found


def _short(deployment: Deployment, able: int, shortages: list[Shortage]) -> Finding:
    first = shortages[0]
    amount = shown(first.resource, first.asked)
    resource = first.resource
    if len(shortages) == 1:
        title = f"{first.node} has {shown(resource, first.free)} of {amount} {resource} free"
    else:
        names = _named([one.node for one in shortages])
        title = f"{len(shortages)} nodes have less than {amount} {resource} free: {names}"
    node = first.node if len(shortages) == 1 else ""
    return Finding(
        id="CLUSTER-001",
        status="fail",
        title=title,
        subject=Subject("node", node) if node else Subject("job", "job"),
        saw=f"{_nodes(able)} {'has' if able == 1 else 'have'} room for a pod",
        expected=f"{deployment.nodes}, each with {_amount(resource, first.asked)} free",
        because=_held(shortages),
        fix=_fix(deployment, able, resource),
        next=f"kubectl describe node {first.node}",
        evidence=tuple(_line(one) for one in shortages[:_MOST_EVIDENCE]),
    )


def _held(shortages: Sequence[Shortage]) -> str:
    """By whom, where anybody holds it; else the node itself has less."""
    holders = Counter(pod for one in shortages for pod in one.holders)
    if not holders:
        return "the nodes themselves have no more"
    return f"it is held by {_named(list(holders))}"


def _line(one: Shortage) -> str:
    told = f"{one.node}: {shown(one.resource, one.free)} free of {shown(one.resource, one.has)}"
    held = f", held by {_named(one.holders)}" if one.holders else ""
    return f"{told} {one.resource}{held}"


def _fix(deployment: Deployment, able: int, resource: str) -> str:
    ways = [f"--nodes {able}"] if able else []
    if resource in _ORDINARY:
        ways.append("ask for less in `resources`")
    elif resource == deployment.file.gpus.resource:
        ways.append("a smaller gpus.per_node")
    return ", ".join([*ways, "or end what holds it"])


def _no_node_has(deployment: Deployment, resource: str, nodes: Sequence[Node]) -> Finding:
    """RDMA that is nowhere is another story than GPUs that are nowhere."""
    gpus = resource == deployment.file.gpus.resource or resource.endswith("/gpu")
    there = sorted({name for node in nodes for name in node.allocatable if "/" in name})
    had = f"the nodes have {', '.join(there)}" if there else "no node has any extended resource"
    fix = (
        "install the GPU operator, or name the resource that the nodes have in gpus.resource"
        if gpus
        else "install the RDMA device plugin (NVIDIA network operator), name the resource that the "
        "nodes have in network.rdma.resource, or go on over TCP with --fallback tcp"
    )
    return Finding(
        id="CLUSTER-001" if gpus else "CLUSTER-014",
        status="fail",
        title=f"no node of the cluster has {resource}",
        saw=had,
        expected=f"{resource} among what nodes can give (status.allocatable)",
        because="its device plugin does not run, or it is named otherwise",
        fix=fix,
        next="kubectl get nodes -o custom-columns=NODE:.metadata.name,HAS:.status.allocatable",
    )


def _too_few(deployment: Deployment, ask: Ask, judged: _Judged, able: int) -> Finding:
    some = len(judged.fit) + len(judged.short)
    zone = f" in one {ask.together_in}" if ask.together_in else ""
    because = "; ".join(f"{name}: {why}" for name, why in list(judged.out.items())[:_MOST_NAMED])
    return Finding(
        id="CLUSTER-002",
        status="fail",
        title=f"{_nodes(some)} can take pods{zone if some >= deployment.nodes else ''}, "
        f"{deployment.nodes} are asked",
        saw=f"{_nodes(able)}{zone} with room for a pod",
        expected=f"{deployment.nodes}: each pod takes a node for itself",
        because=because or "the cluster has no more nodes",
        fix=f"--nodes {able}" if able else "",
        next="kubectl get nodes --show-labels",
        evidence=tuple(f"{name}: {why}" for name, why in judged.out.items())[:_MOST_EVIDENCE],
    )


def _unnamed(deployment: Deployment, nodes: Sequence[Node]) -> list[Finding]:
    """Names in gpus_nodes that no node has."""
    there = {node.name for node in nodes}
    lost = [name for name in deployment.file.nodes.gpu_nodes if name not in there]
    if not lost:
        return []
    import difflib

    near = difflib.get_close_matches(lost[0], sorted(there), 1)
    return [
        Finding(
            id="CLUSTER-002",
            status="fail",
            title=f"the cluster has no node {_named(lost)}",
            saw=f"nodes: {_named(sorted(there))}",
            expected="nodes.gpu_nodes holds names of nodes",
            fix=f"{near[0]} instead of {lost[0]}" if near else "",
            next="kubectl get nodes",
        )
    ]


def _unseen(what: str, about: str) -> Finding:
    return Finding(
        id="CLUSTER-001",
        status="not_checked",
        title=about,
        because=f"this user may not list {what}; the scheduler will tell",
    )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _nodes(count: int) -> str:
    return f"{count or 'no'} node{'' if count == 1 else 's'}"


def _amount(resource: str, value: float) -> str:
    return f"{shown(resource, value)} {resource}"
