"""Names and labels of what we make: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/"""

from typing import Any

from wirespeed.clusters.deployment import Deployment

__all__ = [
    "DESCRIPTION",
    "INSTANCE",
    "MANAGED_BY",
    "OURS",
    "labels",
    "metadata",
    "owned",
    "pod_group",
    "queue",
    "selector",
    "selector_text",
]

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
OURS = "wirespeed"
"""Value of `managed-by` on all that we make; what lacks it belongs to somebody else."""
DESCRIPTION = "wirespeed/description"


def selector(name: str) -> dict[str, str]:
    """What tells the pods of one environment from all others in the namespace."""
    return {INSTANCE: name, "app.kubernetes.io/name": OURS}


def selector_text(name: str) -> str:
    """The same for `kubectl get -l`."""
    return ",".join(f"{key}={value}" for key, value in selector(name).items())


def labels(deployment: Deployment, component: str = "ranks") -> dict[str, str]:
    """Of every object; the user's own cannot change ours."""
    own = {**selector(deployment.name), MANAGED_BY: OURS, "app.kubernetes.io/component": component}
    return {**deployment.file.workload.labels, **own}


def queue(deployment: Deployment) -> dict[str, str]:
    """Kueue's label, of the object that makes the pods: https://kueue.sigs.k8s.io/docs/tasks/run/"""
    name = deployment.file.workload.queue
    return {"kueue.x-k8s.io/queue-name": name} if name else {}


def pod_group(deployment: Deployment) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations by which Kueue admits pods of no job all together, or none of them.

    Kueue writes its own over them where its StatefulSet integration is on; where only that for pods is,
    each pod would else be admitted by itself (https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/).
    """
    queued = queue(deployment)
    if not queued or deployment.engine != "statefulset":
        return {}, {}
    return (
        {**queued, "kueue.x-k8s.io/pod-group-name": deployment.name},
        {"kueue.x-k8s.io/pod-group-total-count": str(deployment.nodes)},
    )


def metadata(deployment: Deployment, name: str = "") -> dict[str, Any]:
    """Metadata of an object of the environment."""
    told: dict[str, Any] = {
        "name": name or deployment.name,
        "namespace": deployment.namespace,
        "labels": labels(deployment),
    }
    if description := deployment.file.cluster.description:
        told["annotations"] = {DESCRIPTION: description}
    return {**told, **owned(deployment)}


def owned(deployment: Deployment) -> dict[str, Any]:
    """The part of the metadata by which an object goes with its owner, claims of templates too."""
    return {"ownerReferences": [dict(deployment.owner)]} if deployment.owner else {}
