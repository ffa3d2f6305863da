"""The pod that ranks run in: its process only waits; ranks are started in it by `kubectl exec`."""

from typing import Any

from wirespeed.clusters.deployment import CONTAINER, Deployment
from wirespeed.clusters.manifests.account import account_name
from wirespeed.clusters.manifests.environment import environment
from wirespeed.clusters.manifests.fabric import extended_resources, network_annotations, preset_of
from wirespeed.clusters.manifests.labels import labels, pod_group
from wirespeed.clusters.manifests.placement import placement
from wirespeed.clusters.manifests.scripts import START
from wirespeed.clusters.manifests.volumes import mounts, volumes

__all__ = ["pod_template"]

_READY = """\
test -w /workspace && exit
echo "/workspace cannot be written: see security.run_as_user and security.fs_group"
exit 1
"""
"""What it says stands in the pod's events."""
_ALIVE = "kill -0 1"


def pod_template(deployment: Deployment, *, role: str = "ranks") -> dict[str, Any]:
    """Metadata and spec; `role` is the label app.kubernetes.io/component."""
    grouped, counted = pod_group(deployment)
    annotations = {
        **network_annotations(deployment),
        **deployment.file.workload.annotations,
        **counted,
    }
    metadata: dict[str, Any] = {"labels": {**labels(deployment, role), **grouped}}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _spec(deployment)}


def _spec(deployment: Deployment) -> dict[str, Any]:
    workload = deployment.file.workload
    optional = {
        "imagePullSecrets": [{"name": name} for name in workload.image_pull_secrets],
        "priorityClassName": workload.priority_class,
        "schedulerName": workload.scheduler,
        "runtimeClassName": workload.runtime_class,
    }
    return {
        "serviceAccountName": account_name(deployment),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": workload.termination_grace_s,
        "securityContext": _pod_security(deployment),
        **{key: part for key, part in optional.items() if part},
        **placement(deployment),
        "containers": [_container(deployment), *map(dict, preset_of(deployment).sidecars)],
        "volumes": volumes(deployment),
    }


def _container(deployment: Deployment) -> dict[str, Any]:
    workload = deployment.file.workload
    port = deployment.file.network.port
    secrets = [{"secretRef": {"name": name}} for name in workload.env_from_secrets]
    return {
        "name": CONTAINER,
        "image": workload.image,
        "imagePullPolicy": workload.image_pull_policy,
        "command": list(START),
        "env": environment(deployment),
        **({"envFrom": secrets} if secrets else {}),
        "ports": [{"name": "master", "containerPort": port, "protocol": "TCP"}],
        **_resources(deployment),
        "readinessProbe": _probe(_READY, every_s=5, within_s=10, failures=3),
        "livenessProbe": _probe(_ALIVE, every_s=60, within_s=30, failures=5),
        "securityContext": _security(deployment),
        "volumeMounts": mounts(deployment),
    }


def _resources(deployment: Deployment) -> dict[str, Any]:
    """Extended resources cannot be overcommitted: requests equal limits.

    Quantities are strings: server-side apply of Kubernetes 1.20 refuses numbers.
    """
    file = deployment.file
    whole = {file.gpus.resource: deployment.gpus, **extended_resources(deployment)}
    extended = {name: str(count) for name, count in whole.items() if count}
    found = {
        side: {**{name: amount for name, amount in amounts if amount}, **extended}
        for side, amounts in (
            ("requests", file.resources.requests),
            ("limits", file.resources.limits),
        )
    }
    filled = {side: amounts for side, amounts in found.items() if amounts}
    return {"resources": filled} if filled else {}


def _probe(script: str, *, every_s: int, within_s: int, failures: int) -> dict[str, Any]:
    return {
        "exec": {"command": ["/bin/sh", "-c", script]},
        "periodSeconds": every_s,
        "timeoutSeconds": within_s,
        "failureThreshold": failures,
    }


def _pod_security(deployment: Deployment) -> dict[str, Any]:
    security = deployment.file.security
    found: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if security.run_as_user is not None:
        found["runAsUser"] = security.run_as_user
        found["runAsNonRoot"] = security.run_as_user > 0
    if security.fs_group is not None:
        found["fsGroup"] = security.fs_group
        found["fsGroupChangePolicy"] = "OnRootMismatch"
    return found


def _security(deployment: Deployment) -> dict[str, Any]:
    """Nothing but what was asked: RDMA may need to lock more memory than the limit allows."""
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if deployment.file.security.ipc_lock or preset_of(deployment).ipc_lock:
        capabilities["add"] = ["IPC_LOCK"]
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}
