"""A TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1) with a runtime of its own.

https://www.kubeflow.org/docs/components/trainer/. The runtime lies in the job's namespace, so that
nobody needs rights in the whole cluster; it says how many nodes, and nothing of torch: its pods wait
for ranks, and `. /etc/wirespeed/environment` gives torchrun its options. Trainer makes a JobSet of
the two, of the TrainJob's name.
"""

from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.addresses import REPLICATED_JOB
from wirespeed.clusters.manifests.jobset import network, replicated_job
from wirespeed.clusters.manifests.labels import metadata, queue

__all__ = ["objects"]

_GROUP = "trainer.kubeflow.org"
_API = f"{_GROUP}/v1alpha1"
_STEP = {f"{_GROUP}/trainjob-ancestor-step": "trainer"}
"""By this label Trainer knows which Job the node count is of."""


def objects(deployment: Deployment) -> list[dict[str, Any]]:
    """The TrainingRuntime, then the TrainJob that refers to it."""
    return [_runtime(deployment), _job(deployment)]


def _runtime(deployment: Deployment) -> dict[str, Any]:
    told = metadata(deployment)
    told["labels"] = {**told["labels"], f"{_GROUP}/framework": "torch"}
    group = replicated_job(deployment, REPLICATED_JOB["trainjob"], _STEP)
    template = {
        "network": network(deployment),
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [group],
    }
    spec = {"mlPolicy": {"numNodes": deployment.nodes}, "template": {"spec": template}}
    return {"apiVersion": _API, "kind": "TrainingRuntime", "metadata": told, "spec": spec}


def _job(deployment: Deployment) -> dict[str, Any]:
    told = metadata(deployment)
    queued = queue(deployment)
    told["labels"] = {**told["labels"], **queued}
    spec: dict[str, Any] = {
        "runtimeRef": {"apiGroup": _GROUP, "kind": "TrainingRuntime", "name": deployment.name},
        "trainer": {"numNodes": deployment.nodes},
    }
    if queued:
        spec["suspend"] = True
    return {"apiVersion": _API, "kind": "TrainJob", "metadata": told, "spec": spec}
