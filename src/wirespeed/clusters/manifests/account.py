"""The pods' ServiceAccount, and the one right that some need on OpenShift."""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.labels import metadata

__all__ = ["account", "account_name"]


def account_name(deployment: Deployment) -> str:
    return deployment.file.security.service_account or deployment.name


def account(deployment: Deployment) -> list[dict[str, Any]]:
    """An account without rights, unless the file names one; the SCC's binding where it is asked."""
    found: list[dict[str, Any]] = []
    if not deployment.file.security.service_account:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": metadata(deployment),
                "automountServiceAccountToken": False,
            }
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
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(deployment, f"{deployment.name}-privileged-scc"),
        "roleRef": role,
        "subjects": [subject],
    }
