"""A regular check as Kubernetes' CronJob, from a cluster file: pure.

https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/, and for the names of the pods of an
indexed Job https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode. The scheduler
chooses the nodes, those with room for it; by its priority class any other pod may take them.
"""

import math
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests import config_map, escaped, manifest, slots
from wirespeed.clusters.manifests.pod import account, claims, pod_template
from wirespeed.clusters.manifests.render import policy, service
from wirespeed.fleet.plan import seconds
from wirespeed.fleet.regular import ROOM

KEPT = 3
"""Jobs that ended whose logs can still be read."""


def objects(deployment: Deployment, at: str) -> list[dict[str, Any]]:
    """What it needs, then the CronJob. at: the five fields of cron, in the controller's time zone."""
    parts = [*account(deployment), config_map(deployment), *claims(deployment), *policy(deployment)]
    return [*parts, service(deployment), _cronjob(deployment, at)]


def _cronjob(deployment: Deployment, at: str) -> dict[str, Any]:
    pods = pod_template(deployment)
    spec = pods["spec"]
    spec["restartPolicy"] = "Never"
    spec["subdomain"] = deployment.service
    container = spec["containers"][0]
    container["command"] = ["/bin/sh", "-ec", escaped(_program(deployment))]
    for probe in ("readinessProbe", "livenessProbe"):  # of a pod that waits for ranks
        container.pop(probe, None)
    job = {
        "completionMode": "Indexed",
        "parallelism": deployment.nodes,
        "completions": deployment.nodes,
        "backoffLimit": 0,
        "activeDeadlineSeconds": math.ceil(ROOM * seconds(deployment.nodes)),
        "template": pods,
    }
    told = {
        "schedule": at,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": KEPT,
        "failedJobsHistoryLimit": KEPT,
        "jobTemplate": {"metadata": {"labels": pods["metadata"]["labels"]}, "spec": job},
    }
    return manifest("batch/v1", "CronJob", deployment, queued=True, spec=told)


def _program(deployment: Deployment) -> str:
    """The Job has a name of its own each time, and so has its first pod."""
    python = deployment.file.workload.python
    each = slots(deployment)
    over = " --over rails" if each > 1 else ""
    domain = f"{deployment.service}.{deployment.namespace}.svc"
    return "\n".join(
        [
            ". /etc/wirespeed/environment",
            "read -r own < /proc/sys/kernel/hostname",
            f'export MASTER_ADDR="${{own%-*}}-0.{domain}"',
            f"exec {python} -m torch.distributed.run --nnodes {deployment.nodes} "
            f'--nproc-per-node {each} --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" '
            f'--master-port "$MASTER_PORT" -m wirespeed locate --exhaustive{over}',
        ]
    )
