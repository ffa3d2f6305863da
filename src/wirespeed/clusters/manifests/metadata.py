"""Names, labels and host names of the objects of a deployment.

Names and labels of what we make: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/

Where each engine's pods are: host names in the order of their ranks, and the first one's address.

A pod is `HOSTNAME.SERVICE` in DNS. What names it, by engine:

- statefulset: https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#stable-network-id
- mpijob: kubeflow/mpi-operator from 0.5 on, pkg/controller/mpi_job_controller.go (`workerName`,
  `newJobService`): workers `NAME-worker-N` below a headless Service of the job's name
- jobset: JobSet's API, `network`: `NAME-REPLICATEDJOB-JOBINDEX-PODINDEX` below a headless Service
  of the JobSet's name; trainjob: the JobSet that Kubeflow Trainer makes of it has the job's name
"""

from typing import Any

from wirespeed.clusters.deployment import Deployment

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
OURS = "wirespeed"
"""Value of `managed-by` on all that we make; what lacks it belongs to somebody else."""
DESCRIPTION = "wirespeed/description"


def selector(name: str) -> dict[str, str]:
    """What tells the pods of one environment from all others in the namespace."""
    return {INSTANCE: name, "app.kubernetes.io/name": OURS}


def selector_text(name: str) -> str:
    """The same for `kubectl get -l`."""
    return ",".join(f"{key}={value}" for key, value in selector(name).items())


def labels(deployment: Deployment, component: str = "ranks") -> dict[str, str]:
    """Of every object; the user's own cannot change ours."""
    own = {**selector(deployment.name), MANAGED_BY: OURS, "app.kubernetes.io/component": component}
    return {**deployment.file.workload.labels, **own}


def queue(deployment: Deployment) -> dict[str, str]:
    """Kueue's label, of the object that makes the pods: https://kueue.sigs.k8s.io/docs/tasks/run/"""
    name = deployment.file.workload.queue
    return {"kueue.x-k8s.io/queue-name": name} if name else {}


def pod_group(deployment: Deployment) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations by which Kueue admits pods of no job all together, or none of them.

    Kueue writes its own over them where its StatefulSet integration is on; where only that for pods is,
    each pod would else be admitted by itself (https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/).
    """
    queued = queue(deployment)
    if not queued or deployment.engine != "statefulset":
        return {}, {}
    return (
        {**queued, "kueue.x-k8s.io/pod-group-name": deployment.name},
        {"kueue.x-k8s.io/pod-group-total-count": str(deployment.nodes)},
    )


def manifest(
    api: str,
    kind: str,
    deployment: Deployment,
    name: str = "",
    *,
    queued: bool = False,
    **parts: Any,
) -> dict[str, Any]:
    """An object of the environment; `parts` are its keys beside apiVersion, kind and metadata.

    queued: it makes the pods, so it is what Kueue admits.
    """
    made: dict[str, Any] = {"apiVersion": api, "kind": kind, "metadata": metadata(deployment, name)}
    if queued:
        made["metadata"]["labels"] |= queue(deployment)
    return {**made, **parts}


def metadata(deployment: Deployment, name: str = "") -> dict[str, Any]:
    """Metadata of an object of the environment; no name: the environment's own."""
    told: dict[str, Any] = {
        "name": name or deployment.name,
        "namespace": deployment.namespace,
        "labels": labels(deployment),
    }
    if description := deployment.file.cluster.description:
        told["annotations"] = {DESCRIPTION: description}
    return {**told, **owned(deployment)}


def owned(deployment: Deployment) -> dict[str, Any]:
    """The part of the metadata by which an object goes with its owner, claims of templates too."""
    return {"ownerReferences": [dict(deployment.owner)]} if deployment.owner else {}


REPLICATED_JOB = {"jobset": "ranks", "trainjob": "node"}
"""The one group of pods; Kubeflow Trainer calls its own `node`."""


def hosts(deployment: Deployment) -> tuple[str, ...]:
    """`HOSTNAME.SERVICE` of each pod, by rank of the node."""
    stem = _stem(deployment)
    return tuple(f"{stem}-{index}.{deployment.service}" for index in range(deployment.nodes))


def master(deployment: Deployment) -> str:
    """MASTER_ADDR: the first pod's name in DNS, for any pod of the cluster."""
    return f"{_stem(deployment)}-0.{deployment.service}.{deployment.namespace}.svc"


def slots(deployment: Deployment) -> int:
    """Ranks a pod: one a GPU, or one where there are none."""
    return max(1, deployment.gpus)


def _stem(deployment: Deployment) -> str:
    """Host names without the ordinal."""
    if deployment.engine == "mpijob":
        return f"{deployment.name}-worker"
    if group := REPLICATED_JOB.get(deployment.engine):
        return f"{deployment.name}-{group}-0"
    return deployment.name
