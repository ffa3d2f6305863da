"""Warnings of NCCL and RCCL about networks, features and versions that end a job, by what they mean.

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
        Bootstrap : no socket interface found
        NET/IB : No IP interface found
        NET/Socket : No usable listening interface found
        NET/Socket : no interface found
        Net : No valid *:port pair found
        Net : No valid <IPv4_or_hostname>:<port> pair found
        Net : unsupported IP family
        Net : string is null
        no device found matching * verify NCCL_OOB_NET_IFNAME
        no device found after excluding * verify NCCL_OOB_NET_IFNAME
        """,
        id="NCCL-208",
        category="ifname-no-match",
        sentence="NCCL finds no network interface that it may use: {what}",
        because="NCCL_SOCKET_IFNAME or NCCL_OOB_NET_IFNAME names none of this host's interfaces, or "
        "there is none with an address but loopback",
        fix="set NCCL_SOCKET_IFNAME to an interface that all hosts have up (ip -br addr), or unset it",
        next="ip -br addr",
    ),
    _of(
        """
        NCCL library is not backwards compatible
        NCCL library is too old
        NCCL version mismatch with remote peer
        The application was compiled with too old version of NCCL
        Bootstrap Root : mismatch in info from procs
        Bootstrap Root : localId * is out of range
        Message truncated : received
        """,
        id="NCCL-209",
        category="nccl-version-mismatch",
        sentence="two versions of NCCL meet: {what}",
        because="the library that was loaded is not the one that the program was built with, or other "
        "ranks load another; LD_LIBRARY_PATH and the system's libnccl come before the wheel's",
        fix="one image on all nodes; unset LD_LIBRARY_PATH and LD_PRELOAD of libnccl, and see which is "
        "loaded: python -c 'import torch; print(torch.cuda.nccl.version())'",
        next="ldconfig -p | grep nccl; pip list | grep -i nccl",
    ),
    _of(
        """
        NET/IB : *async fatal event
        NET/IB : unknown event type
        NET/IB : Unable to query
        NET/IB : Attempted to * incompatible devices
        NET/IB : Remote * device is incompatible
        NET/IB : Cannot allocate any more virtual devices
        NET/IB : Cannot use physical device
        NET/IB : Can't make virtual NIC
        NET/IB : Trying to use non-existent virtual device
        NET/IB : req * posted incorrect receive info
        NET/IB: Fatal error. Detected
        NET/IB: The error is fatal
        NET/IB: Got CQE with error
        NET/IB: Maximum number of probing attempts
        NET/IB: Could not find a functional device
        NET/IB: Could not find a replacement QP
        NET/IB: Unknown completion
        NET/IB: Unsupported completion status
        NET/IB: Invalid wr_id
        NET/IB: Invalid request index
        NET/IB: *expected a '* request but got
        NET/IB: Error in mlx5dv_
        NET/IB: mlx5dv_create_qp failed
        NET/IB: open failed in ncclIbRoceGetVersionNum
        NET/IB: read failed in ncclIbRoceGetVersionNum
        NET/IB: could not find mr
        NET/IB: NCCL_IB_SUBNET_PREFIX_LEN=* is out of range
        NET/IB: OOO RQ is force enabled but
        NET/IB: ncclIb* called when comm->base.ready == 0
        Call to ibv_poll_cq() returned
        ibv_post_recv() failed with error
        ibv_post_send() failed with error
        NET/MLX5: Call to
        DOCA Error
        DOCA failure
        NET/IB : Requested properties for
        NET/IB: *could not retreive a request
        NET/IB: Attempting to
        NET/IB: Cannot replace QP
        NET/IB: Encountered a stale CQE
        NET/IB: Failed to initialize a resiliency
        NET/IB: No format specified
        NET/IB: Requested alive message batch
        NET/IB: There are still * outstanding recovery
        NET/IB: Unexpected GoToPrevState
        NET/IB: Unrecognized request type
        NET/IB: Unsupported type of request
        NET/IB: sendReq(*
        NET/IB : * unknown event type
        """,
        id="NIB-301",
        category="ib-call",
        stage="network",
        sentence="an RDMA device of this host fails under NCCL: {what}",
        because="the adapter, its driver or its link answered a verbs call with an error",
        fix="look at the port and its counters (ibstat, rdma link, ethtool), the kernel's log of that "
        "adapter, and that all hosts use adapters of one kind and link layer (NCCL_IB_HCA)",
        next="ibstat; dmesg -T | grep -i mlx5",
    ),
    _of(
        """
        gdr_pin_buffer(*
        gdr_map(*
        gdr_get_info(*
        gdr_copy_to_mapping(*
        gdr_copy_from_mapping(*
        gdr_pin_buffer_v2(*
        gdr_close() failed
        Window registration of addresses that span multiple physical segments requires DMABUF
        """,
        id="GDR-201",
        category="gdr-gdrcopy",
        sentence="GPU memory cannot be mapped for the network: {what}",
        because="GDRCopy's kernel module (gdrdrv) or GPUDirect RDMA is missing, old, or not "
        "allowed here",
        fix="load gdrdrv and nvidia-peermem (or a kernel with DMA-BUF) on the host and give the "
        "container /dev/gdrdrv; NCCL_GDRCOPY_ENABLE=0 goes without",
        next="lsmod | grep -E 'gdrdrv|nvidia_peermem'",
    ),
    _of(
        """
        GIN Error detected
        GIN Proxy: RMA backend not found
        GIN VA signals are required
        GIN strong signals are required
        GIN plugin * returned invalid context
        GIN plugin does not support
        Cannot create worldGinBarrier
        Cannot get backend version for invalid GIN type
        Elastic GIN: rank
        Invalid GIN * backend version
        User requested GIN
        One sided RMA: host RMA is not supported
        RMA CE is not initialized
        RMA proxy is not connected
        RMA: trying to send to non-connected peer
        RMA v13 (*) requires GIN PROXY type
        rank * - GIN Symmetric register failed
        rank * - RMA Symmetric register failed
        Communicator does not support symmetric memory
        Multicast support requested for team but none available
        Multimem pointer requested but system does not support
        ncclPutSignal currently does not support
        Hierarchical CE collective not supported
        Segment * has unsupported location type
        VA represented by * contains CPU-backed physical segments
        Child comms * fails to share parent comms
        MemManager: *not supported, memory manager is disabled
        MemManager: * failed, memory manager is disabled
        Memory * not supported with split_share communicators
        """,
        id="NCCL-210",
        category="nccl-feature",
        sentence="NCCL was asked for what this system does not have: {what}",
        because="device-initiated networking (GIN), one-sided calls, symmetric memory and multicast "
        "need certain GPUs, drivers, adapters and plugins on all ranks",
        fix="turn the feature off where it was asked for (the framework's option; NCCL_GIN_ENABLE=0, "
        "NCCL_NVLS_ENABLE=0, NCCL_COLLNET_ENABLE=0), or give all ranks what it needs",
        next="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV",
    ),
    _of(
        """
        MNNVL (* is available but not working on this system
        """,
        id="NCCL-211",
        category="imex",
        sentence="NVLink between nodes is there and does not work: {what}",
        because="the IMEX daemon or its channel is missing on a node of this NVLink domain",
        fix="start nvidia-imex on all nodes of the domain with the same nodes_config.cfg and give the "
        "job /dev/nvidia-caps-imex-channels/channel0; NCCL_MNNVL_ENABLE=0 goes without",
        next="nvidia-imex-ctl -N",
    ),
    _of(
        """
        Detected mixed local CollNet device counts
        Detected mixed local Net device counts
        CollNet sizes: want=
        Comm config netName (*) does not match
        Split shares resources, but parent comm netName
        failed to set the number of devices for netPlugin
        Failed to initialize any NET plugin
        trying to access the number of devices of an uninitialized
        Rma connect : min local net count is zero
        Invalid number of network devices
        Unknown netDevs policy
        lib wrapper not initialized
        """,
        id="NCCL-213",
        category="net-mismatch",
        sentence="ranks do not have the same network devices or plugin: {what}",
        because="NCCL_NET, NCCL_NET_PLUGIN, NCCL_IB_HCA or the plugin in the image differ between "
        "ranks, "
        "or an adapter is missing on one host",
        fix="the same image and settings on all nodes; count the adapters of each host (ibv_devinfo)",
        next="env | grep NCCL_; ibv_devinfo -l",
    ),
    _of(
        """
        *: connect to * failed :
        *: connect to * returned *, exceeded error retry count
        socketPollConnect* failed with error
        SocketPollConnect to * failed with error
        SocketProgressOpt: Call to * failed
        SocketTryAccept: Accept failed
        SocketTryAccept: exceeded error retry count
        NET/Socket : socket progress error
        ncclSocket*: wrong socket state
        ncclSocket*: socket is invalid
        ncclSocket*: pass NULL socket
        ncclSocket*: unexpected socket state
        ncclSocket*: invalid socket
        ncclSocket*: socket state * is not ready
        Failed to recv:
        Failed to send:
        Socket recv failed while polling
        """,
        id="NSOCK-201",
        category="network",
        role="symptom",
        stage="network",
        sentence="a connection of NCCL failed: {what}",
        checks=(
            "whether the peer that it names still runs: its own log tells why it ended",
            "whether hosts reach each other over the interface that NCCL chose (Bootstrap : Using "
            "…), on "
            "every port: firewalls, security groups, NCCL_SOCKET_IFNAME",
        ),
    ),
    _of(
        """
        CliqueManager must be initialized before use
        MSCCL Internal Scheduler: * find algorithm files
        MSCCL Internal Scheduler: *failed
        MSCCL++: *not
        MSCCL++: * failed
        MSCCL: *
        Could not open MSCCL XML algorithm file
        Invalid MSCCL function type
        """,
        id="RCCL-201",
        category="amd-setup",
        sentence="RCCL's own algorithms (MSCCL) cannot be used: {what}",
        because="the algorithm files are missing or do not fit this RCCL and number of GPUs",
        fix="RCCL_MSCCL_ENABLE=0 RCCL_MSCCLPP_ENABLE=0 goes without; else install RCCL with its "
        "msccl-algorithms folder",
        next="ls /opt/rocm/share/rccl/msccl-algorithms",
    ),
    _of(
        """
        Failed to find ROCm runtime library
        Failed to load ROCr missing symbol
        pfn_hsa_system_get_info failed
        ROCm SMI init failure
        rocm_smi_lib: *not found
        rocprofiler-register failed
        """,
        id="RCCL-202",
        category="amd-setup",
        sentence="RCCL finds no whole ROCm runtime: {what}",
        because="libhsa-runtime64 or rocm_smi is missing in the image, or of another ROCm version",
        fix="use one ROCm version for driver, image and framework; RCCL_ROCR_PATH names the library",
        next="ls -l /opt/rocm/lib/libhsa-runtime64.so*; rocm-smi",
    ),
)
