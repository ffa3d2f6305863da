"""An MPIJob (kubeflow.org/v2beta1): workers that run sshd, and a launcher that mpirun starts in.

https://github.com/kubeflow/mpi-operator (0.5 and later: before, workers lay below another Service).
The operator makes the Service, the hostfile (/etc/mpi/hostfile) and the key pair itself; the
variables of a worker's container are not those of ranks that mpirun starts there by ssh, so that the
fabric's go along with `-x` (`mpirun_words`).
"""

from collections.abc import Sequence
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.addresses import slots
from wirespeed.clusters.manifests.environment import escaped, variables
from wirespeed.clusters.manifests.fabric import extended_resources, network_annotations
from wirespeed.clusters.manifests.labels import metadata, queue
from wirespeed.clusters.manifests.pod import pod_template
from wirespeed.clusters.manifests.scripts import LAUNCHER, SSH_PORT, START, WORKER

__all__ = ["JOB_NAME", "JOB_ROLE", "job", "mpirun_words", "objects"]

JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
"""Labels that the operator gives its pods; the role is `launcher` or `worker`."""

_COMPONENT = "app.kubernetes.io/component"
_KEYS = "/etc/wirespeed-ssh"
"""Where the operator mounts its key pair: any user may read it there."""
_HOSTFILE = "/etc/mpi/hostfile"
_SSHD = ("AUDIT_WRITE", "SETGID", "SETUID", "SYS_CHROOT")
"""Capabilities of an sshd that runs as root: it parts from its rights before a login."""
_LAUNCHERS = {"cpu": "1", "memory": "2Gi"}
"""Of a launcher, which only starts others, where the file says anything of a pod's."""


def objects(deployment: Deployment) -> list[dict[str, Any]]:
    """An environment: its launcher waits, and `sh /etc/wirespeed/launcher mpirun …` runs in it."""
    return [job(deployment, START, restart="OnFailure")]


def job(
    deployment: Deployment, command: Sequence[str], *, restart: str = "Never"
) -> dict[str, Any]:
    """An MPIJob whose launcher runs `command`; `restart` is its pods' policy: Never or OnFailure."""
    told = metadata(deployment)
    queued = queue(deployment)
    told["labels"] = {**told["labels"], **queued}
    policy: dict[str, Any] = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    if queued:
        policy["suspend"] = True
    launcher, worker = _launcher(deployment, command), _worker(deployment)
    spec = {
        "slotsPerWorker": slots(deployment),
        "mpiImplementation": "OpenMPI",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "sshAuthMountPath": _KEYS,
        "runPolicy": policy,
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": restart, "template": launcher},
            "Worker": {"replicas": deployment.nodes, "restartPolicy": restart, "template": worker},
        },
    }
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": told, "spec": spec}


def mpirun_words(deployment: Deployment, program: Sequence[str]) -> tuple[str, ...]:
    """A launcher's command that runs `program` as one rank a GPU (a pod, where there is none)."""
    ranks = deployment.nodes * slots(deployment)
    names = ("LD_LIBRARY_PATH", *variables(deployment))
    handed = [word for name in names for word in ("-x", name)]
    words = ["mpirun", "-np", str(ranks), "--hostfile", _HOSTFILE, "--bind-to", "none", *handed]
    return (*LAUNCHER, *words, *program)


def _worker(deployment: Deployment) -> dict[str, Any]:
    """A pod of ranks with sshd as its process; it keeps away from other workers only."""
    made = pod_template(deployment)
    container = made["spec"]["containers"][0]
    container["command"] = list(WORKER)
    _add_keys(container)
    container["ports"].append({"name": "ssh", "containerPort": SSH_PORT, "protocol": "TCP"})
    container["readinessProbe"] = {"tcpSocket": {"port": SSH_PORT}, "periodSeconds": 2}
    if not deployment.file.security.run_as_user:
        capabilities = container["securityContext"]["capabilities"]
        capabilities["add"] = sorted({*capabilities.get("add", ()), *_SSHD})
    affinity = made["spec"]["affinity"]
    for term in affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]:
        # The launcher has a place beside a worker, or two nodes would need a third.
        labels = {**term["labelSelector"]["matchLabels"], _COMPONENT: "ranks"}
        term["labelSelector"] = {"matchLabels": labels}
    return made


def _launcher(deployment: Deployment, command: Sequence[str]) -> dict[str, Any]:
    """The same pod without GPUs, fast networks and sidecars, on any of its nodes."""
    made = pod_template(deployment, role="launcher")
    annotations = made["metadata"].pop("annotations", {})
    for name in network_annotations(deployment).keys() & annotations.keys():
        del annotations[name]
    if annotations:
        made["metadata"]["annotations"] = annotations
    spec = made["spec"]
    del spec["affinity"]["podAntiAffinity"]
    if not spec["affinity"]:
        del spec["affinity"]
    spec.pop("topologySpreadConstraints", None)
    container = spec["containers"][0]
    spec["containers"] = [container]
    container["command"] = [escaped(word) for word in command]
    container.pop("readinessProbe")
    _add_keys(container)
    _shrink(deployment, container)
    return made


def _add_keys(container: dict[str, Any]) -> None:
    container["env"] = [*container["env"], {"name": "WIRESPEED_SSH", "value": _KEYS}]


def _shrink(deployment: Deployment, container: dict[str, Any]) -> None:
    """No extended resource, and little of what the file asks for each pod."""
    extended = {deployment.file.gpus.resource, *extended_resources(deployment)}
    asked = container.pop("resources", {})
    small = {
        side: {name: _LAUNCHERS.get(name, amount) for name, amount in amounts.items()}
        for side, of in asked.items()
        if (amounts := {name: amount for name, amount in of.items() if name not in extended})
    }
    if small:
        container["resources"] = small
