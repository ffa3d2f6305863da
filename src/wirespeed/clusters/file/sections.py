"""Sections of a cluster file: every key with its default, its meaning and its bounds.

The descriptions are the comments of the JSON Schema and of `cluster new`. Every key reaches the
manifests or kubectl's words; a test walks all of them. An empty value (null) means the default.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from wirespeed.clusters.file.kinds import (
    Address,
    Bytes,
    CountText,
    Image,
    Interfaces,
    Label,
    LabelKey,
    LabelValue,
    Line,
    MaybeBytes,
    MaybeCpus,
    MaybeLabelKey,
    MaybePath,
    MaybeSubdomain,
    Name,
    Path,
    PathLevel,
    PresetName,
    Product,
    Program,
    ResourceName,
    Subdomain,
    VariableName,
    Within,
)
from wirespeed.clusters.file.kinds import Network as NetworkName

EngineName = Literal["statefulset", "mpijob", "trainjob", "jobset"]
FabricMode = Literal["auto", "rdma", "tcp"]


def _empty_text(value: Any) -> Any:
    """`KEY:` with nothing behind it, in a map of the user's own keys, is an empty text."""
    if not isinstance(value, Mapping):
        return value
    return {key: "" if one is None else one for key, one in value.items()}


Labels = Annotated[dict[LabelKey, LabelValue], BeforeValidator(_empty_text)]
Annotations = Annotated[dict[LabelKey, Line], BeforeValidator(_empty_text)]
Variables = Annotated[dict[VariableName, Line], BeforeValidator(_empty_text)]


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


class Cluster(Section):
    """Which cluster, and where in it."""

    name: Name = Field(examples=["mine"])
    """Of this environment; its objects are named after it, so two in one namespace do not collide."""
    namespace: Label = "default"
    """Where all objects are made."""
    create_namespace: bool = False
    """Make the namespace where it does not exist; it is never deleted by us."""
    api: Address = Field(default="", examples=["https://api.example.org:6443"])
    """Address of the API server, or its host; where kubectl would talk to another, nothing is done."""
    context: Line = ""
    """Of the kubeconfig; empty: the current one."""
    kubeconfig: Line = ""
    """Path of the kubeconfig; empty: as kubectl finds it."""
    program: Literal["auto", "kubectl", "oc"] = "auto"
    """What to drive; auto: kubectl, else oc."""
    description: Line = ""
    """Stands in an annotation of every object."""


class Toleration(Section):
    """A taint that pods bear."""

    key: MaybeLabelKey = Field(default="", examples=["dedicated"])
    """Of the taint; empty, with Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Exists: whatever the taint's value; Equal: this one."""
    value: LabelValue = ""
    """Of the taint, with Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Of the taint; empty: all effects."""
    toleration_seconds: Annotated[int, Within(0, 10**9)] | None = None
    """With NoExecute: how long pods stay once the taint is there; not said: for ever."""


class Nodes(Section):
    """Which nodes pods may run on."""

    gpu_nodes: tuple[Subdomain, ...] = Field(default=(), examples=[["node-0", "node-1"]])
    """Names of nodes; empty: any that has what is asked."""
    node_selector: Labels = Field(default={}, examples=[{"node-pool": "gpu"}])
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Beside the one for the GPU taint, which is always there when GPUs are asked."""
    same_zone: bool = False
    """All pods in one topology.kubernetes.io/zone (required)."""
    spread_over: MaybeLabelKey = ""
    """A node label, such as a rack's, over whose values pods are spread evenly (best effort)."""


class Storage(Section):
    """Workspace and data sets."""

    mode: Literal["rwx", "volumeClaimTemplates", "none"] = "none"
    """rwx: one claim shared by all pods; volumeClaimTemplates: one for each pod; none: node-local."""
    class_rwx: MaybeSubdomain = ""
    """Storage class of shared claims; empty: the cluster's default."""
    class_rwo: MaybeSubdomain = ""
    """Storage class of per-pod claims; empty: the cluster's default."""
    workspace_size: Bytes = "100Gi"
    """Mounted at /workspace."""
    datasets_size: MaybeBytes = ""
    """Mounted at /datasets; empty: no such claim."""


class Rdma(Section):
    """InfiniBand or RoCE."""

    enabled: bool = False
    """The cluster has it; `--mode auto` uses it then."""
    resource: MaybeLabelKey = Field(default="", examples=["rdma/ib"])
    """Extended resource of the device plugin, such as rdma/ib; empty: the preset's."""
    count: Annotated[int, Within(1, 64)] = 1
    """Of that resource, a pod."""
    devices: Interfaces = Field(default="", examples=["mlx5_2,mlx5_3"])
    """NCCL_IB_HCA: mlx5_2,mlx5_3,…; empty: the preset's, else NCCL chooses."""
    interfaces: Interfaces = Field(default="", examples=["net1,net2"])
    """NCCL_SOCKET_IFNAME in RDMA mode: net1,net2,…; empty: the preset's, else NCCL chooses."""
    networks: tuple[NetworkName, ...] = Field(default=(), examples=[["rail-0", "rail-1"]])
    """Multus network attachments (NAME or NAMESPACE/NAME), in the order of net1, net2, …"""
    gid_index: CountText = Field(default="", examples=["3"])
    """NCCL_IB_GID_INDEX (RoCE v2 over IPv4 is often 3)."""
    gdr_level: PathLevel = Field(default="", examples=["5"])
    """NCCL_NET_GDR_LEVEL."""
    cross_nic: CountText = Field(default="", examples=["1"])
    """NCCL_CROSS_NIC: 0, 1 or 2."""
    ib_timeout: CountText = Field(default="", examples=["22"])
    """NCCL_IB_TIMEOUT."""
    min_nchannels: CountText = Field(default="", examples=["4"])
    """NCCL_MIN_NCHANNELS."""


class Tcp(Section):
    """Sockets."""

    interface_exclude: Interfaces = "^lo,docker0"
    """NCCL_SOCKET_IFNAME in TCP mode: a list of interfaces, with ^ of those not to use."""
    p2p_level: PathLevel = Field(default="", examples=["NVL"])
    """NCCL_P2P_LEVEL: NVL, PIX, PXB, PHB or SYS."""


class Network(Section):
    """How ranks talk to each other."""

    mode: FabricMode = "auto"
    """rdma, tcp, or auto: rdma where the file or the preset has it, else tcp."""
    preset: PresetName = ""
    """A fabric by name (`wirespeed cluster presets`); what the file says itself has precedence."""
    rdma: Rdma = Rdma()
    tcp: Tcp = Tcp()
    port: Annotated[int, Within(1024, 65535)] = 29500
    """MASTER_PORT, and the headless Service's."""
    policy: bool = True
    """A NetworkPolicy: pods of this environment are reached by each other only."""


class Security(Section):
    """Rights of the pods."""

    service_account: MaybeSubdomain = ""
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
    resource: ResourceName = "nvidia.com/gpu"
    """Extended resource of the device plugin."""
    type: Product = Field(default="", examples=["NVIDIA-H100-80GB-HBM3"])
    """Value of the node label nvidia.com/gpu.product that nodes must have; empty: any."""
    default_nodes: Annotated[int, Within(1, 10_000)] = 2
    """Pods, one a node, where --nodes does not say."""


class Amounts(Section):
    """Amounts of one pod."""

    cpu: MaybeCpus = Field(default="", examples=["32"])
    """Cores."""
    memory: MaybeBytes = Field(default="", examples=["128Gi"])
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

    name: Label = Field(examples=["data"])
    """Of the volume in the pod."""
    mount_path: Path = Field(examples=["/data"])
    """Where it is seen in the pod."""
    read_only: bool = False
    """Pods cannot write to it."""
    claim: MaybeSubdomain = Field(default="", examples=["data"])
    """A PersistentVolumeClaim that exists."""
    config_map: MaybeSubdomain = ""
    """A ConfigMap that exists."""
    secret: MaybeSubdomain = ""
    """A Secret that exists."""
    host_path: MaybePath = ""
    """A path of the node; many clusters refuse these."""
    empty_dir: MaybeBytes = ""
    """A folder of this size that goes with the pod."""


class Workload(Section):
    """The pods themselves."""

    engine: EngineName = "statefulset"
    """What makes the pods: a StatefulSet, or an operator's MPIJob, TrainJob or JobSet."""
    image: Image = "localhost/wirespeed:cpu"
    """Must have a shell, Python 3.11 and wirespeed (images/ builds two); with GPUs: …:cuda."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node asks the registry."""
    image_pull_secrets: tuple[Subdomain, ...] = Field(default=(), examples=[["registry"]])
    """Secrets with which nodes log in to the registry."""
    python: Program = "/usr/bin/python3"
    """Python in the image that has wirespeed."""
    shm_size: Bytes = "1Gi"
    """Limit of the memory-backed /dev/shm; it counts towards the pod's memory."""
    env: Variables = Field(default={}, examples=[{"NCCL_ALGO": "Ring"}])
    """For every pod; has precedence over the preset's and the fabric's."""
    env_from_secrets: tuple[Subdomain, ...] = Field(default=(), examples=[["tokens"]])
    """Secrets whose keys become variables."""
    labels: Labels = Field(default={}, examples=[{"team": "vision"}])
    """Of pods and all objects, beside Kubernetes' recommended ones."""
    annotations: Annotations = Field(default={}, examples=[{"example.org/owner": "vision"}])
    """Of pods."""
    service_annotations: Annotations = Field(default={}, examples=[{"example.org/dns": "none"}])
    """Of the headless Service."""
    volumes: tuple[Volume, ...] = ()
    """More volumes of each pod."""
    priority_class: MaybeSubdomain = ""
    """priorityClassName; empty: the cluster's default."""
    scheduler: MaybeSubdomain = ""
    """schedulerName; empty: the default one."""
    queue: MaybeSubdomain = ""
    """Kueue: value of the label kueue.x-k8s.io/queue-name."""
    runtime_class: MaybeSubdomain = ""
    """runtimeClassName, such as nvidia; empty: the cluster's default."""
    termination_grace_s: Annotated[int, Within(0, 3600)] = 10
    """Seconds between SIGTERM and SIGKILL."""
