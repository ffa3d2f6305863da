"""Nodes, and what the pods on them hold."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.life.pods import ZONE, effective_requests
from wirespeed.clusters.life.quantities import amounts
from wirespeed.clusters.manifests.labels import INSTANCE, MANAGED_BY, OURS

__all__ = ["Holding", "Node", "holdings_from", "node_from", "nodes_of", "pods_words"]

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
        return self.labels.get(ZONE, "")


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
    conditions = status.get("conditions") or ()
    return Node(
        name=meta["name"],
        labels=meta.get("labels", {}),
        taints=tuple(spec.get("taints") or ()),
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
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
        told = _json(labels)
        if (namespace, told.get(INSTANCE)) == except_of and told.get(MANAGED_BY) == OURS:
            continue
        asked = effective_requests(_spec(*fields[4:]))
        found[node].append(Holding(pod=f"{namespace}/{name}", node=node, requests=asked))
    return dict(found)


def _spec(overhead: str, containers: str, first: str) -> dict[str, Any]:
    return {
        "overhead": _json(overhead),
        "containers": [{"resources": _json(one)} for one in _parts(containers)],
        "initContainers": [
            {"restartPolicy": policy, "resources": _json(told)}
            for policy, _, told in (one.partition("=") for one in _parts(first))
        ],
    }


def _parts(text: str) -> Iterable[str]:
    return (part for part in text.split("|") if part)


def _json(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text or "{}")
    except (RecursionError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def nodes_of(kubectl: Kubectl) -> list[Node]:
    """All nodes. Raises Refused."""
    return [node_from(one) for one in kubectl.items("get", "nodes")]
