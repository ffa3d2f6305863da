"""NetworkPolicy: what reaches the pods. What they reach (names, storage, registries) stays free."""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.labels import metadata, selector

__all__ = ["policy"]


def policy(deployment: Deployment) -> list[dict[str, Any]]:
    """Reached by each other only, pods choose their own ports: so do NCCL and gloo."""
    if not deployment.file.network.policy:
        return []
    ours = {"podSelector": {"matchLabels": selector(deployment.name)}}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(deployment),
            "spec": {**ours, "policyTypes": ["Ingress"], "ingress": [{"from": [ours]}]},
        }
    ]
