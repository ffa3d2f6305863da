"""When a setting hurts: one small function for each rule of settings.yaml.

Each gets a node and what NCCL and torch will read there, and says in a few words what hurts, or
nothing. Names of variables that NCCL and torch know stand first.
"""

from collections.abc import Callable, Mapping

from wirespeed.model.records import NodeFacts

NUMBERS: dict[str, tuple[int, int | None]] = {
    "NCCL_BUFFSIZE": (1, None),
    "NCCL_CHECKS_DISABLE": (0, 1),
    "NCCL_CHECK_POINTERS": (0, 1),
    "NCCL_COLLNET_ENABLE": (0, 1),
    "NCCL_COLLNET_NODE_THRESHOLD": (0, None),
    "NCCL_CROSS_NIC": (0, 2),
    "NCCL_CUMEM_ENABLE": (0, 1),
    "NCCL_DMABUF_ENABLE": (0, 1),
    "NCCL_IB_DISABLE": (0, 1),
    "NCCL_IB_GID_INDEX": (-1, None),
    "NCCL_IB_PCI_RELAXED_ORDERING": (0, 2),
    "NCCL_IB_QPS_PER_CONNECTION": (1, 128),
    "NCCL_IB_RETRY_CNT": (0, 7),
    "NCCL_IB_SL": (0, None),
    "NCCL_IB_SPLIT_DATA_ON_QPS": (0, 1),
    "NCCL_IB_TC": (0, None),
    "NCCL_IB_TIMEOUT": (0, None),
    "NCCL_MAX_CTAS": (1, 64),
    "NCCL_MAX_NCHANNELS": (1, None),
    "NCCL_MIN_CTAS": (1, 64),
    "NCCL_MIN_NCHANNELS": (1, None),
    "NCCL_MNNVL_ENABLE": (0, 2),
    "NCCL_NET_SHARED_BUFFERS": (0, 1),
    "NCCL_NSOCKS_PERTHREAD": (1, 64),
    "NCCL_NTHREADS": (64, 512),
    "NCCL_NVLS_ENABLE": (0, 2),
    "NCCL_P2P_DISABLE": (0, 1),
    "NCCL_P2P_PXN_LEVEL": (0, 2),
    "NCCL_PXN_DISABLE": (0, 1),
    "NCCL_RAS_ENABLE": (0, 1),
    "NCCL_SHM_DISABLE": (0, 1),
    "NCCL_SOCKET_NTHREADS": (1, 16),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": (0, 3),
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": (0, None),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": (0, None),
}
"""Whole numbers, with the least and the greatest that are documented (None: no limit is)."""

CHOICES: dict[str, tuple[str, ...]] = {
    "NCCL_DEBUG": ("VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE"),
    "NCCL_NET_GDR_LEVEL": ("LOC", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"),
    "NCCL_P2P_LEVEL": ("LOC", "NVL", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"),
    "NCCL_SOCKET_FAMILY": ("AF_INET", "AF_INET6"),
    "TORCH_DISTRIBUTED_DEBUG": ("OFF", "INFO", "DETAIL"),
}
"""Words; the two levels are also known as small numbers."""

OBSOLETE: dict[str, str] = {
    "NCCL_ASYNC_ERROR_HANDLING": "torch calls it TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "torch calls it TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_CHECKS_DISABLE": "NCCL deprecated it in 2.2.12",
    "NCCL_CHECK_POINTERS": "NCCL 2.29.7 replaced it by NCCL_CHECK_MODE=DEBUG_LOCAL",
    "NCCL_DESYNC_DEBUG": "torch calls it TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING": "torch calls it TORCH_NCCL_ENABLE_TIMING",
    "NCCL_IB_CUDA_SUPPORT": "NCCL 2.4 replaced it by NCCL_NET_GDR_LEVEL",
    "NCCL_IB_GDR_LEVEL": "NCCL 2.4 renamed it to NCCL_NET_GDR_LEVEL",
    "NCCL_LL_THRESHOLD": "NCCL 2.5 removed it",
    "NCCL_MAX_NRINGS": "NCCL 2.5 renamed it, and 2.17 again, to NCCL_MAX_CTAS",
    "NCCL_MIN_NRINGS": "NCCL 2.5 renamed it, and 2.17 again, to NCCL_MIN_CTAS",
    "NCCL_SINGLE_RING_THRESHOLD": "NCCL 2.3 removed it",
    "NCCL_TREE_THRESHOLD": "NCCL 2.5 removed it",
}
"""Names that newer versions ignore, or read with a warning, and what came after them."""

_DOCUMENTED = """
ALGO ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CGA_CLUSTER_SIZE CHECK_MODE COLLNET_ENABLE
COLLNET_NODE_THRESHOLD COMM_BLOCKING COMM_ID CONF_FILE CROSS_NIC CTA_POLICY CUMEM_ENABLE
CUMEM_HOST_ENABLE DEBUG DEBUG_FILE DEBUG_LEVELS DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT
DEBUG_TIMESTAMP_LEVELS DMABUF_ENABLE ENV_PLUGIN GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE
GDRCOPY_FLUSH_ENABLE GDRCOPY_SYNC_ENABLE GIN_PLUGIN GRAPH_MIXING_SUPPORT GRAPH_REGISTER
GRAPH_STREAM_ORDERING HOSTID IB_ADAPTIVE_ROUTING IB_ADDR_FAMILY IB_ADDR_RANGE IB_AR_THRESHOLD
IB_DISABLE IB_ECE_ENABLE IB_EVENT_BASED_LB IB_FIFO_TC IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_OOO_RQ
IB_PCI_RELAXED_ORDERING IB_PKEY IB_PKEY_VALUE IB_QPS_PER_CONNECTION IB_RAIL_POLICY IB_RETRY_CNT
IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM IB_SL IB_SPLIT_DATA_ON_QPS IB_TC IB_TIMEOUT
IGNORE_COLLNET_MISMATCH IGNORE_CPU_AFFINITY IGNORE_NET_MISMATCH IPC_USE_ABSTRACT_SOCKET LAUNCH_MODE
LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS
MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS MNNVL_CLIQUE_ID MNNVL_ENABLE MNNVL_UUID
MULTI_RANK_GPU_ENABLE NET NETDEVS_POLICY NET_GDR_C2C NET_GDR_LEVEL NET_GDR_READ NET_MERGE_POLICY
NET_PLUGIN NET_SHARED_BUFFERS NET_SHARED_COMMS NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVLS_ENABLE
OOB_NET_ENABLE OOB_NET_IFNAME P2P_DIRECT_DISABLE P2P_DISABLE P2P_LEVEL P2P_LL_THRESHOLD
P2P_NET_CHUNKSIZE P2P_PXN_LEVEL PROFILER_PLUGIN PROTO PSK PXN_C2C PXN_DISABLE RAS_ADDR RAS_ENABLE
RAS_TIMEOUT_FACTOR RMA_EAGER_INIT RMA_PLUGIN RUNTIME_CONNECT SET_STACK_SIZE SET_THREAD_NAME
SHM_DISABLE SOCKET_FAMILY SOCKET_IFNAME SOCKET_MAGIC SOCKET_NTHREADS SOCKET_POLL_TIMEOUT_MSEC
SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SYM_GIN_KERNELS_ENABLE TOPO_DUMP_FILE TOPO_FILE
TUNER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD WIN_ENABLE
"""
_IN_SOURCE = """
BUILDDIR CHUNK_SIZE CREATE_THREAD_CONTEXT DEBUG_NOWARN DUMP_GRAPH GDR_FLUSH_DISABLE GRAPH_DUMP_FILE
GRAPH_FILE GRAPH_HELPER_DISABLE HOME IB_ASYNC_EVENTS IB_IS_GLOBAL IB_MERGE_VFS IB_PORT IB_PREPOST
IB_SUBNET_AWARE_ROUTING IB_USE_INLINE IB_WARN_RAIL_LOCAL INCLUDE INTRANET IPC_USE LIB
LL128_BUFFSIZE LL128_NTHREADS LL_BUFFSIZE MAX_P2P_NCHANNELS MIN_P2P_NCHANNELS
NCHANNELS_PER_NET_PEER NCHANNELS_PER_PEER NET_DISABLE_INTRA NET_FORCE_FLUSH NET_FORCE_MERGE
NET_MERGE_LEVEL NET_OPTIONAL_RECV_COMPLETION NET_OVERHEAD NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE
NVLS_NCHANNELS P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_READ_ENABLE P2P_USE_CUDA_MEMCPY
PROXY_APPEND_BATCH_SIZE PROXY_CPUSET PROXY_DUMP_SIGNAL PROXY_PROFILE ROOT SHM_LOCALITY
SHM_USE_CUDA_MEMCPY SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_RCVBUF SOCKET_SNDBUF STACK_SIZE
THREAD_THRESHOLDS TOPO_DUMP_FILE_RANK TUNER_CONFIG_FILE VERSION WARN_ENABLE_DEBUG_INFO
WORK_ARGS_BYTES WORK_FIFO_BYTES WORK_FIFO_DEPTH
"""
_TORCH = """
ASYNC_ERROR_HANDLING AVOID_RECORD_STREAMS BCAST_UNIQUEID BLOCKING_WAIT COORD_CHECK_MILSEC
CUDA_EVENT_CACHE DEBUG_INFO_PIPE_FILE DEBUG_INFO_TEMP_FILE DESYNC_DEBUG DUMP_ON_TIMEOUT
ENABLE_MONITORING ENABLE_TIMING EXTRA_DUMP_ON_EXEC HEARTBEAT_TIMEOUT_SEC HIGH_PRIORITY
LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN NAN_CHECK PROPAGATE_ERROR RANKS_PER_ROOT RETHROW_CUDA_ERRORS
TRACE_BUFFER_SIZE TRACE_CPP_STACK USE_COMM_NONBLOCKING USE_TENSOR_REGISTER_ALLOCATOR_HOOK
WAIT_TIMEOUT_DUMP_MILSEC
"""
KNOWN: frozenset[str] = frozenset(
    [f"NCCL_{name}" for name in (_DOCUMENTED + _IN_SOURCE).split()]
    + [f"TORCH_NCCL_{name}" for name in _TORCH.split()]
    + ["GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "GLOO_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG"]
    + ["GLOO_SOCKET_FAMILY", "GLOO_SOCKET_DIR"]
    + list(OBSOLETE)
)
"""Names that are no typing errors."""


Settings = Mapping[str, str]

_SOCKETS_MOST = 64
"""NCCL's limit on the sockets of one connection."""
_TIMEOUT = (18, 22)
"""NCCL's own values of NCCL_IB_TIMEOUT: 18 since 2.14, 20 since 2.23; 22 waits two minutes."""
_CHANNELS_LEAST, _THREADS_LEAST, _BUFFER_LEAST = 4, 256, 1 << 20
"""Far below what NCCL takes by itself: 512 threads (older GPUs 256) and 4 MiB."""
_NVSWITCH_GPUS = ("H100", "H200", "H800", "H20", "B100", "B200", "B300", "GB200", "GB300")


def _number(settings: Settings, name: str) -> int | None:
    """The whole number that a variable is set to, or None."""
    text = settings.get(name, "").strip()
    return int(text) if text.removeprefix("-").isdecimal() else None


def _is_on(settings: Settings, name: str) -> bool:
    return settings.get(name, "").strip().lower() in ("1", "true", "t", "yes", "y")


def _shown(settings: Settings, *names: str) -> str:
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


def _active(node: NodeFacts, link_layer: str = "") -> list[dict[str, object]]:
    ports = [port for port in node.rdma if port.get("state") == "ACTIVE"]
    return [port for port in ports if link_layer in ("", port.get("link_layer"))]


def _rdma_off(node: NodeFacts, settings: Settings) -> str:
    ports = len(_active(node))
    name = "NCCL_IB_DISABLE" if _number(settings, "NCCL_IB_DISABLE") else ""
    if settings.get("NCCL_NET", "").lower() == "socket":
        name = "NCCL_NET"
    return f"{_shown(settings, name)} with {ports} ACTIVE RDMA port(s)" if ports and name else ""


def _paths_off(node: NodeFacts, settings: Settings) -> str:
    """Ways between the GPUs of one node that are closed."""
    if len(node.gpus) < 2:
        return ""
    found = ["NCCL_SHM_DISABLE"] if _number(settings, "NCCL_SHM_DISABLE") else []
    # GeForce cards have no peer-to-peer that could be lost.
    if not all("GeForce" in str(gpu.get("name", "")) for gpu in node.gpus):
        found += ["NCCL_P2P_DISABLE"] if _number(settings, "NCCL_P2P_DISABLE") else []
        low = settings.get("NCCL_P2P_LEVEL", "").upper() in ("LOC", "0")
        found += ["NCCL_P2P_LEVEL"] if low else []
    return f"{_shown(settings, *found)} with {len(node.gpus)} GPUs" if found else ""


def _gdr_off(node: NodeFacts, settings: Settings) -> str:
    level = settings.get("NCCL_NET_GDR_LEVEL", "").upper()
    if level not in ("LOC", "0") or not node.gpus or not _active(node):
        return ""
    return _shown(settings, "NCCL_NET_GDR_LEVEL") + " switches GPUDirect RDMA off"


def _forced(_: NodeFacts, settings: Settings) -> str:
    """An algorithm or a protocol that is forced; one that is excluded is as documented."""
    names = ("NCCL_ALGO", "NCCL_PROTO")
    found = [name for name in names if settings.get(name) and "^" not in settings[name]]
    protocols = settings.get("NCCL_PROTO", "").upper().replace(" ", "").split(",")
    if "LL128" in protocols and "NCCL_PROTO" in found:
        return _shown(settings, *found) + " (LL128 where it is not supported corrupts data)"
    return _shown(settings, *found)


def _logs(_: NodeFacts, settings: Settings) -> str:
    level = settings.get("NCCL_DEBUG", "").upper()
    every = {"ALL", "COLL", "CALL", "P2P", "PROXY"}
    if level == "TRACE":
        return _shown(settings, "NCCL_DEBUG")
    chosen = {part.strip().upper() for part in settings.get("NCCL_DEBUG_SUBSYS", "").split(",")}
    noisy = level == "INFO" and every & chosen
    return _shown(settings, "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS") if noisy else ""


def _starved(_: NodeFacts, settings: Settings) -> str:
    """Fewer channels, threads or bytes than NCCL needs for large messages."""
    least = {
        "NCCL_MAX_NCHANNELS": _CHANNELS_LEAST,
        "NCCL_MAX_CTAS": _CHANNELS_LEAST,
        "NCCL_NTHREADS": _THREADS_LEAST,
        "NCCL_BUFFSIZE": _BUFFER_LEAST,
    }
    found = [name for name, low in least.items() if 0 < (_number(settings, name) or 0) < low]
    return _shown(settings, *found)


def _gid(node: NodeFacts, settings: Settings) -> str:
    index = _number(settings, "NCCL_IB_GID_INDEX")
    if index is None or index < 0 or not _active(node):
        return ""
    said = _shown(settings, "NCCL_IB_GID_INDEX")
    roce = _active(node, "Ethernet")
    if not roce and len(_active(node, "InfiniBand")) == len(_active(node)):
        return f"{said}, but every ACTIVE port is InfiniBand, and the index is for RoCE"
    short = [port for port in roce if index >= _gids(port)]
    if not short:
        return ""
    return f"{said}, but {short[0]['device']} port {short[0]['port']} has {_gids(short[0])} GID(s)"


def _gids(port: Mapping[str, object]) -> int:
    count = port.get("gids")
    return count if isinstance(count, int) else 1 << 16


def _timeout(node: NodeFacts, settings: Settings) -> str:
    """Limits of waiting for RDMA that give up early or (almost) never."""
    found = []
    value, (low, high) = _number(settings, "NCCL_IB_TIMEOUT"), _TIMEOUT
    if value is not None and not low <= value <= high:
        found.append("NCCL_IB_TIMEOUT")
    if (count := _number(settings, "NCCL_IB_RETRY_CNT")) is not None and count < 7:
        found.append("NCCL_IB_RETRY_CNT")
    return _shown(settings, *found) if node.rdma else ""


def _collnet(node: NodeFacts, settings: Settings) -> str:
    if not _number(settings, "NCCL_COLLNET_ENABLE"):
        return ""
    said = _shown(settings, "NCCL_COLLNET_ENABLE")
    if settings.get("NCCL_NET_PLUGIN", "").lower() == "none":
        return f"{said}, but NCCL_NET_PLUGIN=none leaves no plugin that has it"
    return "" if _active(node, "InfiniBand") else f"{said} without an ACTIVE InfiniBand port"


def _nvls_off(node: NodeFacts, settings: Settings) -> str:
    """NVLink SHARP off where GPUs of Hopper or later sit behind NVSwitch."""
    names = [str(gpu.get("name", "")) for gpu in node.gpus]
    able = [name for name in names if any(word in _words(name) for word in _NVSWITCH_GPUS)]
    switched = [name for name in able if "PCIe" not in name and "NVL" not in name]
    if _number(settings, "NCCL_NVLS_ENABLE") != 0 or len(switched) < 4:
        return ""
    return f"{_shown(settings, 'NCCL_NVLS_ENABLE')} with {len(switched)} x {switched[0]}"


def _words(name: str) -> list[str]:
    return name.replace("-", " ").split()


def _contradiction(_: NodeFacts, settings: Settings) -> str:
    if _number(settings, "NCCL_MNNVL_ENABLE") == 1 and _number(settings, "NCCL_CUMEM_ENABLE") == 0:
        return _shown(settings, "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE")
    return ""


def _sockets(_: NodeFacts, settings: Settings) -> str:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    threads, each = (_number(settings, name) or 1 for name in names)
    if threads * each <= _SOCKETS_MOST:
        return ""
    return f"{_shown(settings, *names)}: {threads * each} sockets a connection"


def _blocking(_: NodeFacts, settings: Settings) -> str:
    names = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    return _shown(settings, *(name for name in names if _is_on(settings, name)))


def _deaf(_: NodeFacts, settings: Settings) -> str:
    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    return _shown(settings, *(name for name in names if _number(settings, name) == 0))


def _debugging(_: NodeFacts, settings: Settings) -> str:
    names = ("CUDA_LAUNCH_BLOCKING", "NCCL_CHECK_POINTERS", "TORCH_NCCL_NAN_CHECK")
    found = [name for name in names if _is_on(settings, name)]
    if settings.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        found.append("TORCH_DISTRIBUTED_DEBUG")
    if settings.get("NCCL_CHECK_MODE", "").upper().startswith("DEBUG"):
        found.append("NCCL_CHECK_MODE")
    return _shown(settings, *found)


def _obsolete(_: NodeFacts, settings: Settings) -> str:
    found = [f"{name} ({why})" for name, why in OBSOLETE.items() if name in settings]
    if settings.get("NCCL_LAUNCH_MODE", "").upper() == "GROUP":
        found.append("NCCL_LAUNCH_MODE=GROUP (NCCL deprecated it in 2.9)")
    return ", ".join(found)


def _misspelt(_: NodeFacts, settings: Settings) -> str:
    found = []
    for name in settings:
        if name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_")):
            near = _nearest(name) if name not in KNOWN else ""
            found += [f"{name} (no such variable; {near}?)"] if near else []
    return ", ".join(found)


def _nearest(name: str) -> str:
    """The known name within one typing error of `name`, or two where it is long; else nothing."""
    within = 1 if len(name) < 12 else 2
    near = [(d, known) for known in KNOWN if (d := _distance(name, known, within)) <= within]
    return min(near)[1] if near else ""


def _distance(a: str, b: str, within: int) -> int:
    """Letters to add, drop, change or swap with the next one; above `within`, any larger number."""
    if abs(len(a) - len(b)) > within:
        return within + 1
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def _values(_: NodeFacts, settings: Settings) -> str:
    found = [_wrong_number(settings, name) for name in NUMBERS if settings.get(name)]
    found += [_wrong_word(settings, name) for name in CHOICES if settings.get(name)]
    return ", ".join(filter(None, found))


def _wrong_number(settings: Settings, name: str) -> str:
    value, (low, high) = _number(settings, name), NUMBERS[name]
    if value is None:
        # torch also takes words for its own switches.
        wordy = name.startswith("TORCH_") or settings[name].lower().startswith("0x")
        return "" if wordy else f"{_shown(settings, name)} is no whole number"
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        return f"{_shown(settings, name)} is not {limits}"
    return ""


def _wrong_word(settings: Settings, name: str) -> str:
    value = settings[name].strip().upper()
    if value in CHOICES[name] or (name.endswith("_LEVEL") and value.isdecimal()):
        return ""
    return f"{_shown(settings, name)} is none of {', '.join(CHOICES[name])}"


CONDITIONS: dict[str, Callable[[NodeFacts, Settings], str]] = {
    "blocking": _blocking,
    "collnet": _collnet,
    "contradiction": _contradiction,
    "deaf": _deaf,
    "debugging": _debugging,
    "forced": _forced,
    "gdr-off": _gdr_off,
    "gid": _gid,
    "logs": _logs,
    "misspelt": _misspelt,
    "nvls-off": _nvls_off,
    "obsolete": _obsolete,
    "paths-off": _paths_off,
    "rdma-off": _rdma_off,
    "sockets": _sockets,
    "starved": _starved,
    "timeout": _timeout,
    "values": _values,
}
"""By the name that rules call them."""
