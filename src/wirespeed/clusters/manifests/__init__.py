"""Objects of Kubernetes as plain dicts: pure functions of a deployment.

Names, labels and host names of the objects of a deployment.

Names and labels of what we make: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/

Where each engine's pods are: host names in the order of their ranks, and the first one's address.

A pod is `HOSTNAME.SERVICE` in DNS. What names it, by engine:

- statefulset: https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#stable-network-id
- mpijob: kubeflow/mpi-operator from 0.5 on, pkg/controller/mpi_job_controller.go (`workerName`,
  `newJobService`): workers `NAME-worker-N` below a headless Service of the job's name
- jobset: JobSet's API, `network`: `NAME-REPLICATEDJOB-JOBINDEX-PODINDEX` below a headless Service
  of the JobSet's name; trainjob: the JobSet that Kubeflow Trainer makes of it has the job's name

The ConfigMap NAME-scripts, mounted at /etc/wirespeed in every pod.

    start        what a pod's first process runs: it only waits, so that ranks can be started in it
    worker       the same for an MPI worker: sshd, with the job's key
    launcher     `sh /etc/wirespeed/launcher mpirun …` in an MPIJob's launcher
    environment  `. /etc/wirespeed/environment` in a shell: where this pod stands among the others
    hostfile     `HOST slots=N`, a line a pod

POSIX sh, for any image and user id; `start` and `environment` need no other program than `sleep`.

Environment, resources and annotations that the file and its preset give a pod.

Environment, in a fixed order: what Kubernetes knows of the pod, where ranks meet, everything else by
name. Precedence: workload.env, then what the file says of its network, then the preset, then our
defaults.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.presets import NETWORKS

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
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
    own = {**selector(deployment.name), MANAGED_BY: OURS, COMPONENT: component}
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

    name: empty for the environment's own. queued: it makes the pods, so it is what Kueue admits.
    """
    meta: dict[str, Any] = {
        "name": name or deployment.name,
        "namespace": deployment.namespace,
        "labels": {**labels(deployment), **(queue(deployment) if queued else {})},
    }
    if description := deployment.file.cluster.description:
        meta["annotations"] = {DESCRIPTION: description}
    return {"apiVersion": api, "kind": kind, "metadata": {**meta, **owned(deployment)}, **parts}


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


def extended_resources(deployment: Deployment) -> dict[str, int]:
    """Count of each pod by name, GPUs left out."""
    rdma = deployment.file.network.rdma
    found = dict(deployment.preset.resources)
    if deployment.mode == "rdma" and rdma.resource:
        found[rdma.resource] = rdma.count
    return found


def network_annotations(deployment: Deployment) -> dict[str, str]:
    """Of pods: the preset's, and the attachments to networks that the file names."""
    found = dict(deployment.preset.annotations)
    if deployment.mode == "rdma" and (networks := deployment.file.network.rdma.networks):
        found[NETWORKS] = ",".join(networks)
    return found


_FIELDS = {"NODE_NAME": "spec.nodeName", "POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "NNODES")
_RDMA = {
    "NCCL_IB_HCA": "devices",
    "NCCL_IB_GID_INDEX": "gid_index",
    "NCCL_NET_GDR_LEVEL": "gdr_level",
    "NCCL_SOCKET_IFNAME": "interfaces",
    "NCCL_CROSS_NIC": "cross_nic",
    "NCCL_IB_TIMEOUT": "ib_timeout",
    "NCCL_MIN_NCHANNELS": "min_nchannels",
}
_TCP = {"NCCL_SOCKET_IFNAME": "interface_exclude", "NCCL_P2P_LEVEL": "p2p_level"}
"""Key of the file by variable: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"""


def environment(deployment: Deployment) -> list[dict[str, Any]]:
    """Entries of `env`; the model has refused a workload.env that sets what is ours."""
    rendezvous = (master(deployment), str(deployment.file.network.port), str(deployment.nodes))
    return [
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _FIELDS.items()
        ),
        *(
            {"name": name, "value": text}
            for name, text in zip(_RENDEZVOUS, rendezvous, strict=True)
        ),
        *({"name": name, "value": escaped(text)} for name, text in variables(deployment).items()),
    ]


def variables(deployment: Deployment) -> dict[str, str]:
    """Those of the fabric and of the file, by name, as the ranks see them."""
    found = {
        **_network(deployment, said=False),
        **{one.name: one.value for one in deployment.preset.environment},
        **_network(deployment, said=True),
        **deployment.file.workload.env,
    }
    return dict(sorted(found.items()))


def escaped(text: str) -> str:
    """Text that Kubernetes hands on as it is: in `env`, `command` and `args` it replaces $(NAME)."""
    return text.replace("$", "$$")


def _network(deployment: Deployment, *, said: bool) -> dict[str, str]:
    """What the file says of its network, or else what holds where it says nothing."""
    file = deployment.file
    rdma = deployment.mode == "rdma"
    part = file.network.rdma if rdma else file.network.tcp
    found = {
        name: getattr(part, key)
        for name, key in (_RDMA if rdma else _TCP).items()
        if (key in part.model_fields_set) is said
    }
    if said:
        return _filled({**found, "NCCL_DEBUG": file.nccl.debug})
    return _filled({**found, "NCCL_IB_DISABLE": "0" if rdma else "1"})


def _filled(found: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in found.items() if text}


MOUNT = "/etc/wirespeed"
START = ("/bin/sh", f"{MOUNT}/start")
"""Command of the container `ranks`."""
WORKER = ("/bin/sh", f"{MOUNT}/worker")
"""Command of an MPI worker, which has WIRESPEED_SSH: where the operator's keys are."""
LAUNCHER = ("/bin/sh", f"{MOUNT}/launcher")
"""First words of an MPI launcher's command; the same variable."""
SSH_PORT = 2222
"""Of an MPI worker's sshd: any user id may open it."""
NOTES = "wirespeed/notes"


def shell(name: str, **values: object) -> str:
    """A program of `sh/`, with these values where it says `@NAME@`."""
    text = (Path(__file__).parent / "sh" / f"{name}.sh").read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def scripts_name(deployment: Deployment) -> str:
    """Of the ConfigMap."""
    return f"{deployment.name}-scripts"


def config_map(deployment: Deployment) -> dict[str, Any]:
    """The ConfigMap with what the pods' processes run and read."""
    data = {
        "environment": _environment(deployment),
        # As Open MPI and DeepSpeed read it.
        "hostfile": "".join(f"{host} slots={slots(deployment)}\n" for host in hosts(deployment)),
        "start": shell("start"),
    }
    if deployment.engine == "mpijob":
        told = {"MOUNT": MOUNT, "SSH_PORT": SSH_PORT}
        data |= {name: shell(name, **told) for name in ("launcher", "worker")}
    made = manifest("v1", "ConfigMap", deployment, scripts_name(deployment), data=data)
    if notes := deployment.file.notes:
        meta = made["metadata"]
        meta["annotations"] = {**meta.get("annotations", {}), NOTES: notes}
    return made


def _environment(deployment: Deployment) -> str:
    """Sets NODE_RANK, NNODES, NPROC_PER_NODE, MASTER_ADDR, MASTER_PORT; returns 1 in another pod."""
    values = {
        "NNODES": str(deployment.nodes),
        "NPROC_PER_NODE": str(slots(deployment)),
        "MASTER_ADDR": master(deployment),
        "MASTER_PORT": str(deployment.file.network.port),
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    return shell("environment") + "".join(lines) + shell("torchrun")
