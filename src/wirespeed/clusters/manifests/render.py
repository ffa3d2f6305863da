"""All objects of a deployment, in the order in which to apply them.

What makes the pods: StatefulSet with its Service, JobSet, TrainJob.

The headless Service: pods find each other by `POD.SERVICE` before any of them is ready.

The StatefulSet: its pods keep their names, so the rank of a node is the ordinal of its pod.

A JobSet (jobset.x-k8s.io/v1alpha2) of one indexed Job: a pod's rank is its completion index.

https://jobset.sigs.k8s.io/docs/concepts/. Kubernetes has indexed Jobs from 1.21 on (on by default
from 1.22, stable in 1.24): `operations/capabilities.py` says so where the
server is older. JobSet makes the headless Service itself.

A TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1) with a runtime of its own.

https://www.kubeflow.org/docs/components/trainer/. The runtime lies in the job's namespace, so that
nobody needs rights in the whole cluster; it says how many nodes, and nothing of torch: its pods wait
for ranks, and `. /etc/wirespeed/environment` gives torchrun its options. Trainer makes a JobSet of
the two, of the TrainJob's name.

An MPIJob (kubeflow.org/v2beta1): workers that run sshd, and a launcher that mpirun starts in.

https://github.com/kubeflow/mpi-operator (0.5 and later: before, workers lay below another Service).
The operator makes the Service, the hostfile (/etc/mpi/hostfile) and the key pair itself; the
variables of a worker's container are not those of ranks that mpirun starts there by ssh, so that the
fabric's go along with `-x` (`mpirun_words`).

Objects as YAML that every parser reads alike, and as a folder for `kubectl kustomize`.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirespeed.clusters import manifests
from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file import EngineName
from wirespeed.clusters.manifests import manifest, selector
from wirespeed.clusters.manifests.pod import account, claims, pod_template, templates
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from yaml import SafeDumper


def service(deployment: Deployment) -> dict[str, Any]:
    """Its port is where ranks meet."""
    port = deployment.file.network.port
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(deployment.name),
        "ports": [{"name": "master", "port": port, "targetPort": port, "protocol": "TCP"}],
    }
    made = manifest("v1", "Service", deployment, deployment.service, spec=spec)
    if annotations := deployment.file.workload.service_annotations:
        told = made["metadata"]
        told["annotations"] = {**annotations, **told.get("annotations", {})}
    return made


def statefulset(deployment: Deployment) -> list[dict[str, Any]]:
    """The headless Service and the StatefulSet."""
    owned = templates(deployment)
    spec: dict[str, Any] = {
        "replicas": deployment.nodes,
        "serviceName": deployment.service,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector(deployment.name)},
        "template": pod_template(deployment),
        **({"volumeClaimTemplates": owned} if owned else {}),
    }
    made = manifest("apps/v1", "StatefulSet", deployment, queued=True, spec=spec)
    return [service(deployment), made]


_REPLACED = 100
"""An environment outlives this many restarts and lost pods, as it would as a StatefulSet."""


def jobset(deployment: Deployment) -> list[dict[str, Any]]:
    """The JobSet."""
    group = manifests.REPLICATED_JOB["jobset"]
    jobs = _jobs(deployment, group)
    first = {"replicatedJob": group, "jobIndex": 0, "podIndex": 0}
    spec = {
        "network": jobs["network"],
        "coordinator": first,
        **jobs,
        **_suspended(deployment),
    }
    return [manifest("jobset.x-k8s.io/v1alpha2", "JobSet", deployment, queued=True, spec=spec)]


def _suspended(deployment: Deployment) -> dict[str, bool]:
    """Kueue lets it go."""
    return {"suspend": True} if manifests.queue(deployment) else {}


def _jobs(
    deployment: Deployment, group: str, extra: dict[str, str] | None = None
) -> dict[str, Any]:
    """Spec of a JobSet: one indexed Job with a pod a node; `extra` are labels of the Job.

    Pods find each other by HOSTNAME.SERVICE before any of them is ready.
    """
    pods = pod_template(deployment)
    pods["spec"]["restartPolicy"] = "OnFailure"
    job = {
        "completionMode": "Indexed",
        "parallelism": deployment.nodes,
        "completions": deployment.nodes,
        "backoffLimit": _REPLACED,
        "template": pods,
    }
    told = {"labels": {**manifests.labels(deployment), **(extra or {})}}
    return {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": deployment.service,
        },
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [
            {"name": group, "replicas": 1, "template": {"metadata": told, "spec": job}}
        ],
    }


_GROUP = "trainer.kubeflow.org"
_API = f"{_GROUP}/v1alpha1"
_STEP = {f"{_GROUP}/trainjob-ancestor-step": "trainer"}
"""By this label Trainer knows which Job the node count is of."""


def trainjob(deployment: Deployment) -> list[dict[str, Any]]:
    """The TrainingRuntime, then the TrainJob that refers to it."""
    template = _jobs(deployment, manifests.REPLICATED_JOB["trainjob"], _STEP)
    spec = {"mlPolicy": {"numNodes": deployment.nodes}, "template": {"spec": template}}
    runtime = manifest(_API, "TrainingRuntime", deployment, spec=spec)
    runtime["metadata"]["labels"][f"{_GROUP}/framework"] = "torch"
    refers = {
        "runtimeRef": {"apiGroup": _GROUP, "kind": "TrainingRuntime", "name": deployment.name},
        "trainer": {"numNodes": deployment.nodes},
        **_suspended(deployment),
    }
    return [runtime, manifest(_API, "TrainJob", deployment, queued=True, spec=refers)]


_KEYS = "/etc/wirespeed-ssh"
"""Where the operator mounts its key pair: any user may read it there."""
_HOSTFILE = "/etc/mpi/hostfile"
_SSHD = ("AUDIT_WRITE", "SETGID", "SETUID", "SYS_CHROOT")
"""Capabilities of an sshd that runs as root: it parts from its rights before a login."""
_LAUNCHERS = {"cpu": "1", "memory": "2Gi"}
"""Of a launcher, which only starts others, where the file says anything of a pod's."""


def mpijob(deployment: Deployment) -> list[dict[str, Any]]:
    """An environment: its launcher waits, and `sh /etc/wirespeed/launcher mpirun …` runs in it."""
    return [job(deployment, manifests.START, restart="OnFailure")]


def job(
    deployment: Deployment, command: Sequence[str], *, restart: str = "Never"
) -> dict[str, Any]:
    """An MPIJob whose launcher runs `command`; `restart` is its pods' policy: Never or OnFailure."""
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 0, **_suspended(deployment)}
    launcher, worker = _launcher(deployment, command), _worker(deployment)
    spec = {
        "slotsPerWorker": manifests.slots(deployment),
        "mpiImplementation": "OpenMPI",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "sshAuthMountPath": _KEYS,
        "runPolicy": policy,
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": restart, "template": launcher},
            "Worker": {"replicas": deployment.nodes, "restartPolicy": restart, "template": worker},
        },
    }
    return manifest("kubeflow.org/v2beta1", "MPIJob", deployment, queued=True, spec=spec)


def mpirun_words(deployment: Deployment, program: Sequence[str]) -> tuple[str, ...]:
    """A launcher's command that runs `program` as one rank a GPU (a pod, where there is none)."""
    ranks = deployment.nodes * manifests.slots(deployment)
    names = ("LD_LIBRARY_PATH", *manifests.variables(deployment))
    handed = [word for name in names for word in ("-x", name)]
    words = ["mpirun", "-np", str(ranks), "--hostfile", _HOSTFILE, "--bind-to", "none", *handed]
    return (*manifests.LAUNCHER, *words, *program)


def _worker(deployment: Deployment) -> dict[str, Any]:
    """A pod of ranks with sshd as its process; it keeps away from other workers only."""
    made = pod_template(deployment)
    container = made["spec"]["containers"][0]
    container["command"] = list(manifests.WORKER)
    _add_keys(container)
    container["ports"].append(
        {"name": "ssh", "containerPort": manifests.SSH_PORT, "protocol": "TCP"}
    )
    container["readinessProbe"] = {"tcpSocket": {"port": manifests.SSH_PORT}, "periodSeconds": 2}
    if not deployment.file.security.run_as_user:
        capabilities = container["securityContext"]["capabilities"]
        capabilities["add"] = sorted({*capabilities.get("add", ()), *_SSHD})
    affinity = made["spec"]["affinity"]
    for term in affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]:
        # The launcher has a place beside a worker, or two nodes would need a third.
        labels = {**term["labelSelector"]["matchLabels"], manifests.COMPONENT: "ranks"}
        term["labelSelector"] = {"matchLabels": labels}
    return made


def _launcher(deployment: Deployment, command: Sequence[str]) -> dict[str, Any]:
    """The same pod without GPUs, fast networks and sidecars, on any of its nodes."""
    made = pod_template(deployment, role="launcher")
    annotations = made["metadata"].pop("annotations", {})
    for name in manifests.network_annotations(deployment).keys() & annotations.keys():
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
    container["command"] = [manifests.escaped(word) for word in command]
    container.pop("readinessProbe")
    _add_keys(container)
    _shrink(deployment, container)
    return made


def _add_keys(container: dict[str, Any]) -> None:
    container["env"] = [*container["env"], {"name": "WIRESPEED_SSH", "value": _KEYS}]


def _shrink(deployment: Deployment, container: dict[str, Any]) -> None:
    """No extended resource, and little of what the file asks for each pod."""
    extended = {deployment.file.gpus.resource, *manifests.extended_resources(deployment)}
    asked = container.pop("resources", {})
    small = {
        side: {name: _LAUNCHERS.get(name, amount) for name, amount in amounts.items()}
        for side, of in asked.items()
        if (amounts := {name: amount for name, amount in of.items() if name not in extended})
    }
    if small:
        container["resources"] = small


_OBJECTS: dict[EngineName, Callable[[Deployment], list[dict[str, Any]]]] = {
    "statefulset": statefulset,
    "mpijob": mpijob,
    "trainjob": trainjob,
    "jobset": jobset,
}


def policy(deployment: Deployment) -> list[dict[str, Any]]:
    """Reached by each other only, pods choose their own ports: so do NCCL and gloo."""
    if not deployment.file.network.policy:
        return []
    ours = {"podSelector": {"matchLabels": selector(deployment.name)}}
    spec = {**ours, "policyTypes": ["Ingress"], "ingress": [{"from": [ours]}]}
    return [manifest("networking.k8s.io/v1", "NetworkPolicy", deployment, spec=spec)]


def render(deployment: Deployment) -> list[dict[str, Any]]:
    """Plain dicts, as JSON has them; the same deployment gives the same text.

    UsageError where the file asks for what its engine cannot have.
    """
    # Nothing that a file asks for is left out in silence.
    if deployment.engine != "statefulset" and deployment.file.workload.service_annotations:
        raise UsageError(
            f"workload.service_annotations: the operator makes the Service of a {deployment.engine}",
            expected="no such key, or the engine statefulset",
        )
    return [
        *_namespace(deployment),
        *account(deployment),
        manifests.config_map(deployment),
        *claims(deployment),
        *policy(deployment),
        *_OBJECTS[deployment.engine](deployment),
    ]


def _namespace(deployment: Deployment) -> list[dict[str, Any]]:
    """Without the environment's name: others may live there, too."""
    if not deployment.file.cluster.create_namespace:
        return []
    marked = {**deployment.file.workload.labels, manifests.MANAGED_BY: manifests.OURS}
    told = {"name": deployment.namespace, "labels": marked}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": told}]


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""YAML 1.1 has these for booleans and nothing, in any case: https://yaml.org/type/bool.html"""
_OURS = "# Written by wirespeed cluster render: what is changed here is lost at the next render.\n"
_INDEX = "kustomization.yaml"


def as_yaml(objects: Sequence[dict[str, Any]]) -> str:
    """One document each; quoted is all text that some parser could take for something else."""
    import yaml

    # A width without end: the text of a value is never folded into lines.
    return yaml.dump_all(
        objects, Dumper=_dumper(), sort_keys=False, allow_unicode=True, explicit_start=True,
        default_flow_style=False, width=1 << 30,
    )  # fmt: skip


def write_folder(objects: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """A kustomization and a file an object; gives the paths.

    Files of an earlier render that are not wanted any more are removed. Raises UsageError, with nothing
    written, where a file of somebody else is in the way, and where the folder cannot be written.
    """
    texts = {
        (f"{made['kind'].lower()}-{made['metadata']['name']}.yaml"): as_yaml([made])
        for made in objects
    }
    texts[_INDEX] = as_yaml([_kustomization(list(texts))])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = list(folder.glob("*.yaml"))
        foreign = [path for path in there if path.name in texts and not _is_ours(path)]
        if foreign:
            raise UsageError(f"{foreign[0]} is not of wirespeed cluster render", expected=_EMPTY)
        for path in there:
            if path.name not in texts and _is_ours(path):
                path.unlink()
        for name, text in texts.items():
            (folder / name).write_text(_OURS + text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}", expected=_EMPTY
        ) from error
    return [folder / name for name in texts]


_EMPTY = "a new or empty folder, or one that an earlier render wrote"


def _kustomization(names: list[str]) -> dict[str, Any]:
    version = "kustomize.config.k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "Kustomization", "resources": names}


def _is_ours(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline() == _OURS


@cache
def _dumper() -> "type[SafeDumper]":
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, _represent)
    return Dumper


def _represent(dumper: "SafeDumper", text: str) -> Any:
    """Plain only where no version of YAML sees anything but text; scripts as blocks of lines."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    elif text.endswith("\n") and all(line.isprintable() for line in text[:-1].split("\n")):
        style = "|"
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
