"""Nodes, what the pods on them hold, and whether the scheduler would put a pod on one.

Selectors, affinity to nodes, taints and free resources:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and …/taint-and-toleration/
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.clusters.kube import Kubectl, json_object
from wirespeed.clusters.manifests import INSTANCE, MANAGED_BY, OURS
from wirespeed.clusters.operations.pod_lookup import ZONE, amounts, effective_requests, is_true

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


_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the scheduler looks at."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    ready: bool = True
    cordoned: bool = False
    allocatable: Mapping[str, float] = field(default_factory=dict)

    @property
    def zone(self) -> str:
        return self.labels.get(ZONE, "") or self.labels.get(_OLD_ZONE, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one pod holds of its node."""

    pod: str
    """NAMESPACE/NAME."""
    node: str
    requests: Mapping[str, float]


def node_from(told: Mapping[str, Any]) -> Node:
    """A node from its JSON."""
    meta, spec, status = told["metadata"], told.get("spec", {}), told.get("status", {})
    return Node(
        name=meta["name"],
        labels=meta.get("labels", {}),
        taints=tuple(
            {part: one[part] for part in ("key", "value", "effect") if one.get(part)}
            for one in spec.get("taints", ())
        ),
        ready=is_true(status, "Ready"),
        cordoned=bool(spec.get("unschedulable")),
        allocatable=amounts(status.get("allocatable", {})),
    )


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
        found[node].append(Holding(pod=f"{namespace}/{name}", node=node, requests=asked))
    return dict(found)


def _spec(overhead: str, containers: str, first: str) -> dict[str, Any]:
    return {
        "overhead": json_object(overhead),
        "containers": [{"resources": json_object(one)} for one in _parts(containers)],
        "initContainers": [
            {"restartPolicy": policy, "resources": json_object(told)}
            for policy, _, told in (one.partition("=") for one in _parts(first))
        ],
    }


def _parts(text: str) -> Iterable[str]:
    return (part for part in text.split("|") if part)


def nodes_of(kubectl: Kubectl) -> list[Node]:
    """All nodes. Raises Refused."""
    return [node_from(one) for one in kubectl.items("get", "nodes")]


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        taken = _taken(holdings, resource)
        has = node.allocatable.get(resource, 0.0)
        if asked > 0 and asked > has - taken + _EPSILON:
            found.append(
                Shortage(
                    node=node.name,
                    resource=resource,
                    asked=asked,
                    free=max(0.0, has - taken),
                    has=has,
                    holders=_holders(holdings, resource),
                )
            )
    return found


def _taken(holdings: Sequence[Holding], resource: str) -> float:
    if resource == "pods":
        return float(len(holdings))
    return sum(one.requests.get(resource, 0.0) for one in holdings)


def _holders(holdings: Sequence[Holding], resource: str) -> tuple[str, ...]:
    """Nobody is named for the mere number of pods."""
    having = [one for one in holdings if one.requests.get(resource, 0.0) > 0]
    having.sort(key=lambda one: (-one.requests[resource], one.pod))
    return tuple(one.pod for one in having)


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
    listed = any(
        node.name in (one.get("values") or ())
        for term in terms
        for one in term.get("matchFields") or ()
    )
    named = any(term.get("matchFields") for term in terms)
    if named and not listed:
        return "nodes.gpu_nodes does not name it"
    keys = {one["key"]: one.get("values") or () for t in terms for one in t["matchExpressions"]}
    key, values = next(iter(keys.items()))
    return f"it has {_label(node, key)}, not {' or '.join(values)}"
