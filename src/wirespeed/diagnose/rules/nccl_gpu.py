"""What NCCL and RCCL say of GPUs: drivers, memory, peer-to-peer, NVLS, multi-node NVLink."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#gpu-direct",
)
_FABRIC = ("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",)
_DRIVER = ("https://docs.nvidia.com/deploy/cuda-compatibility/",)
_FOLLOWS = (
    "nccl-cuda-error",
    "nccl-system-error",
    "nccl-trace",
    "nccl-peer-lost",
    "exit-code",
    "launcher-exit",
)
_CUDA = r"(?:cuda|hip) failure (?:\d+ )?'"
"""How NCCL begins what CUDA or HIP says; newer versions give the number first."""
_FABRIC_FIX = (
    "systemctl restart nvidia-fabricmanager (of exactly the driver's version), then reset the GPUs "
    "(nvidia-smi --gpu-reset, with no process on them) or reboot; until then NCCL_NVLS_ENABLE=0"
)
_FABRIC_NEXT = "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager"
_P2P_FIX = (
    "NCCL_P2P_DISABLE=1 (data then go through host memory); where the failing line is in "
    "transport/shm.cc, NCCL_CUMEM_HOST_ENABLE=0; a newer NCCL falls back by itself"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="NCCL-101",
        category="fabric-manager",
        role="cause",
        confidence="certain",
        anchors=("NVLink SHARP (NVLS)", "Fabric Manager or NVSwitches"),
        pattern=r"failed to (?:bind|map|create|allocate|add)\b.{0,40}NVLink SHARP \(NVLS\)|caused "
        r"by a system or configuration error in the fabric manager",
        unless=r"proceeding without|continuing without|retrying",
        sentence="NVLS (NVLink SHARP) multicast memory cannot be bound: fabric manager or the "
        "NVSwitches of this machine are in a bad state",
        because="the driver refuses to join the GPUs to a multicast group; usual after fabric "
        "manager was stopped or restarted without a reset of the GPUs, or where its version is not "
        "the driver's",
        costs="every rank of the machine fails while NCCL starts",
        fix=_FABRIC_FIX,
        next=_FABRIC_NEXT,
        explains=_FOLLOWS,
        links=(*_FABRIC, f"{_ENV}#nccl-nvls-enable"),
        positive=(
            "transport/nvls.cc:287 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory "
            "of size 2097152 : CUDA error 401 'the operation cannot be performed in the present "
            "state'.",
            "This is usually caused by a system or configuration error in the Fabric Manager or "
            "NVSwitches.",
        ),
        negative=(
            "NCCL INFO Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA "
            "error 401 'x'. Proceeding without NVLS support.",
            "NCCL INFO NVLS multicast support is available on dev 0",
        ),
    ),
    Rule(
        id="NCCL-102",
        category="fabric-manager",
        role="cause",
        anchors=("nvls.cc:", "nvls.cu:"),
        pattern=r"transport/nvls\.c[cu]:\d+ NCCL WARN " + _CUDA + r"(?P<error>[^']+)'",
        unless=r"out of memory",
        sentence="NVLS (NVLink SHARP) multicast memory could not be set up: '{error}' in "
        "transport/nvls.cc",
        because="mostly fabric manager was stopped, or restarted without a reset of the GPUs; a "
        "partition of the NVSwitches (VM, some GPUs of the machine) without multicast gives the "
        "same",
        costs="every rank of the machine fails while NCCL starts",
        fix=_FABRIC_FIX,
        next=_FABRIC_NEXT,
        explains=_FOLLOWS,
        links=(*_FABRIC, f"{_ENV}#nccl-nvls-enable"),
        positive=(
            "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
            "transport/nvls.cc:133 NCCL WARN Cuda failure 801 'operation not supported'",
        ),
        negative=(
            "NCCL INFO transport/nvls.cc:394 -> 1",
            "transport/nvls.cc:244 NCCL WARN Cuda failure 2 'out of memory'",
        ),
    ),
    Rule(
        id="NCCL-103",
        category="fabric-manager",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("system not yet initialized",),
        pattern=r"system not yet initialized",
        unless=r"Test CUDA failure",
        sentence="CUDA cannot start (error 802, system not yet initialized): fabric manager does "
        "not run",
        because="on machines with NVSwitch the GPUs are usable only when nvidia-fabricmanager, of "
        "the driver's version, has set up NVLink",
        costs="no CUDA program runs on this node",
        fix="systemctl enable --now nvidia-fabricmanager, of exactly the driver's version; then "
        "reset the GPUs or reboot",
        next=_FABRIC_NEXT,
        explains=_FOLLOWS,
        links=_FABRIC,
        positive=(
            "RuntimeError: CUDA error 802: system not yet initialized",
            "NCCL WARN Cuda failure 802 'system not yet initialized'",
        ),
        negative=("gpu: Test CUDA failure common.cu:1030 'system not yet initialized'",),
    ),
    Rule(
        id="NCCL-104",
        category="imex",
        role="cause",
        anchors=("IMEX", "MNNVL", "fabric handle"),
        pattern=r"(?:WARN|error|failed|failure).{0,160}\bIMEX\b|NCCL WARN.{0,60}MNNVL.{0,80}|NCCL "
        r"WARN.{0,80}fabric handle",
        sentence="memory cannot be shared over multi-node NVLink (MNNVL): the IMEX service or its "
        "channel is missing",
        because="GPUs of several nodes share memory only where nvidia-imex runs on all of them and "
        "the container has /dev/nvidia-caps-imex-channels",
        costs="NCCL fails between the nodes of an NVLink domain",
        fix="start nvidia-imex on all nodes with the same nodes_config.cfg, give the container an "
        "IMEX channel (in Kubernetes a ComputeDomain); NCCL_MNNVL_ENABLE=0 meanwhile",
        next="nvidia-imex-ctl -N; ls /dev/nvidia-caps-imex-channels; nvidia-smi -q | grep -A8 "
        "Fabric",
        explains=_FOLLOWS,
        links=("https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/",),
        positive=(
            "transport/p2p.cc:275 NCCL WARN Failed to import fabric handle, check IMEX",
            "mnnvl.cc:43 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this "
            "system",
        ),
        negative=(
            "NCCL INFO comm 0x56 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0",
        ),
    ),
    Rule(
        id="NCCL-105",
        category="p2p-unsupported",
        role="cause",
        confidence="certain",
        anchors=("peer access is not supported",),
        pattern=r"peer access is not supported between these two devices",
        unless=r"transport/shm\.cc",
        sentence="GPUs of this node cannot reach each other directly (P2P): peer access is not "
        "supported between them",
        because="these GPUs (GeForce, L4, L40S, virtual GPUs, or some PCIe layouts) have no "
        "peer-to-peer access, and this NCCL tries it nevertheless",
        costs="NCCL cannot connect the ranks of the node",
        fix=_P2P_FIX,
        next="nvidia-smi topo -p2p r",
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-p2p-disable", f"{_ENV}#nccl-cumem-host-enable"),
        positive=(
            "Cuda failure 217 'peer access is not supported between these two devices'",
            "transport/p2p.cc:431 NCCL WARN Cuda failure 217 'peer access is not supported between "
            "these two devices'",
        ),
        negative=(
            "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between "
            "these two devices'",
        ),
    ),
    Rule(
        id="NCCL-106",
        category="p2p-unsupported",
        role="symptom",
        anchors=("shm.cc:",),
        pattern=r"transport/shm\.cc:\d+ NCCL WARN " + _CUDA + r"(?P<error>[^']+)'",
        sentence="NCCL could not share host memory between the processes of the node: '{error}' in "
        "transport/shm.cc",
        checks=(
            "whether sharing host memory through CUDA (cuMem) fails on GPUs without P2P access or "
            "in this container: NCCL_CUMEM_HOST_ENABLE=0 (or NCCL_CUMEM_ENABLE=0); a newer NCCL "
            "falls back by itself",
            "whether the GPUs have no peer access (nvidia-smi topo -p2p r): NCCL_P2P_DISABLE=1",
            "whether /dev/shm is too small (df -h /dev/shm): --shm-size=1g or --ipc=host",
            "whether the container may not bind memory to NUMA nodes: --cap-add SYS_NICE",
        ),
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-cumem-host-enable",),
        positive=(
            "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between "
            "these two devices'",
            "transport/shm.cc:170 NCCL WARN Cuda failure 'invalid argument'",
        ),
        negative=("NCCL INFO transport/shm.cc:551 -> 2",),
    ),
    Rule(
        id="NCCL-107",
        category="p2p-failed",
        role="symptom",
        anchors=("p2p.cc:", "IpcGetMemHandle", "IpcOpenMemHandle"),
        pattern=r"transport/p2p\.cc:\d+ NCCL WARN .{0,40}?(?:failure (?:\d+ )?'|failed : )"
        r"(?P<error>[^']+)",
        unless=r"peer access is not supported|out of memory|IMEX|fabric handle",
        sentence="GPUs of the node could not share memory with each other (P2P): {error}",
        checks=(
            "whether processes cannot open each other's GPU memory, because each container sees "
            "only its own GPU or has its own IPC namespace: give all of a node's GPUs to one "
            "container (--gpus all, --ipc=host), or NCCL_P2P_DISABLE=1",
            "whether cuMem is refused here: NCCL_CUMEM_ENABLE=0",
            "whether ACS or the IOMMU blocks P2P: NCCL_P2P_DISABLE=1 for a try; iommu=pt; AMD: "
            "amdgpu-dkms on the host, HSA_FORCE_FINE_GRAIN_PCIE=1",
            "whether PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True does not fit this NCCL: "
            "unset it",
        ),
        explains=_FOLLOWS,
        links=_TROUBLE,
        positive=(
            "/src/build/hipify/src/transport/p2p.cc:239 NCCL WARN hipIpcGetMemHandle failed : "
            "invalid argument",
            "transport/p2p.cc:237 NCCL WARN Cuda failure 'invalid argument'",
        ),
        negative=("NCCL INFO transport/p2p.cc:646 -> 1",),
    ),
    Rule(
        id="NCCL-110",
        category="gpu-oom",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("failure 'out of memory'", "failure 2 'out of memory'", "Failed to CUDA"),
        pattern=_CUDA + r"out of memory'|failed to CUDA (?:calloc|malloc|host alloc)",
        unless=r"Test CUDA failure",
        sentence="the GPU has no memory left for NCCL (out of memory)",
        because="NCCL needs some hundred MB a GPU outside of the framework's pool; other "
        "processes, or the framework, hold all of it",
        costs="NCCL cannot start or use its buffers",
        fix="stop other processes on the GPU; leave NCCL room (smaller batch, "
        "gpu_memory_utilization, XLA_PYTHON_CLIENT_MEM_FRACTION, set_per_process_memory_fraction); "
        "NCCL_BUFFSIZE=1048576 and fewer channels (NCCL_MAX_NCHANNELS) make it smaller",
        next="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-buffsize",),
        positive=(
            "include/alloc.h:102 NCCL WARN Cuda failure 2 'out of memory'",
            "include/alloc.h:176 NCCL WARN Cuda failure 'out of memory'",
            "Failed to CUDA calloc 4194304 bytes",
        ),
        negative=("Test CUDA failure common.cu:602 'out of memory'",),
    ),
    Rule(
        id="NCCL-113",
        category="gpu-architecture",
        role="cause",
        confidence="certain",
        anchors=("no kernel image is available", "named symbol not found"),
        pattern=r"(?:NCCL|RCCL|cuda failure|hip failure|hip error).{0,80}(?P<error>no kernel image "
        r"is available|named symbol not found)",
        unless=r"Test CUDA failure",
        sentence="NCCL has no code for this GPU: {error}",
        because="this NCCL is older than the GPU, or was built for other architectures",
        costs="NCCL's kernels cannot run",
        fix="a newer NCCL (torch wheel, image) that knows this GPU, or build it with NVCC_GENCODE "
        "for it",
        next="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        explains=_FOLLOWS,
        links=_DRIVER,
        positive=(
            "enqueue.cc:87 NCCL WARN Cuda failure 209 'no kernel image is available for execution "
            "on the device'",
        ),
        negative=("CUDA error: no kernel image is available for execution on the device",),
    ),
    Rule(
        id="NCCL-114",
        category="nvlink-topology",
        role="symptom",
        anchors=("reverse path from", "Could not find a path", "unable to find a path"),
        pattern=r"NCCL WARN .{0,40}(?:failed to find reverse path from|could not find a "
        r"path|unable to find a path)",
        sentence="NCCL sees NVLink or PCIe connections of this node that do not fit together",
        checks=(
            "whether an NVLink is down on one side: nvidia-smi nvlink -s; dmesg | grep -i xid; "
            "reset the GPUs",
            "whether a virtual machine or container shows only part of the GPUs or a wrong "
            "topology: nvidia-smi topo -m; NCCL_TOPO_FILE as the cloud provides it; "
            "NCCL_P2P_DISABLE=1 for a try",
        ),
        explains=_FOLLOWS,
        links=_TROUBLE,
        positive=(
            "graph/paths.cc:53 NCCL WARN Failed to find reverse path from remNode 0/b5000 nlinks 2 "
            "to node 0/5b000",
        ),
        negative=("NCCL INFO Could not find real path of /sys/class/net/lo/device",),
    ),
)
