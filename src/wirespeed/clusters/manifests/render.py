"""All objects of a deployment, in the order in which to apply them."""

from importlib import import_module
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.account import account
from wirespeed.clusters.manifests.claims import claims
from wirespeed.clusters.manifests.labels import MANAGED_BY, OURS
from wirespeed.clusters.manifests.policy import policy
from wirespeed.clusters.manifests.scripts import config_map
from wirespeed.errors import UsageError

__all__ = ["identity", "render"]


def render(deployment: Deployment) -> list[dict[str, Any]]:
    """Plain dicts, as JSON has them; the same deployment gives the same text.

    UsageError where the file asks for what its engine cannot have.
    """
    _refuse_lost(deployment)
    engine = import_module(f"wirespeed.clusters.manifests.{deployment.engine}")
    made: list[dict[str, Any]] = engine.objects(deployment)
    return [
        *_namespace(deployment),
        *account(deployment),
        config_map(deployment),
        *claims(deployment),
        *policy(deployment),
        *made,
    ]


def identity(made: dict[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace (empty for what has none) and name."""
    told = made["metadata"]
    return made["kind"], told.get("namespace", ""), told["name"]


def _refuse_lost(deployment: Deployment) -> None:
    """Nothing that a file asks for is left out in silence."""
    if deployment.engine != "statefulset" and deployment.file.workload.service_annotations:
        raise UsageError(
            f"workload.service_annotations: the operator makes the Service of a {deployment.engine}",
            expected="no such key, or the engine statefulset",
        )


def _namespace(deployment: Deployment) -> list[dict[str, Any]]:
    """Without the environment's name: others may live there, too."""
    if not deployment.file.cluster.create_namespace:
        return []
    marked = {**deployment.file.workload.labels, MANAGED_BY: OURS}
    told = {"name": deployment.namespace, "labels": marked}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": told}]
