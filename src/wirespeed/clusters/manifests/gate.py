"""The gate as a DaemonSet: one pod a node that tells the node's condition, with least rights.

Its account may read nodes, change their status, and make Events; with the taint also change nodes, since
Kubernetes has no finer right for it. It may read no Secret and make no pod. The container has no
capability, no host network and a root that it cannot write to.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wirespeed.clusters import manifests
from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests import escaped, manifest
from wirespeed.clusters.manifests.pod import files_own

_RBAC = "rbac.authorization.k8s.io"
_HOME = "/var/lib/wirespeed"
_ANY_USER = 65_532


def gate_objects(
    deployment: Deployment, words: Sequence[str], *, taint: bool
) -> list[dict[str, Any]]:
    """All objects, in the order in which to apply them: an environment of its own, NAME-gate.

    words: of `wirespeed gate`.
    """
    file = deployment.file
    own = file.cluster.but(name=f"{deployment.name}-gate")
    deployment = replace(deployment, file=file.but(cluster=own))
    name = deployment.name
    whole = f"{deployment.namespace}-{name}"
    who = {"kind": "ServiceAccount", "name": name, "namespace": deployment.namespace}
    nodes = [_rule("nodes", "get", "list"), _rule("nodes/status", "patch")]
    nodes += [_rule("nodes", "patch")] if taint else []
    events = [_rule("events", "create")]
    return [
        manifest("v1", "ServiceAccount", deployment, automountServiceAccountToken=False),
        *_granted(deployment, "ClusterRole", whole, nodes, who, namespace=""),
        *_granted(deployment, "Role", whole, events, who, namespace="default"),
        manifest("apps/v1", "DaemonSet", deployment, spec=_spec(deployment, words)),
    ]


def _rule(resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}


def _granted(
    deployment: Deployment,
    kind: str,
    name: str,
    rules: list[dict[str, Any]],
    who: dict[str, str],
    *,
    namespace: str,
) -> list[dict[str, Any]]:
    """A role and its binding; namespace: empty for the whole cluster."""
    role = manifest(f"{_RBAC}/v1", kind, deployment, name, rules=rules)
    to = {"apiGroup": _RBAC, "kind": kind, "name": name}
    binding = manifest(
        f"{_RBAC}/v1", f"{kind}Binding", deployment, name, roleRef=to, subjects=[who]
    )
    for one in (role, binding):
        del one["metadata"]["namespace"]
        if namespace:
            one["metadata"]["namespace"] = namespace
    return [role, binding]


def _spec(deployment: Deployment, words: Sequence[str]) -> dict[str, Any]:
    workload = deployment.file.workload
    optional = {
        "nodeSelector": dict(deployment.file.nodes.node_selector),
        "imagePullSecrets": [{"name": one} for one in workload.image_pull_secrets],
        "runtimeClassName": workload.runtime_class,
    }
    volumes, mounts = files_own(deployment)
    asked = deployment.file.security.run_as_user
    user = _ANY_USER if asked is None else asked
    pod = {
        "serviceAccountName": deployment.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsUser": user,
            "runAsNonRoot": user > 0,
            "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{key: part for key, part in optional.items() if part},
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(deployment, words, mounts)],
        "volumes": [
            {"name": "home", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            *volumes,
        ],
    }
    return {
        "selector": {"matchLabels": manifests.selector(deployment.name)},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {"metadata": {"labels": manifests.labels(deployment, "gate")}, "spec": pod},
    }


def _container(
    deployment: Deployment, words: Sequence[str], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    workload = deployment.file.workload
    named = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    told = {"WIRESPEED_HOME": f"{_HOME}/gate", "NVIDIA_VISIBLE_DEVICES": "all", **workload.env}
    told["NVIDIA_DRIVER_CAPABILITIES"] = "utility"
    return {
        "name": "gate",
        "image": workload.image,
        "imagePullPolicy": workload.image_pull_policy,
        "command": [workload.python, "-P", "-m", "wirespeed", "gate", *map(escaped, words)],
        "env": [
            {"name": "NODE_NAME", "valueFrom": named},
            *({"name": key, "value": escaped(value)} for key, value in told.items()),
        ],
        "resources": {
            "requests": {"cpu": "20m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "home", "mountPath": _HOME},
            {"name": "tmp", "mountPath": "/tmp"},
            *mounts,
        ],
    }
