"""The StatefulSet: its pods keep their names, so the rank of a node is the ordinal of its pod."""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.claims import templates
from wirespeed.clusters.manifests.labels import metadata, queue, selector
from wirespeed.clusters.manifests.pod import pod_template
from wirespeed.clusters.manifests.service import service

__all__ = ["objects"]


def objects(deployment: Deployment) -> list[dict[str, Any]]:
    """The headless Service and the StatefulSet."""
    told = metadata(deployment)
    told["labels"] = {**told["labels"], **queue(deployment)}
    owned = templates(deployment)
    spec: dict[str, Any] = {
        "replicas": deployment.nodes,
        "serviceName": deployment.service,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector(deployment.name)},
        "template": pod_template(deployment),
        **({"volumeClaimTemplates": owned} if owned else {}),
    }
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": told, "spec": spec}
    return [service(deployment), made]
