"""NCCL's and RCCL's warnings that end a job and that no rule of their own knows, by what they mean.

Texts from NCCL 2.30 (5067397c) and RCCL 2.20 (0cbce2a7).
"""

from functools import partial

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.texts import GONE, rule_of

__all__ = ["RULES"]

_of = partial(
    rule_of,
    starts=r"(?:NCCL|RCCL|MSCCL\S*) (?:WARN|ERROR)\W{1,3}.{0,60}?",
    said="gpu-1:41:52 [0] init.cc:12 NCCL WARN ",
    costs="the communicator cannot be used: the rank ends, and the others wait for it",
    explains=(*GONE, "nccl-system-error", "nccl-remote-error", "nccl-invalid-usage"),
    links=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
)

RULES: tuple[Rule, ...] = (
    _of(
        """
        * : reduction operation * unknown to this communicator
        Attempt to use communicator before the previous operation returned ncclSuccess
        Blocking and nonblocking communicators are not allowed in the same group
        Coll * symmetric registration check failed on rank
        Data type supplied to user-created ncclRedOp_t does not match type
        Either none or all communicators in a ncclGroup() can be CUDA graph captured
        Streams given to a communicator within a NCCL group must either be all uncaptured
        Trying to recv to self without a matching send
        Trying to send to self without a matching recv
        bcastGrowHandle: parent comm and handle must be provided
        comm * has already been destroyed
        communicator was revoked
        Comm * is in abort state
        improper usage of ncclCommInitRank
        invalid pointer * / size
        ncclCommGetUniqueId should not be called when NCCL_COMM_ID is set
        ncclCommGrow: existing ranks must pass
        ncclCommGrow: new rank
        ncclCommGrow: total ranks
        ncclCommGrow: magic mismatch
        ncclGroupEnd: not in a group call
        ncclRedOpDestroy :
        ncclPutSignal: *Win is NULL
        ncclPutSignal: *Buff is NULL
        ncclPutSignal: *is not in a valid symmetric window
        ncclSignal: count must be 0
        ncclWaitSignal: *invalid
        ncclSimInfo_t argument not initialized
        argument must be initialized via
        Invalid NCCL_COMM_ID, please use format
        bootstrapInit: handles and parent are NULL
        Signal index * is invalid (must be 0)
        Context * is invalid (must be 0)
        Flags * is invalid (must be 0)
        Window address must be suitably aligned
        window has a NULL user pointer
        Could not find communicator matching window
        graphStreamOrdering=0 with graphUsageMode=2
        config * attribute value
        Error: corrupted comm object detected
        peer * is not within valid range of ranks
        Cannot create device communicator
        NCCL cannot use * plane ID
        """,
        id="NCCL-201",
        category="nccl-argument",
        stage="program",
        sentence="a call of NCCL is refused: {what}",
        because="the program, or the framework that it uses, calls NCCL in an order or with "
        "arguments that NCCL does not allow",
        fix="correct the call that it names; where a framework makes it, use the version of NCCL "
        "that this framework was built for",
        next="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL names the calls; the Python stack tells whose",
    ),
    _of(
        """
        Allocation failed
        Unrecoverable error detected: malloc
        Failed to malloc * bytes
        Failed to allocate memory for adapter addresses
        Intrusive address map * returned null
        unable to allocate requests
        unable to allocate subtasks
        Failed to allocate failure queue node
        MemManager: Failed to allocate
        MemManager: Failed to grow
        Not enough space to get elements
        """,
        id="NCCL-202",
        category="host-memory",
        sentence="NCCL could not get host memory: {what}",
        because="the process's or the container's memory is used up, or its limit is small",
        fix="raise the container's memory limit, or use fewer data loader workers a node; "
        "ulimit -v and -l unlimited",
        next="free -g; cat /sys/fs/cgroup/memory.max; ulimit -a",
    ),
    _of(
        """
        Failed to CUDA calloc
        Failed to CUDA host alloc
        Failed to CUDA malloc
        Failed to bind NVLink SHARP (NVLS) Multicast memory
        No suitable space found to accommodate size
        MemManager: Failed to copy to CPU backup
        MemManager: Failed to restore from CPU backup
        """,
        id="NCCL-203",
        category="gpu-oom",
        sentence="NCCL could not get GPU memory: {what}",
        because="NCCL needs hundreds of MB of each GPU for its buffers, more with many "
        "communicators and channels; the framework's cache leaves none",
        fix="leave room (a smaller batch, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "
        "torch.cuda.set_per_process_memory_fraction), or fewer groups; NCCL_NVLS_ENABLE=0 and "
        "NCCL_MAX_NCHANNELS=8 need less",
        next="nvidia-smi --query-gpu=memory.used,memory.total --format=csv",
    ),
    _of(
        """
        Error while * shared memory segment
        Error: Could not map * size
        Error: Could not map view of file
        Error: failed to create shared memory
        Error: failed to extend * to * bytes
        Error: failed to open shared memory
        SHM legacy: cudaHostUnregister after setup failure failed
        """,
        id="NCCL-204",
        category="shm-too-small",
        sentence="NCCL cannot make or open its shared-memory file: {what}",
        because="ranks of one node meet in files under /dev/shm, which containers give 64 MB of, or "
        "do not share",
        fix="docker run --shm-size=16g --ipc=host (Kubernetes: an emptyDir with medium: Memory at "
        "/dev/shm); or NCCL_SHM_DISABLE=1 at the cost of speed",
        next="df -h /dev/shm",
    ),
    _of(
        """
        cudaIpcGetMemHandle failed
        failed to peer with device
        UDS: Binding to socket * failed
        UDS: Cannot bind provided name
        UDS: Cannot connect to provided name
        UDS: Receiving data over socket
        UDS: Sending data over socket
        UDS: Socket creation error
        [Proxy Service UDS] Get listenSock fd fails
        [Proxy Service UDS] Poll failed
        MemManager: cuMem* failed for ptr
        MemManager: Failed to get FD from rank
        MemManager: *ncclCuMemMapAndSetAccess failed
        MemManager: FABRIC handle not valid
        ncclProxyCallBlockingUDS call to tpRank * failed
        ncclProxyClientGetFd call to tpRank * failed
        ncclProxyClientQueryFdBlocking call to tpRank * failed
        rank * invalid IPC peer
        rank * deregister IPC buffer
        IPC: Invalid socket handle
        IPC: Operation aborted
        """,
        id="NCCL-205",
        category="p2p-failed",
        sentence="processes of one node cannot share GPU memory: {what}",
        because="handles of GPU memory go from process to process over CUDA IPC, or as file "
        "descriptors over a Unix socket: containers with their own IPC, PID or network namespace, "
        "seccomp, or GPUs without peer access stop that",
        fix="give the ranks of a node one container or --ipc=host --pid=host and the same network "
        "namespace; to go on without: NCCL_CUMEM_ENABLE=0, NCCL_CUMEM_HOST_ENABLE=0, or "
        "NCCL_P2P_DISABLE=1",
        next="nvidia-smi topo -p2p r; lsns -t ipc -t net",
    ),
    _of(
        """
        Failed to open libnvidia-ml.so
        Failed to load nvml.dll
        nvmlInit*() failed
        nvmlDeviceGetCount*() failed
        nvmlDeviceGetCount() reported more devices
        nvmlDeviceGetCudaComputeCapability(*) failed
        nvmlDeviceGetHandleByIndex(*) failed
        nvmlDeviceGetP2PStatus(*) failed
        Failed to get PCI info from NVML device
        CUDA Driver version found is * Minimum requirement is
        CUDA some PFN functions not found in the library
        CUMEM not supported prior to CUDA
        CUMEM Host is not supported prior to CUDA
        dlvsym failed on
        ncclOsDlsym failed on
        One-sided RMA requires CUDA driver
        NCCL cannot be captured in a graph if either it wasn't built with CUDA runtime
        cudaArch * dynamic smem * exceeds device/fn maxSharedMem
        FP8 reduction support begins with sm90
        """,
        id="NCCL-206",
        category="driver-too-old",
        sentence="NCCL and this node's NVIDIA driver do not go together: {what}",
        because="NCCL asks the driver (libcuda, NVML) for functions by name and version when it "
        "starts; an old, partly installed, or unhealthy driver answers with an error",
        fix="update the driver to what this CUDA version needs, or use a build of NCCL for the older "
        "CUDA; in a container NVIDIA_DRIVER_CAPABILITIES=compute,utility brings NVML",
        next="nvidia-smi; ldconfig -p | grep -E 'libcuda|nvidia-ml'",
    ),
    _of(
        """
        Add C2c error : could not find DEV
        Add NVLink error : could not find DEV
        Add PCI Link error : could not find
        Add XGMI error : could not find
        Cannot find node of type
        Could not find NET with id
        Could not find NIC for rank
        Could not find any local path from gpu
        Could not find gpu rank
        Could not find intermediate GPU
        Could not find net id
        Could not find node of type
        Could not find rev link for
        Failed to find reverse path from
        No path computed to go from
        GetXmlFromCpu : could not find CPU numa ID
        getXmlFromCpu: Unknown CPU architecture
        Error : XML parser is limited
        Error : could not find CPU close to GPU
        Error : ran out of room to store found nodes
        Error : tried to create too many nodes
        Error : too many Topo links
        Error : too many XML subnodes
        Error : ring * does not
        Internal error : tree already has
        XML Export Channel : rank
        XML Mismatch :
        ncclTopoDevToRank could not find rank
        ncclTopoRankToIndex could not find rank
        ncclTopoGetSystemFromXml: system node not found
        ncclTopoGetDevNodes : too many DEV nodes
        ncclTopoFillNet: parent is NULL
        ncclOsGetPciDevice*: Failed to parse PCI bus ID
        Invalid PCI bus ID format
        No transport found for rank
        Rank * has no transport for
        localHostHash = * not found in the list
        nLocals = * should be a diviser
        Failed to determine intra proc ranks
        Failed to determine local ranks
        KV Convert to str : could not find value
        MLOPart index * out of range
        TOPO/NET : Can't find busId of child
        TOPO/NET : Could not force merge NICs
        TOPO/NET : Couldn't generate unique busId
        TOPO/NET : Tried to merge too many NICs
        TOPO/NET : Only matched
        Specified fused NIC * which has too many devices
        Fusing NET devices from different NUMA domains
        """,
        id="NCCL-207",
        category="topo-file",
        sentence="NCCL cannot make sense of this machine's topology: {what}",
        because="what /sys, NVML and a topology file (NCCL_TOPO_FILE) say of GPUs, NICs and CPUs does "
        "not fit together: a virtual machine or container that hides parts of /sys, a file of another "
        "machine type, a GPU or NIC that is missing, or more devices than this NCCL knows",
        fix="unset NCCL_TOPO_FILE, NCCL_GRAPH_FILE and NCCL_NET_FORCE_MERGE, or give the file of this "
        "machine type; mount /sys whole; use a newer NCCL for new machines",
        next="NCCL_TOPO_DUMP_FILE=/tmp/topo.xml; nvidia-smi topo -m",
    ),
    _of(
        """
        Multiple Ranks are using the same GPU
        communicator has multiple ranks using the same NVML device
        * allocated on device * mismatchs with NCCL device
        """,
        id="NCCL-212",
        category="duplicate-gpu",
        stage="program",
        sentence="ranks do not use one GPU each: {what}",
        because="each rank must set its own device before the first collective",
        fix="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) first; start as many ranks as GPUs; "
        "on purpose: NCCL_MULTI_RANK_GPU_ENABLE=1",
        next="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    ),
    _of(
        """
        [Proxy Service*] Failed to
        [Proxy Progress] Failed to set CUDA device
        [Proxy Service*] Poll failed
        [Proxy Service] proxyDestroy failed
        [Proxy service] Too many connections
        [Service thread] Could not receive type from localRank
        [Service thread] Error encountered progressing operation
        [Service thread] Unknown command
        Proxy append
        Proxy response for opId
        Proxy Call to rank * failed
        ncclProxyConnect: * out of bounds
        recvProxyConnect: * is * !=
        sendProxyConnect: * is * !=
        Unable to post incomplete proxy op chain
        Mismatched response size for opId
        asyncJobLaunch: failed to join thread
        ncclAsyncJobComplete: job * failed
        communicator encountered a fatal error
        commReclaim: *error
        commDestroySync: *error
        ncclCommSetAsyncError: error comm
        ncclProxyStop: comm * error
        hostStreamPlanCallback() failed
        Thread creation failed
        Failed to execute operation
        sched_*etaffinity failed with error
        """,
        id="NCCL-214",
        category="nccl-peer-lost",
        role="symptom",
        stage="aftermath",
        sentence="a thread of NCCL gave up: {what}",
        checks=(
            "the first NCCL WARN of all ranks: another rank, or an earlier line of this one, began it",
            "whether the process has room for threads and files (ulimit -u, ulimit -n, pids.max)",
        ),
    ),
    _of(
        """
        Could not find pool of op
        Couldn't find opId
        Attempting to dequeue
        Device object does not exist in shadow pool
        Dev comm not found
        List loop at element
        Listencomm in unknown state
        Inactive op has next set
        Object pointer is NULL
        P2p schedule creation has bugs
        Unexpected connections are not empty
        Unknown pattern
        Unknown device code index
        RMA proxy completed request with no inflight credit
        RMA proxy iput/iputSignal returned success with NULL request
        ncclRma*: unknown desc type
        ncclRma*: descriptor is not a
        ncclSymkGetKernelIndex: unknown
        ncclSymmetricTaskScheduler ran out of channel space
        Error on GFD test
        getRandomData:
        Failed to open /dev/urandom
        Invalid key size
        Net registration invalid algorithm
        MemManager: Cannot
        MemManager: Buffer ptr
        MemManager: Unknown handle type
        MemManager: *handle exchange incomplete
        MemManager: *barrier failed during resume
        MemManager: AllGather counts failed
        MemManager: Could not find matching handle
        Group creation failed
        rank * deregister * failed
        Error: trying to connect already connected
        Could not find id
        Given size=* extends beyond allocation
        Intrusive address map pointer is NULL
        Invalid client status
        MCBasePtr * needs to be valid
        RMA CE: peerBuff is NULL
        Storing response for already completed
        Thread join failed
        ncclIpcSocketGetFd: pass NULL
        PXN should not use host buffers
        ncclDevrWorldToLsaRank
        The provided lsaRank
        No allocation found at offset
        rank * exceeds ndev
        ncclOsSocketSetFlags: invalid socket
        ncclSocketMultiOp: invalid arguments
        NET/Socket : test called with NULL
        ncclNetSocketListen dev
        ncclRmaIbProxyIPutSignal: Unsupported
        """,
        id="NCCL-215",
        category="nccl-internal",
        sentence="NCCL contradicts itself: {what}",
        because="NCCL found its own state in a shape that must not be: a bug of this version, memory "
        "that something overwrote, or a handle that was used after its end",
        fix="use the newest NCCL of this minor version (pip install -U nvidia-nccl-cu12), and look for "
        "destroyed or shared communicators in the program; if it stays, report it with NCCL_DEBUG=INFO",
        next="NCCL_DEBUG=INFO; python -c 'import torch; print(torch.cuda.nccl.version())'",
    ),
)
