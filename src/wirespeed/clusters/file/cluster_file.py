"""The cluster file: its sections, and the rules between keys that no kind of value can say."""

import posixpath
from collections.abc import Iterator
from decimal import Decimal

from pydantic import model_validator

from wirespeed.clusters.file.kinds import Notes, Rule, refuse
from wirespeed.clusters.file.sections import (
    Cluster,
    Gpus,
    Nccl,
    Network,
    Nodes,
    Resources,
    Section,
    Security,
    Storage,
    Toleration,
    Volume,
    Workload,
)

SOURCES = ("claim", "config_map", "secret", "host_path", "empty_dir")
"""Where a volume may come from."""

_VOLUMES = frozenset({"datasets", "podinfo", "scripts", "shm", "workspace"})
"""Names of the volumes that every pod has already."""
_MOUNTS = ("/dev/shm", "/etc/podinfo", "/etc/wirespeed", "/proc", "/sys")
"""Paths in a pod that are taken, and so is everything above them."""
_WORLD = "MASTER_ADDR RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK NNODES"
_VARIABLES = {
    "MASTER_PORT": "the key network.port sets this one",
    "NPROC_PER_NODE": "the key gpus.per_node sets this one",
    **dict.fromkeys(_WORLD.split(), "variables of the world are set by wirespeed"),
    **dict.fromkeys(
        ("NODE_NAME", "POD_IP", "POD_NAME"), "variables of the pod are set by wirespeed"
    ),
}
_LABELS = frozenset(
    f"app.kubernetes.io/{name}" for name in ("component", "instance", "managed-by", "name")
)
_QUEUE = "kueue.x-k8s.io/queue-name"
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_POWERS = {"": 0, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


class ClusterFile(Section):
    """One cluster: everything that `wirespeed cluster` needs to know of it."""

    cluster: Cluster
    workload: Workload = Workload()
    nodes: Nodes = Nodes()
    gpus: Gpus = Gpus()
    resources: Resources = Resources()
    storage: Storage = Storage()
    network: Network = Network()
    security: Security = Security()
    nccl: Nccl = Nccl()
    notes: Notes = ""
    """For people; stands in an annotation of the environment's ConfigMap."""

    @model_validator(mode="after")
    def _check_rules(self) -> "ClusterFile":
        refuse(file_rules(self))
        return self


def file_rules(file: "ClusterFile") -> Iterator[Rule]:
    """All rules at once, whichever sections they are between."""
    for index, toleration in enumerate(file.nodes.tolerations):
        yield from _below(("nodes", "tolerations", index), _toleration(toleration))
    for number, volume in enumerate(file.workload.volumes):
        yield from _below(("workload", "volumes", number), _volume(volume))
    yield from _below(("workload",), _workload(file.workload))
    yield from _below(("resources",), _resources(file.resources))
    yield from _mounts(file)
    yield from _node_names(file)
    yield from _between(file)


def _below(before: tuple[str | int, ...], rules: Iterator[Rule]) -> Iterator[Rule]:
    for rule in rules:
        yield rule._replace(path=(*before, *rule.path))


def _toleration(toleration: Toleration) -> Iterator[Rule]:
    """As the API server has them, which would refuse the pods much later."""
    if toleration.operator == "Exists" and toleration.value:
        yield Rule(("value",), repr(toleration.value), "none, or operator: Equal")
    if toleration.operator == "Equal" and not toleration.key:
        yield Rule(("operator",), "'Equal' without a key", "a key, or operator: Exists")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        saw = str(toleration.toleration_seconds)
        yield Rule(("toleration_seconds",), saw, "none, or effect: NoExecute")


def _volume(volume: Volume) -> Iterator[Rule]:
    """Exactly one source, and paths without a way up."""
    said = [name for name in SOURCES if getattr(volume, name)]
    if len(said) != 1:
        saw = " and ".join(said) or "no source"
        yield Rule((), saw, f"exactly one of {', '.join(SOURCES)}")
    for key in ("mount_path", "host_path"):
        path = getattr(volume, key)
        if ".." in path.split("/"):
            yield Rule((key,), repr(path), "a path without ..")


def _workload(workload: Workload) -> Iterator[Rule]:
    """Nothing of the user's may silently lose against what we set ourselves."""
    for name in workload.env:
        if name in _VARIABLES:
            expected = f"another variable: {_VARIABLES[name]}"
            yield Rule(("env", name), "a variable that is set already", expected)
    for key in workload.labels:
        if key in _LABELS:
            yield Rule(("labels", key), "a label that is set already", "another label")
    if workload.queue and _QUEUE in workload.labels:
        expected = "either this label or the key workload.queue"
        yield Rule(("labels", _QUEUE), "a label that is set already", expected)
    names: set[str] = set()
    for index, volume in enumerate(workload.volumes):
        at = ("volumes", index, "name")
        if volume.name in _VOLUMES:
            yield Rule(at, repr(volume.name), "another name: every pod has such a volume already")
        if volume.name in names:
            yield Rule(at, f"a second volume {volume.name!r}", "a name of its own")
        names.add(volume.name)


def _resources(resources: Resources) -> Iterator[Rule]:
    """No more may be asked than is allowed."""
    for kind in ("cpu", "memory"):
        asked, most = getattr(resources.requests, kind), getattr(resources.limits, kind)
        if asked and most and _number(asked) > _number(most):
            yield Rule(("requests", kind), repr(asked), f"at most the limit, {most}")


def _between(file: "ClusterFile") -> Iterator[Rule]:
    limit, shm = file.resources.limits.memory, file.workload.shm_size
    said = "shm_size" in file.workload.model_fields_set
    if limit and said and _number(shm) > _number(limit):
        expected = f"at most the pod's memory, resources.limits.memory: {limit}"
        yield Rule(("workload", "shm_size"), repr(shm), expected)
    if file.network.rdma.networks and _NETWORKS in file.workload.annotations:
        expected = "either this annotation or the key network.rdma.networks"
        at = ("workload", "annotations", _NETWORKS)
        yield Rule(at, "an annotation that is set already", expected)


def _mounts(file: "ClusterFile") -> Iterator[Rule]:
    seen: set[str] = set()
    taken = [*_MOUNTS, *_claims(file)]
    for index, volume in enumerate(file.workload.volumes):
        at = ("workload", "volumes", index, "mount_path")
        path = posixpath.normpath(volume.mount_path.replace("//", "/"))
        if path in seen:
            yield Rule(at, f"a second volume at {path!r}", "a path of its own")
        seen.add(path)
        hidden = [one for one in taken if one == path or one.startswith(path.rstrip("/") + "/")]
        if hidden:
            expected = f"another path: it would hide the pod's {hidden[0]}"
            yield Rule(at, repr(volume.mount_path), expected)


def _claims(file: "ClusterFile") -> list[str]:
    """Where claims are mounted; the node-local folders of `none` may be replaced."""
    if file.storage.mode == "none":
        return []
    return ["/workspace", *(["/datasets"] if file.storage.datasets_size else [])]


def _node_names(file: "ClusterFile") -> Iterator[Rule]:
    names: set[str] = set()
    for index, name in enumerate(file.nodes.gpu_nodes):
        if name in names:
            yield Rule(("nodes", "gpu_nodes", index), f"{name!r} again", "each node once")
        names.add(name)


def _number(amount: str) -> Decimal:
    """A quantity of Kubernetes as a number; its form has been checked."""
    digits = amount.rstrip("mkMGTPEi")
    unit = amount[len(digits) :]
    base = 1024 if unit.endswith("i") else 1000
    return Decimal(digits) * Decimal(base) ** _POWERS[unit.removesuffix("i")]
