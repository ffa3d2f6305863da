"""What a cluster file leaves open of its fabric, taken from the cluster: attachments, RDMA resource."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.discover.found import Attachment, attachment
from wirespeed.clusters.discover.guess_fabric import adapter_resources
from wirespeed.clusters.file.model import Rdma
from wirespeed.clusters.kube.kubectl import Kubectl, Refused
from wirespeed.clusters.life.nodes import Node, nodes_of
from wirespeed.records import Choice, Finding

__all__ = ["served"]

_ATTACHMENTS = "network-attachment-definitions.k8s.cni.cncf.io"
_INTERFACES, _RESOURCE = "CLUSTER-044", "CLUSTER-045"
_LACKING = "CLUSTER-014"
_MOST = 6


def served(kubectl: Kubectl, deployment: Deployment) -> tuple[Deployment, tuple[Finding, ...]]:
    """The deployment with what the cluster has, and what stands against it.

    Nothing is asked where the file says all. What may not be read counts as not there.
    """
    found: tuple[Finding, ...] = ()
    if deployment.mode != "rdma":
        return deployment, found
    if deployment.attachable:
        deployment = _attached(deployment, _attachments(kubectl))
    rdma = deployment.file.network.rdma
    if deployment.seeks_resource and not (rdma.resource or rdma.networks):
        deployment, found = _with_resource(deployment, _nodes(kubectl, deployment))
    return deployment, found


def _attachments(kubectl: Kubectl) -> list[Attachment]:
    answer = kubectl.ask("get", _ATTACHMENTS, "-o", "json")
    try:
        told = json.loads(answer.out) if answer.code == 0 else {}
    except (RecursionError, ValueError):
        told = {}
    items = told.get("items") if isinstance(told, dict) else None
    return [attachment(one) for one in items or () if isinstance(one, dict)]


def _nodes(kubectl: Kubectl, deployment: Deployment) -> list[Node]:
    """Those that pods may run on, as far as the file and their GPUs tell."""
    try:
        nodes = nodes_of(kubectl)
    except Refused:
        return []
    named, gpu = set(deployment.file.nodes.gpu_nodes), deployment.file.gpus.resource
    return [
        one
        for one in nodes
        if (one.name in named if named else not deployment.gpus or one.allocatable.get(gpu))
    ]


def _attached(deployment: Deployment, there: Iterable[Attachment]) -> Deployment:
    known = {one.name: one for one in there}
    names = deployment.attachable
    if not all(name in known for name in names):
        return deployment
    resources = {known[name].resource for name in names} - {""}
    changes: dict[str, Any] = {
        "interfaces": ",".join(filter(None, (deployment.file.network.rdma.interfaces, *names))),
        "networks": tuple(f"{deployment.namespace}/{name}@{name}" for name in names),
    }
    if len(resources) == 1 and not deployment.file.network.rdma.resource:
        changes |= {"resource": resources.pop(), "count": len(names)}
    why = "the namespace has network attachments of the names in network.rdma.interfaces"
    choice = Choice("network.rdma.networks", ", ".join(names), why)
    return _changed(deployment, changes, choice, (_INTERFACES, _RESOURCE))


def _with_resource(
    deployment: Deployment, nodes: Iterable[Node]
) -> tuple[Deployment, tuple[Finding, ...]]:
    nodes = list(nodes)
    there = adapter_resources(one.allocatable for one in nodes)
    if len(there) == 1:
        why = f"the only RDMA resource among what {_count(nodes)} can give"
        choice = Choice("network.rdma.resource", there[0], why)
        return _changed(deployment, {"resource": there[0]}, choice, (_RESOURCE,)), ()
    if deployment.names_adapters:
        return deployment, ()
    return deployment, (_no_single(there, nodes),)


def _no_single(there: list[str], nodes: list[Node]) -> Finding:
    named = ", ".join(there[:_MOST])
    return Finding(
        id=_LACKING,
        status="fail",
        title=f"{len(there) or 'no'} RDMA resources on {_count(nodes)}, and the file names none",
        saw=named or "no resource of RDMA adapters in status.allocatable",
        expected="one that can be taken, or its name in network.rdma.resource",
        fix=f"network.rdma.resource: one of {named}"
        if there
        else "install the RDMA device plugin (NVIDIA network operator), or go on over TCP with "
        "--fallback tcp",
        next="kubectl get nodes -o custom-columns=NODE:.metadata.name,HAS:.status.allocatable",
    )


def _count(nodes: list[Node]) -> str:
    if not nodes:
        return "nodes that may be read"
    return f"{len(nodes)} nodes" if len(nodes) > 1 else "1 node"


def _changed(
    deployment: Deployment, changes: Mapping[str, Any], choice: Choice, settled: tuple[str, ...]
) -> Deployment:
    """With these keys of network.rdma as if the file said them, and without what they settle."""
    rdma: Rdma = deployment.file.network.rdma.model_copy(update=dict(changes))
    network = deployment.file.network.model_copy(update={"rdma": rdma})
    solved = settled if rdma.resource or rdma.networks else ()
    return replace(
        deployment,
        file=deployment.file.model_copy(update={"network": network}),
        choices=(*(one for one in deployment.choices if one.name != choice.name), choice),
        warnings=tuple(one for one in deployment.warnings if one.id not in solved),
    )
