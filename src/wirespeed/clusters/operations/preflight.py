"""What a deploy has to know before it makes anything, asked at once; and whether there is room.

A pod takes a node for itself, so an environment of N pods needs N nodes that each have all of it.
Each node that is short is named, with what holds it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file import EngineName
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Kubectl, Refused
from wirespeed.clusters.kube.refusals import finding_of, is_about
from wirespeed.clusters.operations.apply import Trial, probe_pod, try_out
from wirespeed.clusters.operations.capabilities import missing_for
from wirespeed.clusters.operations.pod_lookup import format_amount, some_of
from wirespeed.clusters.operations.schedulability import (
    Ask,
    Holding,
    Node,
    Shortage,
    ask_of,
    holdings_from,
    is_scarce,
    nodes_of,
    pods_words,
    shortages,
    unfit,
)
from wirespeed.clusters.operations.snapshot import (
    ORDINARY,
    Known,
    found,
    is_made_by_another,
    kinds_in,
    labelled,
    named,
    same_names,
)
from wirespeed.model.records import Finding, Subject

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
        return [make_finding("unlisted", what="nodes", title="what nodes have free")]
    ask = ask_of(template)
    judged = _judge(room.nodes, ask, room.holdings or {})
    found = _unnamed(deployment, room.nodes)
    able = _most_together(judged.fit, ask)
    if len(able) < deployment.nodes:
        found += _lacking(deployment, ask, room.nodes, judged, len(able))
    elif room.holdings is None and is_scarce(ask):
        found.append(
            make_finding(
                "unlisted",
                what="pods of other namespaces",
                title="what other pods hold of the nodes",
            )
        )
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
    first, resource = shortages[0], shortages[0].resource
    amount = f"{format_amount(resource, first.asked)} {resource}"
    if len(shortages) == 1:
        title = f"{first.node} has {format_amount(resource, first.free)} of {amount} free"
    else:
        names = some_of([one.node for one in shortages])
        title = f"{len(shortages)} nodes have less than {amount} free: {names}"
    holders = list(Counter(pod for one in shortages for pod in one.holders))
    return make_finding(
        "short",
        deployment=deployment,
        amount=amount,
        node=first.node,
        title=title,
        subject=Subject("node", first.node) if len(shortages) == 1 else None,
        saw=f"{_count_nodes(able)} {'has' if able == 1 else 'have'} room for a pod",
        because=f"it is held by {some_of(holders)}"
        if holders
        else "the nodes themselves have no more",
        fix=_fix(deployment, able, resource),
        evidence=tuple(_line(one) for one in shortages[:_MOST_EVIDENCE]),
    )


def _line(one: Shortage) -> str:
    free, has = (format_amount(one.resource, value) for value in (one.free, one.has))
    told = f"{one.node}: {free} free of {has}"
    held = f", held by {some_of(one.holders)}" if one.holders else ""
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
    return make_finding("no_gpus" if gpus else "no_adapters", resource=resource, saw=had)


def _too_few(deployment: Deployment, ask: Ask, judged: _Judged, able: int) -> Finding:
    some = len(judged.fit) + len(judged.short)
    zone = f" in one {ask.together_in}" if ask.together_in else ""
    because = "; ".join(f"{name}: {why}" for name, why in list(judged.out.items())[:_MOST_NAMED])
    return make_finding(
        "too_few",
        deployment=deployment,
        title=f"{_count_nodes(some)} can take pods{zone if some >= deployment.nodes else ''}, "
        f"{deployment.nodes} are asked",
        saw=f"{_count_nodes(able)}{zone} with room for a pod",
        because=because or "the cluster has no more nodes",
        fix=f"--nodes {able}" if able else "",
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
        make_finding(
            "unnamed",
            title=f"the cluster has no node {some_of(lost)}",
            saw=f"nodes: {some_of(sorted(there))}",
            fix=f"{near[0]} instead of {lost[0]}" if near else "",
        )
    ]


def _count_nodes(count: int) -> str:
    return f"{count or 'no'} node{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is there, and what the server says of what shall be."""

    trial: Trial
    live: Known
    """Objects with the names of ours, whoever made them."""
    ours: Known
    """All objects of this environment."""
    claims: Known
    """Claims that a StatefulSet would take as its pods' own."""
    room: Room | None
    """None where nobody asked."""
    operator: tuple[Finding, ...]
    """What the engine lacks in this cluster."""


def survey(
    kubectl: Kubectl,
    deployment: Deployment,
    objects: Sequence[Mapping[str, Any]],
    template: Mapping[str, Any],
    *,
    preflight: bool,
) -> Survey:
    """Raises Refused where the API server cannot be asked at all."""
    # kubectl's start costs more than the server's answer: all side by side.
    with ThreadPoolExecutor(max_workers=8) as pool:
        trial = pool.submit(try_out, kubectl, objects, _probe(deployment, template))
        live = pool.submit(named, kubectl, objects)
        ours = pool.submit(_ours, kubectl, deployment.name, deployment.engine)
        claims = pool.submit(same_names, kubectl, _claim_names(deployment))
        operator = pool.submit(missing_for, kubectl, deployment.engine)
        room = pool.submit(_room, kubectl, deployment, template) if preflight else None
        return Survey(
            trial=trial.result(),
            live=live.result(),
            ours=ours.result(),
            claims=claims.result(),
            room=room.result() if room else None,
            operator=operator.result(),
        )


def _probe(deployment: Deployment, template: Mapping[str, Any]) -> dict[str, Any] | None:
    """None where only an account that is not made yet may run such pods."""
    security = deployment.file.security
    if security.requires_privileged_scc and not security.service_account:
        return None
    return probe_pod(template, security.service_account or "default")


def _ours(kubectl: Kubectl, name: str, engine: EngineName) -> Known:
    """Which kinds a cluster has is only asked where an operator has made, or shall make, the pods."""
    if engine == "statefulset":
        known = found(kubectl, name, ORDINARY)
        makers = [one["metadata"].get("ownerReferences") or [{}] for one in known.objects]
        if all(one[0].get("kind") in (None, "StatefulSet") for one in makers):
            own = tuple(one for one in known.objects if not is_made_by_another(one))
            return Known(own, known.unseen)
    return labelled(kubectl, name, kinds_in(kubectl))


def _claim_names(deployment: Deployment) -> list[str]:
    """Of a StatefulSet's templates: VOLUME-POD."""
    from wirespeed.clusters.manifests.pod import templates

    if deployment.engine != "statefulset":
        return []
    volumes = [one["metadata"]["name"] for one in templates(deployment)]
    return [f"{volume}-{pod}" for volume in volumes for pod in deployment.pods]


def _room(kubectl: Kubectl, deployment: Deployment, template: Mapping[str, Any]) -> Room:
    """What may not be seen is left out: most users of a namespace may not list nodes.

    What other pods hold only matters to pods that ask for something.
    """
    if not is_scarce(ask_of(template)):
        return _nodes_alone(kubectl)
    with ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(kubectl.ask, *pods_words())
        room = _nodes_alone(kubectl)
        answer = asked.result()
    if room.nodes is None:
        return room
    if answer.code != 0:
        if not is_about(finding_of(answer), "006"):
            raise Refused(answer)
        return Room(room.nodes, None)
    own = (deployment.namespace, deployment.name)
    return Room(room.nodes, holdings_from(answer.out, except_of=own))


def _nodes_alone(kubectl: Kubectl) -> Room:
    try:
        return Room(nodes_of(kubectl))
    except Refused as refused:
        if not is_about(finding_of(refused), "006"):
            raise
        return Room(None)
