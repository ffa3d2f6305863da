"""Where pods may run: one a node, on the nodes that the file names, near each other if asked."""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file.model import Toleration
from wirespeed.clusters.manifests.fabric import preset_of
from wirespeed.clusters.manifests.labels import selector

__all__ = ["placement"]

_HOST = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_PRODUCT = "nvidia.com/gpu.product"


def placement(deployment: Deployment) -> dict[str, Any]:
    """Parts of a pod's spec."""
    file = deployment.file
    parts = {
        "nodeSelector": dict(file.nodes.node_selector),
        "affinity": {**_node_affinity(deployment), **_pod_affinity(deployment)},
        "topologySpreadConstraints": _spread(deployment),
        "tolerations": _tolerations(deployment),
    }
    return {key: part for key, part in parts.items() if part}


def _node_affinity(deployment: Deployment) -> dict[str, Any]:
    """One term a node: the label kubernetes.io/hostname is not everywhere the node's name.

    https://kubernetes.io/docs/reference/node/node-labels/
    """
    product = deployment.file.gpus.type
    expressions = [{"key": _PRODUCT, "operator": "In", "values": [product]}] if product else []
    term = {"matchExpressions": expressions} if expressions else {}
    terms: list[dict[str, Any]] = [
        {**term, "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in deployment.file.nodes.gpu_nodes
    ]
    if not terms and not term:
        return {}
    required = {"nodeSelectorTerms": terms or [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _pod_affinity(deployment: Deployment) -> dict[str, Any]:
    """The first pod of an environment is let in anywhere; the others follow it into its zone."""
    apart = {"podAntiAffinity": _required(deployment, _HOST)}
    if deployment.file.nodes.same_zone or preset_of(deployment).same_zone:
        return {"podAffinity": _required(deployment, _ZONE), **apart}
    return apart


def _required(deployment: Deployment, topology: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": selector(deployment.name)}, "topologyKey": topology}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _spread(deployment: Deployment) -> list[dict[str, Any]]:
    key = deployment.file.nodes.spread_over or preset_of(deployment).spread_over
    if not key:
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(deployment.name)},
        }
    ]


def _tolerations(deployment: Deployment) -> list[dict[str, Any]]:
    """GPU nodes bear a taint named as the resource where they are kept for those who ask for GPUs."""
    gpu = {"key": deployment.file.gpus.resource, "operator": "Exists"}
    found = [gpu] if deployment.gpus else []
    return [*found, *(_toleration(one) for one in deployment.file.nodes.tolerations)]


def _toleration(one: Toleration) -> dict[str, Any]:
    parts = {
        "key": one.key,
        "operator": one.operator,
        "value": one.value,
        "effect": one.effect,
        "tolerationSeconds": one.toleration_seconds,
    }
    return {key: part for key, part in parts.items() if part not in ("", None)}
