"""The cluster file, one YAML a cluster: its sections, every key with its default, its meaning and its
bounds; and the rules between keys that no kind of value can say.

The descriptions are the comments of the JSON Schema and of `cluster new`. Every key reaches the
manifests or kubectl's words; a test walks all of them. An empty value (null) means the default.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from wirespeed.clusters.file import kinds
from wirespeed.clusters.file.kinds import Rule, Within, quantity, refuse

EngineName = Literal["statefulset", "mpijob", "trainjob", "jobset"]
FabricMode = Literal["auto", "rdma", "tcp"]


def _empty_text(value: Any) -> Any:
    """`KEY:` with nothing behind it, in a map of the user's own keys, is an empty text."""
    if not isinstance(value, Mapping):
        return value
    return {key: "" if one is None else one for key, one in value.items()}


Labels = Annotated[dict[kinds.LabelKey, kinds.LabelValue], BeforeValidator(_empty_text)]
Annotations = Annotated[dict[kinds.LabelKey, kinds.Line], BeforeValidator(_empty_text)]
Variables = Annotated[dict[kinds.VariableName, kinds.Line], BeforeValidator(_empty_text)]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, coerce_numbers_to_str=True
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        """A key without a value has its default, and so has a section without a key."""
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None}

    def but(self, **changes: object) -> Self:
        """The same with these keys, whose values are right already."""
        return self.model_copy(update=changes)


class Cluster(Section):
    """Which cluster, and where in it."""

    name: kinds.Name = Field(examples=["mine"])
    """Of this environment; its objects are named after it, so two in one namespace do not collide."""
    namespace: kinds.Label = "default"
    """Where all objects are made."""
    create_namespace: bool = False
    """Make the namespace where it does not exist; it is never deleted by us."""
    api: kinds.Address = Field(default="", examples=["https://api.example.org:6443"])
    """Address of the API server, or its host; where kubectl would talk to another, nothing is done."""
    context: kinds.Line = ""
    """Of the kubeconfig; empty: the current one."""
    kubeconfig: kinds.Line = ""
    """Path of the kubeconfig; empty: as kubectl finds it."""
    program: Literal["auto", "kubectl", "oc"] = "auto"
    """What to drive; auto: kubectl, else oc."""
    description: kinds.Line = ""
    """Stands in an annotation of every object."""


class Toleration(Section):
    """A taint that pods bear."""

    key: kinds.MaybeLabelKey = Field(default="", examples=["dedicated"])
    """Of the taint; empty, with Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Exists: whatever the taint's value; Equal: this one."""
    value: kinds.LabelValue = ""
    """Of the taint, with Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Of the taint; empty: all effects."""
    toleration_seconds: Annotated[int, Within(0, 10**9)] | None = None
    """With NoExecute: how long pods stay once the taint is there; not said: for ever."""


class Nodes(Section):
    """Which nodes pods may run on."""

    gpu_nodes: tuple[kinds.Subdomain, ...] = Field(default=(), examples=[["node-0", "node-1"]])
    """Names of nodes; empty: any that has what is asked."""
    node_selector: Labels = Field(default={}, examples=[{"node-pool": "gpu"}])
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Beside the one for the GPU taint, which is always there when GPUs are asked."""
    same_zone: bool = False
    """All pods in one topology.kubernetes.io/zone (required)."""
    spread_over: kinds.MaybeLabelKey = ""
    """A node label, such as a rack's, over whose values pods are spread evenly (best effort)."""


class Storage(Section):
    """Workspace and data sets."""

    mode: Literal["rwx", "volumeClaimTemplates", "none"] = "none"
    """rwx: one claim shared by all pods; volumeClaimTemplates: one for each pod; none: node-local."""
    class_rwx: kinds.MaybeSubdomain = ""
    """Storage class of shared claims; empty: the cluster's default."""
    class_rwo: kinds.MaybeSubdomain = ""
    """Storage class of per-pod claims; empty: the cluster's default."""
    workspace_size: kinds.Bytes = "100Gi"
    """Mounted at /workspace."""
    datasets_size: kinds.MaybeBytes = ""
    """Mounted at /datasets; empty: no such claim."""


class Rdma(Section):
    """InfiniBand or RoCE."""

    enabled: bool = False
    """The cluster has it; `--mode auto` uses it then."""
    resource: kinds.MaybeLabelKey = Field(default="", examples=["rdma/ib"])
    """Extended resource of the device plugin, such as rdma/ib; empty: the preset's."""
    count: Annotated[int, Within(1, 64)] = 1
    """Of that resource, a pod."""
    devices: kinds.Interfaces = Field(default="", examples=["mlx5_2,mlx5_3"])
    """NCCL_IB_HCA: mlx5_2,mlx5_3,…; empty: the preset's, else NCCL chooses."""
    interfaces: kinds.Interfaces = Field(default="", examples=["net1,net2"])
    """NCCL_SOCKET_IFNAME in RDMA mode: net1,net2,…; empty: the preset's, else NCCL chooses."""
    networks: tuple[kinds.Network, ...] = Field(default=(), examples=[["rail-0", "rail-1"]])
    """Multus network attachments (NAME or NAMESPACE/NAME), in the order of net1, net2, …"""
    gid_index: kinds.CountText = Field(default="", examples=["3"])
    """NCCL_IB_GID_INDEX (RoCE v2 over IPv4 is often 3)."""
    gdr_level: kinds.PathLevel = Field(default="", examples=["5"])
    """NCCL_NET_GDR_LEVEL."""
    cross_nic: kinds.CountText = Field(default="", examples=["1"])
    """NCCL_CROSS_NIC: 0, 1 or 2."""
    ib_timeout: kinds.CountText = Field(default="", examples=["22"])
    """NCCL_IB_TIMEOUT."""
    min_nchannels: kinds.CountText = Field(default="", examples=["4"])
    """NCCL_MIN_NCHANNELS."""


class Tcp(Section):
    """Sockets."""

    interface_exclude: kinds.Interfaces = "^lo,docker0"
    """NCCL_SOCKET_IFNAME in TCP mode: a list of interfaces, with ^ of those not to use."""
    p2p_level: kinds.PathLevel = Field(default="", examples=["NVL"])
    """NCCL_P2P_LEVEL: NVL, PIX, PXB, PHB or SYS."""


class Network(Section):
    """How ranks talk to each other."""

    mode: FabricMode = "auto"
    """rdma, tcp, or auto: rdma where the file or the preset has it, else tcp."""
    preset: kinds.PresetName = ""
    """A fabric by name (`wirespeed cluster presets`); what the file says itself has precedence."""
    rdma: Rdma = Rdma()
    tcp: Tcp = Tcp()
    port: Annotated[int, Within(1024, 65535)] = 29500
    """MASTER_PORT, and the headless Service's."""
    policy: bool = True
    """A NetworkPolicy: pods of this environment are reached by each other only."""


class Security(Section):
    """Rights of the pods."""

    service_account: kinds.MaybeSubdomain = ""
    """An account that exists; empty: one is made, without any right."""
    requires_privileged_scc: bool = False
    """OpenShift: bind the account to the SCC `privileged`."""
    ipc_lock: bool = False
    """Capability IPC_LOCK: memory registration of RDMA beyond the memlock limit."""
    run_as_user: Annotated[int, Within(0, 2**31 - 1)] | None = None
    """User id in the pod; not said: the image's (OpenShift: the namespace's range)."""
    fs_group: Annotated[int, Within(0, 2**31 - 1)] | None = None
    """Group that claims belong to; not said: as the storage gives them."""


class Gpus(Section):
    """GPUs of each pod."""

    per_node: Annotated[int, Within(0, 64)] = 0
    """Requested and limited alike; 0: ranks on CPUs, by gloo."""
    resource: kinds.LabelKey = "nvidia.com/gpu"
    """Extended resource of the device plugin."""
    type: kinds.Product = Field(default="", examples=["NVIDIA-H100-80GB-HBM3"])
    """Value of the node label nvidia.com/gpu.product that nodes must have; empty: any."""
    default_nodes: Annotated[int, Within(1, 10_000)] = 2
    """Pods, one a node, where --nodes does not say."""


class Amounts(Section):
    """Amounts of one pod."""

    cpu: kinds.MaybeCpus = Field(default="", examples=["32"])
    """Cores."""
    memory: kinds.MaybeBytes = Field(default="", examples=["128Gi"])
    """What is in /dev/shm counts, too."""


class Resources(Section):
    """CPU and memory of each pod; what is not said is not asked."""

    requests: Amounts = Amounts()
    """What a node must have free."""
    limits: Amounts = Amounts()
    """What a pod may use at most."""


class Nccl(Section):
    """NCCL's own words."""

    debug: Literal["", "VERSION", "WARN", "INFO", "TRACE"] = ""
    """NCCL_DEBUG; empty: not set."""


class Volume(Section):
    """One more volume of each pod: exactly one source."""

    name: kinds.Label = Field(examples=["data"])
    """Of the volume in the pod."""
    mount_path: kinds.MountPath = Field(examples=["/data"])
    """Where it is seen in the pod."""
    read_only: bool = False
    """Pods cannot write to it."""
    claim: kinds.MaybeSubdomain = Field(default="", examples=["data"])
    """A PersistentVolumeClaim that exists."""
    config_map: kinds.MaybeSubdomain = ""
    """A ConfigMap that exists."""
    secret: kinds.MaybeSubdomain = ""
    """A Secret that exists."""
    host_path: kinds.MaybePath = ""
    """A path of the node; many clusters refuse these."""
    empty_dir: kinds.MaybeBytes = ""
    """A folder of this size that goes with the pod."""


class Workload(Section):
    """The pods themselves."""

    engine: EngineName = "statefulset"
    """What makes the pods: a StatefulSet, or an operator's MPIJob, TrainJob or JobSet."""
    image: kinds.Image = "localhost/wirespeed:cpu"
    """Must have a shell, Python 3.11 and wirespeed (images/ builds two); with GPUs: …:cuda."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node asks the registry."""
    image_pull_secrets: tuple[kinds.Subdomain, ...] = Field(default=(), examples=[["registry"]])
    """Secrets with which nodes log in to the registry."""
    python: kinds.Program = "/usr/bin/python3"
    """Python in the image that has wirespeed."""
    shm_size: kinds.Bytes = "1Gi"
    """Limit of the memory-backed /dev/shm; it counts towards the pod's memory."""
    env: Variables = Field(default={}, examples=[{"NCCL_ALGO": "Ring"}])
    """For every pod; has precedence over the preset's and the fabric's."""
    env_from_secrets: tuple[kinds.Subdomain, ...] = Field(default=(), examples=[["tokens"]])
    """Secrets whose keys become variables."""
    labels: Labels = Field(default={}, examples=[{"team": "vision"}])
    """Of pods and all objects, beside Kubernetes' recommended ones."""
    annotations: Annotations = Field(default={}, examples=[{"example.org/owner": "vision"}])
    """Of pods."""
    service_annotations: Annotations = Field(default={}, examples=[{"example.org/dns": "none"}])
    """Of the headless Service."""
    volumes: tuple[Volume, ...] = ()
    """More volumes of each pod."""
    priority_class: kinds.MaybeSubdomain = ""
    """priorityClassName; empty: the cluster's default."""
    scheduler: kinds.MaybeSubdomain = ""
    """schedulerName; empty: the default one."""
    queue: kinds.MaybeSubdomain = ""
    """Kueue: value of the label kueue.x-k8s.io/queue-name."""
    runtime_class: kinds.MaybeSubdomain = ""
    """runtimeClassName, such as nvidia; empty: the cluster's default."""
    termination_grace_s: Annotated[int, Within(0, 3600)] = 10
    """Seconds between SIGTERM and SIGKILL."""


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
    notes: kinds.Notes = ""
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
    for index, name in _again(file.nodes.gpu_nodes):
        yield Rule(("nodes", "gpu_nodes", index), f"{name!r} again", "each node once")
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
    for index, volume in enumerate(workload.volumes):
        if volume.name in _VOLUMES:
            expected = "another name: every pod has such a volume already"
            yield Rule(("volumes", index, "name"), repr(volume.name), expected)
    for index, name in _again(one.name for one in workload.volumes):
        yield Rule(("volumes", index, "name"), f"a second volume {name!r}", "a name of its own")


def _again(values: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(place, value) of each that was there before."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index, value
        seen.add(value)


def _resources(resources: Resources) -> Iterator[Rule]:
    """No more may be asked than is allowed."""
    for kind in ("cpu", "memory"):
        asked, most = getattr(resources.requests, kind), getattr(resources.limits, kind)
        if asked and most and quantity(asked) > quantity(most):
            yield Rule(("requests", kind), repr(asked), f"at most the limit, {most}")


def _between(file: "ClusterFile") -> Iterator[Rule]:
    limit, shm = file.resources.limits.memory, file.workload.shm_size
    said = "shm_size" in file.workload.model_fields_set
    if limit and said and quantity(shm) > quantity(limit):
        expected = f"at most the pod's memory, resources.limits.memory: {limit}"
        yield Rule(("workload", "shm_size"), repr(shm), expected)
    if file.network.rdma.networks and _NETWORKS in file.workload.annotations:
        expected = "either this annotation or the key network.rdma.networks"
        at = ("workload", "annotations", _NETWORKS)
        yield Rule(at, "an annotation that is set already", expected)


def _mounts(file: "ClusterFile") -> Iterator[Rule]:
    at = ("workload", "volumes")
    volumes = file.workload.volumes
    paths = [posixpath.normpath(one.mount_path.replace("//", "/")) for one in volumes]
    for index, path in _again(paths):
        saw = f"a second volume at {path!r}"
        yield Rule((*at, index, "mount_path"), saw, "a path of its own")
    # Where claims are mounted; the node-local folders of `none` may be replaced.
    claims = [] if file.storage.mode == "none" else ["/workspace"]
    claims += ["/datasets"] if claims and file.storage.datasets_size else []
    for index, path in enumerate(paths):
        below = path.rstrip("/") + "/"
        if hidden := [one for one in (*_MOUNTS, *claims) if f"{one}/".startswith(below)]:
            expected = f"another path: it would hide the pod's {hidden[0]}"
            yield Rule((*at, index, "mount_path"), repr(volumes[index].mount_path), expected)
