"""What is known of a node and its devices: fields, and keys with their types."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from wirespeed.model.field_types import CHECKED, Count, Keys, Known, NotNegative


class _Interface(TypedDict, total=False):
    name: str
    kind: str


class Interface(_Interface, total=False):
    """An interface that has an address."""

    wired: bool
    """A bridge that has a physical port."""
    networks: list[str]
    speed_Gbitps: float


class InterfaceSetting(TypedDict):
    """A variable that chooses interfaces, and what it matches on this node."""

    name: str
    value: str
    chosen: list[str]
    missing: list[str]
    """Entries that match nothing."""
    bare: list[str]
    """Entries that match what has no address, or does not run."""


class Xid(TypedDict):
    """What the driver logged with one number about one device."""

    kind: str
    """`Xid` or `SXid`."""
    pci: str
    """`0000:3b:00`, as the driver writes it: without the function."""
    code: int
    count: int
    first_s: float
    """Seconds since the start of the system."""
    last_s: float
    text: str
    """What it said the last time, cut to 300 characters."""


class NvmlError(TypedDict):
    """What NVML or CUDA answered in place of a figure."""

    call: str
    code: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a node; None where one is not known."""

    kernel: str | None = None
    python: str | None = None
    os: str | None = None
    torch: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    cpu_model: str | None = None
    cpu_logical: Known[int] = None
    cpu_physical: Known[int] = None
    cpu_allowed: int | None = None
    cpu_shared: int | None = None
    """CPUs that the ranks of this node have together."""
    cpu_quota: float | Literal["unlimited"] | None = None
    numa_nodes: Known[int] = None
    llc_bytes: int | None = None
    cpu_governor: str | None = None
    cpu_scaling_driver: str | None = None
    memory_total_bytes: Known[NotNegative] = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | Literal["unlimited"] | None = None
    memlock_soft: int | Literal["unlimited"] | None = None
    memlock_hard: int | Literal["unlimited"] | None = None
    memlock_exempt: bool | None = None
    shm_size_bytes: int | None = None
    shm_free_bytes: int | None = None
    machine_virtual: bool | None = None
    machine_id: str | None = None
    """A hash of /etc/machine-id: another one is another installation under this name."""
    machine_boot: str | None = None
    """The kernel's boot id: another one means that it was started again."""
    gpu_on_bus: Known[list[str]] = None
    gpu_mute: list[str] | None = None
    """PCI addresses, as of `gpu_on_bus`."""
    gpu_driverless: list[str] | None = None
    machine_hides_devices: str | None = None
    """Why a GPU may be withheld from us: `a container`, `Slurm`; else empty."""
    gpudirect_peer_module: str | None = None
    gpudirect_dmabuf_kernel: bool | None = None
    gpu_open_modules: bool | None = None
    iommu_groups: dict[str, str] | None = None
    iommu_kernel: list[str] | None = None
    acs_redirects: dict[str, str] | None = None
    gpu_xids: list[Xid] | None = None
    kernel_log_first_s: float | None = None
    """The time of its oldest record, 0 when nothing was overwritten."""
    uptime_s: float | None = None
    placement_source: str | None = None
    placement_zone: str | None = None
    placement_zone_id: str | None = None
    placement_region: str | None = None
    placement_placement_group: str | None = None
    placement_rack: str | None = None
    placement_physical_host: str | None = None
    placement_instance_type: str | None = None
    net_name: str | None = None
    net_name_addresses: list[str] | None = None
    net_name_usable: str | None = None
    net_name_loopback: bool | None = None
    net_nccl_conf: dict[str, str] | None = None
    net_nccl_interfaces: Known[list[str]] = None
    net_interfaces: Known[list[Annotated[Interface, Keys(_Interface)]]] = None
    net_gloo_interface: str | None = None
    net_gloo_address: str | None = None
    net_gloo_why: str | None = None
    net_nccl_address: str | None = None
    net_nccl_why: str | None = None
    net_hca: list[str] | None = None
    net_settings: list[InterfaceSetting] | None = None
    memory_copy_GBps: float | None = None
    gpu_count: int | None = None
    gpu_driver: str | None = None
    gpu_cuda: str | None = None
    gpu_visible: list[str] | None = None
    """UUIDs that CUDA shows."""
    gpu_cuda_failed: NvmlError | None = None
    gpu_nvml_failed: NvmlError | None = None
    topo_numa: Known[dict[str, str]] = None
    topo_addresses: Known[dict[str, list[str]]] = None
    topo_distances: Known[dict[str, dict[str, str]]] = None
    topo_nvlinks: Known[dict[str, dict[str, int]]] = None
    neighbours: list[dict[str, Any]] | None = None
    """Other runs that measured there meanwhile."""
    other: dict[str, Any] = field(default_factory=dict)
    """Facts of other versions or types than these, by their names in JSON, as they were read."""
    order: tuple[str, ...] = field(default=(), compare=False)
    """Names in the order in which they were read."""


_GROUPS = (
    *("acs", "cpu", "gpu", "gpudirect", "iommu", "kernel_log", "machine", "memlock", "memory"),
    *("net.gloo", "net.name", "net.nccl", "net", "numa", "placement", "shm", "topo"),
)


def _json_name(name: str) -> str:
    """`cpu.model` of `cpu_model`: a group, a dot, the rest."""
    of = (group for group in _GROUPS if name.startswith(group.replace(".", "_") + "_"))
    group = next(of, "")
    return f"{group}.{name[len(group) + 1 :]}" if group else name


_HINTS = get_type_hints(Facts, include_extras=True)
FACT_NAMES = {_json_name(name): name for name in _HINTS if name not in ("other", "order")}
"""Fields of `Facts` by their names in JSON."""
_STORED = {key: _HINTS[name] for key, name in FACT_NAMES.items()}
_CHECKED = {key: kind for key, kind in _STORED.items() if CHECKED in get_args(kind)}
ALL_FACTS = TypedDict("Facts", _STORED, total=False)  # type: ignore[misc]
"""The same as they are stored."""
CHECKED_FACTS = TypedDict("Facts", _CHECKED, total=False)  # type: ignore[misc]
"""Those that are damage where they have another type; the others are kept as they are."""


class _OnBus(TypedDict, total=False):
    pci: str
    pcie_GTps: float
    pcie_width: int
    pcie_width_max: int


class _GpuError(TypedDict, total=False):
    text: str


class Gpu(_OnBus, total=False):
    """Facts of one GPU."""

    index: int
    memory_bytes: NotNegative
    nvlinks: list[bool | int]
    errors: list[_GpuError]
    slowed_by: list[str]
    pcie_gen_max: int


class Nic(_OnBus, total=False):
    """Facts of one network interface."""

    name: str
    loopback: bool
    mtu: int
    speed_Gbitps: float


class RdmaPort(_OnBus, total=False):
    """Facts of one port of an RDMA device."""

    device: str
    port: int
    rate_Gbitps: float


class Counters(TypedDict, total=False):
    """What error counters did between two readings."""

    seconds: NotNegative
    """Seconds between the readings."""
    watched: dict[str, Count]
    """How many counters of a device were read both times, by device."""
    grown: dict[str, dict[str, Count]]
    """By how much counters grew, by device and counter; those that did not are absent."""
    reset: list[str]
    """Counters that were less at the end than at the start."""
    full: list[str]
    """Counters that stand at their largest value and cannot count on."""
    came: list[str]
    """Devices that were there at the end only."""
    gone: list[str]
    """Devices that were there at the start only."""
    unread: dict[str, str]
    """What could not be read, with the reason."""
