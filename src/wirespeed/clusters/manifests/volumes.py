"""Volumes of a pod and where its container mounts them."""

import posixpath
from collections.abc import Iterable
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file.model import Volume
from wirespeed.clusters.manifests.claims import claim_name, claim_sizes, template
from wirespeed.clusters.manifests.fabric import preset_of
from wirespeed.clusters.manifests.scripts import MOUNT, scripts_name

__all__ = ["mounts", "volumes"]

_PODINFO = "/etc/podinfo"
"""Labels of the pod by the downward API; Kubernetes copies the node's zone there from 1.35 on."""
_OURS = {"scripts": MOUNT, "podinfo": _PODINFO, "shm": "/dev/shm"}


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """The pod's volumes; those that a StatefulSet makes from its templates are not among them."""
    file = deployment.file
    shm = {"medium": "Memory", "sizeLimit": file.workload.shm_size}
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    return [
        *(_stored(deployment, name, size) for name, size in _needed(deployment).items()),
        {"name": "scripts", "configMap": {"name": scripts_name(deployment)}},
        {"name": "podinfo", "downwardAPI": {"items": [labels]}},
        {"name": "shm", "emptyDir": shm},
        *({"name": volume.name, **_source(volume)} for volume in _more(deployment)),
    ]


def mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """The same for the container, templates included."""
    read_only = {"scripts", "podinfo"}
    ours = {**{name: f"/{name}" for name in claim_sizes(deployment)}, **_OURS}
    more = _more(deployment)
    replaced = _paths(more)
    found = [
        {"name": name, "mountPath": path, **({"readOnly": True} if name in read_only else {})}
        for name, path in ours.items()
        if path not in replaced
    ]
    for volume in more:
        mount: dict[str, Any] = {"name": volume.name, "mountPath": volume.mount_path}
        found.append({**mount, "readOnly": True} if volume.read_only else mount)
    return found


def _needed(deployment: Deployment) -> dict[str, str]:
    """Size by name of what comes from the pod's own volumes, not from a StatefulSet's templates."""
    storage = deployment.file.storage
    if storage.mode == "volumeClaimTemplates" and deployment.engine == "statefulset":
        return {}
    replaced = _paths(_more(deployment))
    sizes = claim_sizes(deployment)
    return {name: size for name, size in sizes.items() if f"/{name}" not in replaced}


def _stored(deployment: Deployment, name: str, size: str) -> dict[str, Any]:
    mode = deployment.file.storage.mode
    if mode == "rwx":
        claim = claim_name(deployment, name)
        return {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    if mode == "none":
        return {"name": name, "emptyDir": {"sizeLimit": size}}
    made = template(deployment, name, size)
    del made["metadata"]["name"]  # the API server gives it, and refuses any other
    return {"name": name, "ephemeral": {"volumeClaimTemplate": made}}


def _more(deployment: Deployment) -> list[Volume]:
    """The preset's volumes and the file's, which replace those of the same name or path.

    The model has refused what would hide ours. A volume at /workspace or /datasets takes the place of
    the node-local folder, where the storage mode is none.
    """
    own = deployment.file.workload.volumes
    names, paths = {one.name for one in own}, _paths(own)
    kept = [
        one
        for one in preset_of(deployment).volumes
        if one.name not in names and not paths & _paths([one])
    ]
    return [*kept, *own]


def _paths(found: Iterable[Volume]) -> set[str]:
    return {posixpath.normpath(one.mount_path) for one in found}


def _source(volume: Volume) -> dict[str, Any]:
    """As Kubernetes writes the one source that is said."""
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.config_map:
        return {"configMap": {"name": volume.config_map}}
    if volume.secret:
        return {"secret": {"secretName": volume.secret}}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path}}
    return {"emptyDir": {"sizeLimit": volume.empty_dir}}
