"""The headless Service: pods find each other by `POD.SERVICE` before any of them is ready."""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.labels import metadata, selector

__all__ = ["service"]


def service(deployment: Deployment) -> dict[str, Any]:
    """Its port is where ranks meet."""
    port = deployment.file.network.port
    told = metadata(deployment, deployment.service)
    if annotations := deployment.file.workload.service_annotations:
        told["annotations"] = {**annotations, **told.get("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": told,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(deployment.name),
            "ports": [{"name": "master", "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }
