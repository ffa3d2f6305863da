"""Nodes, what the pods on them hold, and whether there is room for an environment's pods.

A pod takes a node for itself, so an environment of N pods needs N nodes that each have all of it.
Each node that is short is named, with what holds it.

Selectors, affinity to nodes, taints and free resources:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and …/taint-and-toleration/
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Kubectl, Refused, finding_of, is_about, json_object
from wirespeed.clusters.manifests import INSTANCE, MANAGED_BY, OURS
from wirespeed.clusters.operations.pod_lookup import (
    Node,
    effective_requests,
    format_amount,
    nodes_of,
)
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import listed

_FIELDS = (
    "{.spec.nodeName}",
    "{.metadata.namespace}",
    "{.metadata.name}",
    "{.metadata.labels}",
    "{.spec.overhead}",
    "{range .spec.containers[*]}{.resources}|{end}",
    "{range .spec.initContainers[*]}{.restartPolicy}={.resources}|{end}",
)
"""Of each pod: the scheduler's part only; whole pods of a large cluster are hundreds of megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one pod holds of its node."""

    pod: str
    """NAMESPACE/NAME."""
    requests: Mapping[str, float]


def pods_words() -> tuple[str, ...]:
    """kubectl's words that tell what every pod of the cluster holds."""
    line = "{'\\t'}".join(_FIELDS) + "{'\\n'}"
    over = "status.phase!=Succeeded,status.phase!=Failed"
    path = f"jsonpath={{range .items[*]}}{line}{{end}}"
    return "get", "pods", "--all-namespaces", f"--field-selector={over}", "-o", path


def holdings_from(text: str, *, except_of: tuple[str, str]) -> dict[str, list[Holding]]:
    """By node, from what `pods_words` gave.

    except_of: namespace and name of an environment whose own pods do not count, as they are replaced.
    """
    found: dict[str, list[Holding]] = defaultdict(list)
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != len(_FIELDS) or not fields[0]:
            continue
        node, namespace, name, labels = fields[:4]
        told = json_object(labels)
        if (namespace, told.get(INSTANCE)) == except_of and told.get(MANAGED_BY) == OURS:
            continue
        asked = effective_requests(_spec(*fields[4:]))
        found[node].append(Holding(pod=f"{namespace}/{name}", requests=asked))
    return dict(found)


def _spec(overhead: str, containers: str, first: str) -> dict[str, Any]:
    inits = (one.partition("=") for one in first.split("|") if one)
    return {
        "overhead": json_object(overhead),
        "containers": [{"resources": json_object(one)} for one in containers.split("|") if one],
        "initContainers": [
            {"restartPolicy": policy, "resources": json_object(told)} for policy, _, told in inits
        ],
    }


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EPSILON = 1e-9
"""Quantities are read as floats: 0.1 + 0.2 cores are 0.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one pod wants of a node."""

    resources: Mapping[str, float]
    selector: Mapping[str, str]
    terms: Sequence[Mapping[str, Any]]
    """Node selector terms, of which one must hold; empty: any node."""
    tolerations: Sequence[Mapping[str, Any]]
    together_in: str = ""
    """Key of the node label that all pods must have the same value of; empty: none."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """One resource that a node has too little of."""

    node: str
    resource: str
    asked: float
    free: float
    has: float
    """Allocatable; 0: the node has none."""
    holders: tuple[str, ...]
    """Pods that hold it, those that hold most first."""


def ask_of(template: Mapping[str, Any]) -> Ask:
    """From a pod template."""
    spec = template["spec"]
    affinity = spec.get("affinity") or {}
    nodes = affinity.get("nodeAffinity", {}).get(_REQUIRED, {})
    beside = affinity.get("podAffinity", {}).get(_REQUIRED, [])
    return Ask(
        resources={**effective_requests(spec), "pods": 1.0},
        selector=spec.get("nodeSelector") or {},
        terms=nodes.get("nodeSelectorTerms", ()),
        tolerations=spec.get("tolerations") or (),
        together_in=beside[0]["topologyKey"] if beside else "",
    )


def is_scarce(ask: Ask) -> bool:
    """Whether a pod asks for anything but a place."""
    return any(amount and name != "pods" for name, amount in ask.resources.items())


def unfit(node: Node, ask: Ask) -> str:
    """Why the node takes no such pod whatever is free on it; empty: it may."""
    if not node.ready:
        return "it is not Ready"
    if node.cordoned:
        return "it is cordoned (kubectl cordon)"
    for key, value in ask.selector.items():
        if node.labels.get(key) != value:
            return f"it has {_label(node, key)}, not {key}={value} (nodes.node_selector)"
    if ask.terms and not any(_holds(node, term) for term in ask.terms):
        return _why_no_term(node, ask.terms)
    for taint in node.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(
            _bears(one, taint) for one in ask.tolerations
        ):
            return f"it has the taint {_taint(taint)}, which nodes.tolerations does not bear"
    return ""


def shortages(node: Node, ask: Ask, holdings: Sequence[Holding]) -> list[Shortage]:
    """What is missing on the node; empty: the pod fits."""
    found = []
    for resource, asked in ask.resources.items():
        having = [(one.requests.get(resource, 0.0), one.pod) for one in holdings]
        taken = len(holdings) if resource == "pods" else sum(amount for amount, _ in having)
        has = node.allocatable.get(resource, 0.0)
        if asked > 0 and asked > has - taken + _EPSILON:
            held = sorted((-amount, pod) for amount, pod in having if amount > 0)
            holders = tuple(pod for _, pod in held)
            free = max(0.0, has - taken)
            found.append(Shortage(node.name, resource, asked, free, has, holders))
    return found


def _label(node: Node, key: str) -> str:
    return f"{key}={node.labels[key]}" if key in node.labels else f"no label {key}"


def _taint(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def _bears(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")


def _holds(node: Node, term: Mapping[str, Any]) -> bool:
    """A term without any condition holds nowhere."""
    fields = {"metadata.name": node.name}
    wanted = [(one, node.labels) for one in term.get("matchExpressions") or ()]
    wanted += [(one, fields) for one in term.get("matchFields") or ()]
    return bool(wanted) and all(_meets(one, among) for one, among in wanted)


def _meets(wanted: Mapping[str, Any], among: Mapping[str, str]) -> bool:
    value, values = among.get(wanted["key"]), wanted.get("values") or ()
    match wanted["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            return _compares(operator, value, values)


def _compares(operator: str, value: str | None, values: Sequence[str]) -> bool:
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def _why_no_term(node: Node, terms: Sequence[Mapping[str, Any]]) -> str:
    fields = [one for term in terms for one in term.get("matchFields") or ()]
    if fields and not any(node.name in (one.get("values") or ()) for one in fields):
        return "nodes.gpu_nodes does not name it"
    wanted = next(one for term in terms for one in term["matchExpressions"])
    return f"it has {_label(node, wanted['key'])}, not {' or '.join(wanted.get('values') or ())}"


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
        names = listed([one.node for one in shortages])
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
        because=f"it is held by {listed(holders)}"
        if holders
        else "the nodes themselves have no more",
        fix=_fix(deployment, able, resource),
        evidence=tuple(_line(one) for one in shortages[:_MOST_EVIDENCE]),
    )


def _line(one: Shortage) -> str:
    free, has = (format_amount(one.resource, value) for value in (one.free, one.has))
    told = f"{one.node}: {free} free of {has}"
    held = f", held by {listed(one.holders)}" if one.holders else ""
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
    there = sorted({node.name for node in nodes})
    lost = [name for name in deployment.file.nodes.gpu_nodes if name not in there]
    if not lost:
        return []
    near = get_close_matches(lost[0], there, 1)
    fix = f"{near[0]} instead of {lost[0]}" if near else ""
    title = f"the cluster has no node {listed(lost)}"
    return [make_finding("unnamed", title=title, saw=f"nodes: {listed(there)}", fix=fix)]


def _count_nodes(count: int) -> str:
    return f"{count or 'no'} node{'' if count == 1 else 's'}"


def room_of(kubectl: Kubectl, deployment: Deployment, template: Mapping[str, Any]) -> Room:
    """What may not be seen is left out: most users of a namespace may not list nodes."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        # What other pods hold only matters to pods that ask for something.
        asked = pool.submit(kubectl.do, *pods_words()) if is_scarce(ask_of(template)) else None
        try:
            nodes = nodes_of(kubectl)
        except Refused as refused:
            if not is_about(finding_of(refused), "006"):
                raise
            return Room(None)
    if asked is None:
        return Room(nodes)
    own = (deployment.namespace, deployment.name)
    try:
        return Room(nodes, holdings_from(asked.result(), except_of=own))
    except Refused as refused:
        if not is_about(finding_of(refused), "006"):
            raise
        return Room(nodes, None)
