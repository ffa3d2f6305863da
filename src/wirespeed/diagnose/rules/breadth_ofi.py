"""The OFI plugin of NCCL (aws-ofi-nccl), libfabric's providers, by what their errors mean.

Texts from aws-ofi-nccl 2daf7d3 and libfabric 2.6.0rc1.
"""

from functools import partial

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.texts import GONE, rule_of

__all__ = ["RULES"]

_of = partial(
    rule_of,
    starts=r"(?:NCCL WARN (?:NET/OFI|OFI)|libfabric:\d+:\S*<warn>).{0,80}?",
    said="ip-10-0-0-1:41:52 [0] nccl_ofi_net.c:12 NCCL WARN NET/OFI ",
    costs="this rank cannot communicate: it ends, and the others wait for it",
    explains=(*GONE, "nccl-system-error", "nccl-remote-error", "nccl-invalid-usage"),
    links=("https://github.com/aws/aws-ofi-nccl/tree/master/doc",),
)

RULES: tuple[Rule, ...] = (
    _of(
        """
        Unable to register memory
        Could not register memory
        Unable to enable MR
        Unable to bind MR
        Unable to map MR buffer
        Unable to deallocate MR buffer
        fi_mr_bind * failed
        fi_mr_regattr * failed
        Failed call to reg_mr
        Failed call to dereg_mr
        Memory registration may not have completed
        MR cache: *
        Passed fd handle, but not compiled with DMA-BUF support
        Provider * supports MR key size
        GDR support reported to NCCL but then couldn't be configured
        Failed to register * memory
        Unable to get *MR
        Could not register dummy buffer
        Couldn't register memory region
        Could not set registration request attributes
        Local endpoint memory registration failed
        Memory registration key is not available
        fi_mr_enable failed
        Unable to get allocate flush buffer
        Unable to copy sentinel value to gpu flush buffer
        """,
        id="OFI-201",
        category="gdr-registration",
        sentence="memory cannot be registered with the network device: {what}",
        because="locked memory is limited (ulimit -l), GPUDirect is not there (nvidia-peermem, "
        "DMA-BUF), or "
        "the device has no registrations left",
        fix="ulimit -l unlimited for the job, load nvidia-peermem or use a kernel with DMA-BUF "
        "and a driver "
        "with open kernel modules; OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK only to find out",
        next="ulimit -l; lsmod | grep peermem",
    ),
    _of(
        """
        Couldn't open a fabric
        Couldn't create fabric
        Couldn't open a domain
        Couldn't allocate endpoint
        Couldn't bind EP
        Couldn't create completion queue
        Couldn't create address vector
        Couldn't enable endpoint
        Couldn't open AV
        Couldn't open CQ
        Couldn't open a fabric provider
        Could not create Libfabric endpoint
        Could not set FI_OPT
        Couldn't set FI_OPT
        Couldn't get FI_OPT
        Retrieving option endpoint FI_OPT
        Querying provider capabilities failed
        FI_OPT_EFA_EMULATED_WRITE not declared
        fi_dupinfo failed
        Unable to duplicate libfabric NIC info
        EFA provider requires at least libfabric version
        Initializing rail * failed
        Initializing control rail * failed
        Assigning device * failed
        No info list provided
        fi_nic attributes not available
        Call to fi_getname() failed
        bootstrap allgather * failed
        Couldn't create domain
        Could not create address vector
        Could not set * RC
        fi_open_ops for EFA features failed
        Initializing a new domain for device
        Provider * does not provide enough tag bits
        Provider does not support 4 bytes of immediate data
        Endpoint MR mode is not supported
        FI_OPT_EFA_EMULATED_WRITE is true when
        Insufficient Libfabric devices found
        Unable to insert local address into address vector
        Setting * option failed
        CUDA initialization failed
        Could not allocate new fi_info
        """,
        id="OFI-202",
        category="efa-error",
        sentence="the OFI plugin cannot open its network device: {what}",
        because="libfabric finds no provider or device that fits, or an older libfabric than the "
        "plugin "
        "needs is loaded",
        fix="give the pod vpc.amazonaws.com/efa (or /dev/infiniband), use the EFA installer's "
        "libfabric "
        "(/opt/amazon/efa) and plugin together; FI_PROVIDER must name one that fi_info lists",
        next="fi_info -p efa; ls /dev/infiniband",
    ),
    _of(
        """
        Failed counting number of nodes that have
        Unable to initialize hardware topology
        Unable to retrieve next NIC info list
        Unable to allocate product name
        Unable to (re)allocate product name
        Unable to flush NCCL topology file
        Unable to write NCCL topology file
        Invalid NCCL OFI topology user data
        Invalid topology
        Expected topology node to be
        Unknown link width
        Info count (*) and num_rails (*) do not match
        Could not find NIC * in topology
        lookup of rail for index
        Device property file path malloc failed
        pciPath: Allocation failure
        Unable to load hardware topology
        Topology reported unexpected number of devices
        Retrieval of topology node
        Expected initialized topology
        Invalid state of topology
        Invalid hwloc object
        Unknown link speed
        Did not find a device with expected index
        Bridge is missing attribute
        Number of forced rails
        """,
        id="OFI-203",
        category="topo-file",
        sentence="the OFI plugin cannot make sense of this machine's devices: {what}",
        because="GPUs and adapters are grouped by their place in PCI; a device is missing, or a "
        "container "
        "hides parts of /sys",
        fix="compare the adapters with a good node (fi_info, lspci), mount /sys whole, and unset "
        "NCCL_TOPO_FILE and OFI_NCCL_* settings of another machine type",
        next="fi_info -p efa | grep -c domain; lspci | grep -ciE 'efa|mellanox'",
    ),
    _of(
        """
        Unable to allocate
        Allocating initial freelist entries failed
        Couldn't allocate * comm object
        Failed to allocate
        Freelist not allocated
        freelist * is full
        No free eager header buffers
        No comm id available
        Cannot allocate an ID from
        Cannot open more connection for device
        Could not create eager header freelist
        cuMemAlloc failed
        vmm_alloc: * failed
        Cannot allocate memory for
        Cannot allocate peer
        Couldn't allocate listen_comm
        Couldn't allocate send_comm
        Allocation of fi_info failed
        Call to nccl_ofi_freelist_entry_alloc failed
        No IDs available
        No freelist items available
        Did not reorder arrays due to calloc failure
        Receiver eager queue full
        Could not create user data vector
        """,
        id="OFI-204",
        category="host-memory",
        sentence="the OFI plugin ran out of memory or entries: {what}",
        because="many communicators and connections, a small memory limit, or huge pages that are "
        "used up",
        fix="raise the container's memory limit and huge pages, use fewer communicators; "
        "NCCL_MAX_NCHANNELS=8 needs fewer",
        next="free -g; grep Huge /proc/meminfo",
    ),
    _of(
        """
        CM connect failed
        CM: Unable to insert remote address
        Unable to insert remote address into address vector
        preparing for connection failed
        Caught exception in plugin
        Caught exception in GIN
        Could not send request for device
        Call to post_with_pending_retry failed
        Failed call to fi_
        Failed call to post_rx_buff
        Failed call to process completions
        fi_read * failed
        fi_read failed
        fi_sendmsg failed
        fi_write* failed
        Unable to issue read operation
        Unable to post request
        Unable to retrieve completion queue entries
        Request * completed with error
        Metadata send failed
        Write failed for seq_num
        Send close message complete with error
        Context progress failed
        Error polling
        handle_ack_completion failure
        Aborting due to call failure
        Closing * with inflight requests
        gdrcopy worker failed
        Cannot post CTS packet
        Error while processing
        EFA provider internal * failure
        RECV event had NULL ctx
        * failed; RC:
        Unable to post receive buffer
        Unable to read from fi_cq_readerr
        Received error entry without a context
        Completion with unexpected NULL op_context
        Failed call to *process
        Preparation of rx buffers failed
        Initializing endpoint failed
        """,
        id="OFI-205",
        category="efa-peer",
        role="symptom",
        stage="network",
        sentence="the network under the OFI plugin failed: {what}",
        checks=(
            "whether the peer ended first: the first error of all ranks' logs",
            "whether the security group of all nodes allows all traffic to and from itself (EFA "
            "needs it both ways)",
            "whether the device's counters or the kernel's log tell of errors (rdma statistic; dmesg)",
        ),
    ),
    _of(
        """
        gin GDAKI:
        gin: OFI NET plugin
        GIN listen
        GIN requires GDRCopy
        GIN connect
        Signal VA * outside MR range
        Signal offset * out of range
        Unknown GIN message type
        GDRCopy segment pin failed
        gdr_map failed
        Could not capture a CUDA context
        cuCtxGetCurrent failed
        cuStreamCreate failed
        cuStreamSynchronize failed
        cuMemGetAddressRange failed
        No CUDA driver entry point functions
        GIN only supports RDMA
        GIN: error
        cuCtxSetCurrent failed
        cuMemcpyHtoDAsync failed
        GDRCopy segment deregister
        GDRCopy support not available
        Signal base address
        """,
        id="OFI-206",
        category="nccl-feature",
        sentence="device-initiated networking over OFI does not work here: {what}",
        because="GIN needs GDRCopy 2.5, a CUDA driver and a provider that support it on all ranks",
        fix="NCCL_GIN_ENABLE=0 goes without; else install GDRCopy and the newest EFA installer on "
        "all nodes",
        next="lsmod | grep gdrdrv; fi_info --version",
    ),
    _of(
        """
        Called * on inactive communicator
        Called get_conn_resp_msg on
        Invalid request provided
        Invalid endpoint provided
        Invalid device provided
        Invalid comm object provided
        Invalid listen communicator provided
        Invalid buffer pointer provided
        Invalid communicator provided
        Invalid number of receives
        Invalid number of control rails
        Invalid state of receive
        Invalid type in msg buff
        Invalid non-rx_buff request
        Invalid user data pointer
        Invalid value for OFI_NCCL
        Invalid Device Interface
        Attempt to insert duplicate id
        Attempted to free an ID
        Comm for device does not have valid free list
        Did not find entry to delete
        Entry already exists for input
        Handle * object already has an active
        Endpoint's address length
        Memory handles array is NULL
        Mutex initialization failed
        pthread_mutex_* failed
        Provided handle is NULL
        Provided null request
        Received an invalid communicator ID
        Received * message for non-existent
        Recv completion with unexpected type
        Request for group flush size
        Unable to get NCCL OFI
        ep was already closed
        rdma endpoint destructor
        recv_segms requests are never
        unknown transport
        domain is null
        Attempted to deregister NULL
        Cannot free an ID
        Duplicate request in message buffer
        Invalid argument: NULL pointer
        Invalid buffer type provided
        Invalid memory handle provided
        Invalid request context provided
        Invalid result of msgbuff
        Invalid duplicate address
        Invalid value for EAGER_MAX_SIZE
        Message * has invalid status
        No ctrl msg entry found
        Schedule for req * is NULL
        ID value * out of range
        Conn response request is not initialized
        Finalizing already finalized plugin
        MR key config parsing failed
        Could not compile platform_type regex
        Unable to configure invalid endpoint
        Can not support more than
        """,
        id="OFI-207",
        category="nccl-internal",
        sentence="the OFI plugin contradicts itself or a setting: {what}",
        because="its state is one that must not be: a bug, a setting that it does not take, or a "
        "plugin and an "
        "NCCL that do not fit each other",
        fix="unset OFI_NCCL_* settings, and use the plugin's newest release with the NCCL that it "
        "names",
        next="env | grep OFI_NCCL; strings libnccl-net.so | grep -i version",
    ),
    _of(
        """
        *failed
        *error
        Unable to *
        Cannot *
        Could not *
        Failed to *
        *exhausted
        *mismatch
        *not supported
        Unsupported *
        Unknown *
        Invalid *
        *unknown state
        *wrong generation
        *out of range
        *already assigned to buffer
        *verification failed
        *cannot be *
        *is required by implementation
        *not registered
        *is invalid
        *does not exist
        *not requested
        *unknown packet type
        *larger than the target buffer
        """,
        id="OFI-208",
        category="efa-error",
        role="symptom",
        stage="network",
        anchors=("libfabric:",),
        starts=r"libfabric:\d+:\d*:+(?:efa|verbs|tcp|core|ofi_\w+|shm|net)\S*<warn> ",
        unless=r"failed to find |not available|keepalive|host id|disabling|falling back|shm provider",
        said="libfabric:41:1785000000:efa:cq:efa_cq_poll():12<warn> ",
        sentence="libfabric reports an error of its network device: {what}",
        checks=(
            "whether the peer ended first: the first error of all ranks' logs",
            "whether the device is up and its counters quiet (fi_info, rdma statistic, dmesg)",
            "whether all nodes have one libfabric and EFA driver (fi_info --version)",
        ),
    ),
)
