"""A JobSet (jobset.x-k8s.io/v1alpha2) of one indexed Job: a pod's rank is its completion index.

https://jobset.sigs.k8s.io/docs/concepts/. Kubernetes has indexed Jobs from 1.21 on (on by default
from 1.22, stable in 1.24): `life/operators.py` says so where the server is older. JobSet makes the
headless Service itself.
"""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.addresses import REPLICATED_JOB
from wirespeed.clusters.manifests.labels import labels, metadata, queue
from wirespeed.clusters.manifests.pod import pod_template

__all__ = ["network", "objects", "replicated_job"]

_REPLACED = 100
"""An environment outlives this many restarts and lost pods, as it would as a StatefulSet."""


def objects(deployment: Deployment) -> list[dict[str, Any]]:
    """The JobSet."""
    told = metadata(deployment)
    queued = queue(deployment)
    told["labels"] = {**told["labels"], **queued}
    group = REPLICATED_JOB["jobset"]
    spec: dict[str, Any] = {
        "network": network(deployment),
        "coordinator": {"replicatedJob": group, "jobIndex": 0, "podIndex": 0},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [replicated_job(deployment, group)],
    }
    if queued:
        spec["suspend"] = True
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": told}
    return [{**made, "spec": spec}]


def network(deployment: Deployment) -> dict[str, Any]:
    """Pods find each other by HOSTNAME.SERVICE before any of them is ready."""
    return {
        "enableDNSHostnames": True,
        "publishNotReadyAddresses": True,
        "subdomain": deployment.service,
    }


def replicated_job(
    deployment: Deployment, name: str, extra: dict[str, str] | None = None
) -> dict[str, Any]:
    """One indexed Job with a pod a node; `extra` are labels of the Job."""
    pods = pod_template(deployment)
    pods["spec"]["restartPolicy"] = "OnFailure"
    job = {
        "completionMode": "Indexed",
        "parallelism": deployment.nodes,
        "completions": deployment.nodes,
        "backoffLimit": _REPLACED,
        "template": pods,
    }
    told = {"labels": {**labels(deployment), **(extra or {})}}
    return {"name": name, "replicas": 1, "template": {"metadata": told, "spec": job}}
