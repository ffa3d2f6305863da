"""The pod that ranks run in, the nodes it may run on, and its account.

Its process only waits; ranks are started in it by `kubectl exec`.

Volumes of a pod, where its container mounts them, and the claims behind them.

Claims are shared by all pods (rwx), or made from a template for each pod.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from wirespeed.clusters import manifests
from wirespeed.clusters.deployment import CONTAINER, Deployment
from wirespeed.clusters.file import Toleration, Volume
from wirespeed.clusters.manifests import manifest, selector


def claim_sizes(deployment: Deployment) -> dict[str, str]:
    """Size by volume name; each is mounted at /NAME."""
    storage = deployment.file.storage
    sizes = {"workspace": storage.workspace_size, "datasets": storage.datasets_size}
    return {name: size for name, size in sizes.items() if size}


def claim_name(deployment: Deployment, volume: str) -> str:
    return f"{deployment.name}-{volume}"


def claims(deployment: Deployment) -> list[dict[str, Any]]:
    """Those that all pods share; none in the other modes."""
    storage, api, kind = deployment.file.storage, "v1", "PersistentVolumeClaim"
    if storage.mode != "rwx":
        return []
    specs = {
        claim_name(deployment, name): _claim_spec("ReadWriteMany", size, storage.class_rwx)
        for name, size in claim_sizes(deployment).items()
    }
    return [manifest(api, kind, deployment, name, spec=spec) for name, spec in specs.items()]


def templates(deployment: Deployment) -> list[dict[str, Any]]:
    """Of a StatefulSet; the claims are NAME-of-volume, then NAME-of-pod."""
    if deployment.file.storage.mode != "volumeClaimTemplates":
        return []
    sizes = claim_sizes(deployment)
    return [
        template(deployment, size, {"name": name, **manifests.owned(deployment)})
        for name, size in sizes.items()
    ]


def template(deployment: Deployment, size: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """One claim of each pod's own; more: of its metadata."""
    return {
        "metadata": {**more, "labels": manifests.labels(deployment)},
        "spec": _claim_spec("ReadWriteOnce", size, deployment.file.storage.class_rwo),
    }


def _claim_spec(access: str, size: str, storage_class: str) -> dict[str, Any]:
    """Without a class the cluster's default one is taken."""
    spec: dict[str, Any] = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class} if storage_class else spec


_PODINFO = "/etc/podinfo"
"""Labels of the pod by the downward API; Kubernetes copies the node's zone there from 1.35 on."""
_READ_ONLY = ("scripts", "podinfo")
_OURS = {"scripts": manifests.MOUNT, "podinfo": _PODINFO, "shm": "/dev/shm"}


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """The pod's volumes; those that a StatefulSet makes from its templates are not among them."""
    file = deployment.file
    shm = {"medium": "Memory", "sizeLimit": file.workload.shm_size}
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    return [
        *(_stored(deployment, name, size) for name, size in _needed(deployment).items()),
        {"name": "scripts", "configMap": {"name": manifests.scripts_name(deployment)}},
        {"name": "podinfo", "downwardAPI": {"items": [labels]}},
        {"name": "shm", "emptyDir": shm},
        *({"name": volume.name, **_source(volume)} for volume in _more(deployment)),
    ]


def mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """The same for the container, templates included."""
    ours = {**{name: f"/{name}" for name in claim_sizes(deployment)}, **_OURS}
    more = _more(deployment)
    replaced = _paths(more)
    rows = [(name, path, name in _READ_ONLY) for name, path in ours.items() if path not in replaced]
    rows += [(one.name, one.mount_path, one.read_only) for one in more]
    return [
        {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
        for name, path, read_only in rows
    ]


def files_own(deployment: Deployment) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts that the file names and nobody writes to, such as where its Python lies."""
    found = [one for one in deployment.file.workload.volumes if one.read_only]
    mounted = [{"name": one.name, "mountPath": one.mount_path, "readOnly": True} for one in found]
    return [{"name": one.name, **_source(one)} for one in found], mounted


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
    # The API server gives the claim its name, and refuses any other.
    made = template(deployment, size, {})
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
        for one in deployment.preset.volumes
        if one.name not in names and not paths & _paths([one])
    ]
    return [*kept, *own]


def _paths(found: Iterable[Volume]) -> set[str]:
    return {posixpath.normpath(one.mount_path) for one in found}


def _source(volume: Volume) -> dict[str, Any]:
    """As Kubernetes writes the one source that is said."""
    said = ((kind, key, getattr(volume, name)) for name, (kind, key) in _SOURCES.items())
    return next({kind: {key: value}} for kind, key, value in said if value)


_SOURCES = {
    "claim": ("persistentVolumeClaim", "claimName"),
    "config_map": ("configMap", "name"),
    "secret": ("secret", "secretName"),
    "host_path": ("hostPath", "path"),
    "empty_dir": ("emptyDir", "sizeLimit"),
}


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
    if deployment.file.nodes.same_zone or deployment.preset.same_zone:
        return {"podAffinity": _required(deployment, _ZONE), **apart}
    return apart


def _required(deployment: Deployment, topology: str) -> dict[str, Any]:
    term = {
        "labelSelector": {"matchLabels": selector(deployment.name)},
        "topologyKey": topology,
    }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _spread(deployment: Deployment) -> list[dict[str, Any]]:
    key = deployment.file.nodes.spread_over or deployment.preset.spread_over
    spread = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(deployment.name)},
    }
    return [spread] if key else []


def _tolerations(deployment: Deployment) -> list[dict[str, Any]]:
    """GPU nodes bear a taint named as the resource where they are kept for those who ask for GPUs."""
    gpu = {"key": deployment.file.gpus.resource, "operator": "Exists"}
    found = [gpu] if deployment.gpus else []
    return [*found, *(_toleration(one) for one in deployment.file.nodes.tolerations)]


def _toleration(one: Toleration) -> dict[str, Any]:
    told = {**one.model_dump(), "tolerationSeconds": one.toleration_seconds}
    del told["toleration_seconds"]
    return {key: part for key, part in told.items() if part not in ("", None)}


_READY = """\
test -w /workspace && exit
echo "/workspace cannot be written: see security.run_as_user and security.fs_group"
exit 1
"""
"""What it says stands in the pod's events."""
_ALIVE = "kill -0 1"


def pod_template(deployment: Deployment, *, role: str = "ranks") -> dict[str, Any]:
    """Metadata and spec; `role` is the label app.kubernetes.io/component."""
    grouped, counted = manifests.pod_group(deployment)
    annotations = {
        **manifests.network_annotations(deployment),
        **deployment.file.workload.annotations,
        **counted,
    }
    metadata: dict[str, Any] = {"labels": {**manifests.labels(deployment, role), **grouped}}
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
        "containers": [_container(deployment), *map(dict, deployment.preset.sidecars)],
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
        "command": list(manifests.START),
        "env": manifests.environment(deployment),
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
    whole = {file.gpus.resource: deployment.gpus, **manifests.extended_resources(deployment)}
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
    if deployment.file.security.ipc_lock or deployment.preset.ipc_lock:
        capabilities["add"] = ["IPC_LOCK"]
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def account_name(deployment: Deployment) -> str:
    return deployment.file.security.service_account or deployment.name


def account(deployment: Deployment) -> list[dict[str, Any]]:
    """An account without rights, unless the file names one; the SCC's binding where it is asked."""
    found: list[dict[str, Any]] = []
    if not deployment.file.security.service_account:
        found.append(
            manifest("v1", "ServiceAccount", deployment, automountServiceAccountToken=False)
        )
    if deployment.file.security.requires_privileged_scc:
        found.append(_privileged(deployment))
    return found


def _privileged(deployment: Deployment) -> dict[str, Any]:
    """What `oc adm policy add-scc-to-user privileged -z ACCOUNT` makes.

    https://docs.redhat.com/en/documentation/openshift_container_platform/4.17/html/authentication_and_authorization/managing-pod-security-policies
    """
    subject = {
        "kind": "ServiceAccount",
        "name": account_name(deployment),
        "namespace": deployment.namespace,
    }
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:openshift:scc:privileged",
    }
    api, name = "rbac.authorization.k8s.io/v1", f"{deployment.name}-privileged-scc"
    return manifest(api, "RoleBinding", deployment, name, roleRef=role, subjects=[subject])
