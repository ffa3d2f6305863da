"""Where each engine's pods are: host names in the order of their ranks, and the first one's address.

A pod is `HOSTNAME.SERVICE` in DNS. What names it, by engine:

- statefulset: https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#stable-network-id
- mpijob: kubeflow/mpi-operator from 0.5 on, pkg/controller/mpi_job_controller.go (`workerName`,
  `newJobService`): workers `NAME-worker-N` below a headless Service of the job's name
- jobset: JobSet's API, `network`: `NAME-REPLICATEDJOB-JOBINDEX-PODINDEX` below a headless Service
  of the JobSet's name; trainjob: the JobSet that Kubeflow Trainer makes of it has the job's name
"""

from wirespeed.clusters.deployment import Deployment

__all__ = ["REPLICATED_JOB", "hosts", "master", "slots"]

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
