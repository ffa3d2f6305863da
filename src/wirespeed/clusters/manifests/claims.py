"""Claims: shared by all pods (rwx), or a template for each pod's own."""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.labels import labels, metadata, owned

__all__ = ["claim_name", "claim_sizes", "claims", "template", "templates"]


def claim_sizes(deployment: Deployment) -> dict[str, str]:
    """Size by volume name; each is mounted at /NAME."""
    storage = deployment.file.storage
    sizes = {"workspace": storage.workspace_size, "datasets": storage.datasets_size}
    return {name: size for name, size in sizes.items() if size}


def claim_name(deployment: Deployment, volume: str) -> str:
    return f"{deployment.name}-{volume}"


def claims(deployment: Deployment) -> list[dict[str, Any]]:
    """Those that all pods share; none in the other modes."""
    storage = deployment.file.storage
    if storage.mode != "rwx":
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(deployment, claim_name(deployment, name)),
            "spec": _spec("ReadWriteMany", size, storage.class_rwx),
        }
        for name, size in claim_sizes(deployment).items()
    ]


def templates(deployment: Deployment) -> list[dict[str, Any]]:
    """Of a StatefulSet; the claims are NAME-of-volume, then NAME-of-pod."""
    if deployment.file.storage.mode != "volumeClaimTemplates":
        return []
    made = [template(deployment, name, size) for name, size in claim_sizes(deployment).items()]
    return [{**one, "metadata": {**one["metadata"], **owned(deployment)}} for one in made]


def template(deployment: Deployment, name: str, size: str) -> dict[str, Any]:
    """One claim of each pod's own."""
    return {
        "metadata": {"name": name, "labels": labels(deployment)},
        "spec": _spec("ReadWriteOnce", size, deployment.file.storage.class_rwo),
    }


def _spec(access: str, size: str, storage_class: str) -> dict[str, Any]:
    """Without a class the cluster's default one is taken."""
    spec: dict[str, Any] = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class} if storage_class else spec
