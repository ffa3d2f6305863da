"""What torch.distributed, torchrun, gloo and DeepSpeed refuse, beyond the rules of their own.

Texts from torch 2.13, gloo 70dc360 and DeepSpeed 0.19.5.
"""

from functools import partial

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.texts import rule_of

__all__ = ["RULES"]

_of = partial(
    rule_of,
    stage="program",
    starts=r"(?:^[\w.]+(?:Error|Exception): .{0,120}?|\bwhat\(\):\s+.{0,60}?|^\[c10d\] )",
    said="RuntimeError: ",
    costs="this rank ends; the others wait for it",
)

RULES: tuple[Rule, ...] = (
    _of(
        """
        Invalid function argument* Expected parameter
        Invalid function argument: output_tensor_lists should be a list
        Invalid usage of tensors with different dtypes
        Tensors must be contiguous
        Tensors must be CUDA and dense
        Tensors must be on the same device
        Tensor list must be nonempty
        tensors must have identical
        output tensor size must be equal to world_size times input tensor size
        input tensor must be the same size as output size times world size
        Input and output tensors must have
        All tensor operands to scatter/gather must have the same
        All ops need to use the same group
        Argument ``*_list`` must
        Expected argument scatter_object_output_list
        source rank must provide non-None scatter_object_input_list
        Must provide object_gather_list on dst rank
        Mismatch in return ranks for object sizes
        all_reduce does not support * on complex tensors
        Cannot use ReduceOp.* with
        Unhandled ReduceOp
        Coalescing manager requires all collectives to be the same type
        Tensor's dtype is not supported
        unsupported data type * for
        Unconvertible NCCL type
        Input tensor data type is not supported for NCCL
        Split sizes doesn't match total dim 0 size
        Tensor's dim 0 does not divide equally across group size
        monitored_barrier is only implemented for GLOO backend
        """,
        id="TORCH-001",
        category="collective-argument",
        sentence="a collective is called with what it does not take: {what}",
        because="shapes, dtypes, devices and lists must fit the operation, on every rank",
        fix="correct the tensors of the call that the Python stack names: contiguous, on this rank's "
        "device, sizes a multiple of the world size where they are split",
        next="TORCH_DISTRIBUTED_DEBUG=DETAIL checks shapes and dtypes between ranks",
    ),
    _of(
        """
        Group * is not registered
        Invalid process group specified
        Process group * is not initialized in the world group map
        Process group cannot be None
        Could not resolve the process group registered under the name
        A process group is already registered under the name
        Global rank * is not part of
        Group rank * is not part of
        The specified group name has already been created
        the new group's world size should be less or equal
        the new group's rank should be within
        the split group
        split_ranks cannot be None
        No device associated with the default pg
        No backend for the parent process group
        Can't specify both group_rank and global_rank
        Cannot specify both init_method and store
        Must specify global_rank or group_rank
        rank should not be the same as the rank of the current process
        ranks list must not contain duplicate entries
        The world size (*) must be divisible by 'group_size
        The arg 'group_size'
        Rank * has appeared in both subgroup
        Rank * is out of range. Valid ranks
        Mismatched bound device between new pg and the default pg
        PG * was not found while torch.compile tracing
        Expected ProcessGroup, got
        Expecting a ProcessGroup, but got
        _ranks_not_in_group
        ranks_to_exclude
        Cannot shrink a process group
        Cannot exclude all * ranks from process group
        Expected ProcessGroup*, got
        Expected backend_options argument
        ProcessGroupWrapper unsupported without GLOO
        We expect ProcessGroup before calling
        Expects at least one ProcessGroup
        ProcessGroup has non-empty op list
        does not match the default process group's bound_device_id
        """,
        id="TORCH-002",
        category="process-group",
        sentence="a process group is used that is not there or does not fit: {what}",
        because="groups are made by all ranks in the same order with dist.new_group, and hold "
        "only their "
        "members; after destroy_process_group none is valid",
        fix="make each group on every rank, in one order, before its use, and call it on its "
        "members only",
        next="print(dist.get_process_group_ranks(group)) on each rank",
    ),
    _of(
        """
        DeviceMesh process groups not initialized
        DeviceMesh only support homogeneous hardware
        Mesh should not be bigger than default world size
        Mesh dimension '*' does not exist
        Invalid mesh_dim_name
        mesh_shape and mesh_dim_names should have same length
        mesh_dim_names must have same length
        Each device mesh dimension should
        Each mesh_dim_name must be unique
        Cannot * a DeviceMesh without mesh_dim_names
        Cannot concatenate * mesh
        No device mesh is currently active
        Only 1D device mesh is supported
        Please use a * layout when creating a DeviceMesh
        Found the DeviceMesh have * dimensions
        backend_override should have the same length
        Expects mesh with ndim equal to number of ProcessGroups
        Invalid mesh * for ProcessGroup
        Must pass mesh* if passing multiple ProcessGroups
        """,
        id="TORCH-003",
        category="process-group",
        sentence="the device mesh does not fit this job: {what}",
        because="the product of its dimensions must be the number of ranks, and its names must be "
        "those "
        "that are asked for",
        fix="give init_device_mesh sizes whose product is WORLD_SIZE, with a name each",
        next="echo $WORLD_SIZE",
    ),
    _of(
        """
        Distributed package doesn't have * built in
        Unknown backend * Specify a
        Unknown c10d backend type
        No backend type associated with device type
        Default device not found, because no backend
        Default backend not registered for device
        Invalid device:backend pairing
        Duplicate device type * in backend string
        Backend mismatch for device
        Requested backend for device '*' is not present
        Cannot access device backend for process group
        We detected accelerator * But we don't know which communication backend
        device_id * does not match the current compilation's accelerator
        device_id is an int, but no accelerator support
        Cuda is not available
        Xpu is not available
        PyTorch was compiled without CUDA support
        ProcessGroupNCCL is only supported with GPUs, no GPUs found
        libcudart functions unavailable
        Torch not compiled with CUDA enabled
        NCCL backend is not available
        MPI backend is not available
        Failed to open libnccl
        """,
        id="TORCH-004",
        category="backend-device",
        stage="setup",
        sentence="this build of torch, or this machine, lacks the backend that is asked for: {what}",
        because="the nccl backend needs a CUDA (or ROCm) build of torch and GPUs in sight; gloo "
        "takes CPU "
        "tensors",
        fix="install torch's build for this CUDA, give the container GPUs, or use backend gloo",
        next="python -c 'import torch; print(torch.__version__, torch.version.cuda, "
        "torch.cuda.is_available())'",
    ),
    _of(
        """
        device * is not visible (*_VISIBLE_DEVICES
        device_id * is out of range
        local_rank * exceeds available GPUs
        Please use a device_id with index
        init_process_group device_id parameter must be
        HIP_VISIBLE_DEVICES contains more devices
        Invalid device id
        Invalid peer device id
        Unsupported nproc_per_node value
        """,
        id="TORCH-005",
        category="gpu-visible",
        sentence="a rank asks for a device that it does not see: {what}",
        because="more processes than GPUs on the node, or CUDA_VISIBLE_DEVICES hides some",
        fix="--nproc-per-node at most the GPUs of the node; torch.cuda.set_device(LOCAL_RANK); unset "
        "CUDA_VISIBLE_DEVICES",
        next="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    ),
    _of(
        """
        nnodes=* is not in "MIN:MAX" format
        --local_ranks_filter must be
        Don't use both the '--no*python' flag and the '--module' flag
        Could not find entrypoint under 'torchrun.logs_specs
        The hostname of the rendezvous endpoint
        The port number of the rendezvous endpoint
        The rendezvous backend '*' is not registered
        The rendezvous backend '*' does not match the requested
        The rendezvous backend name must be
        The rendezvous configuration
        The run id must be a non-empty string
        The m*imum number of * nodes (*) must be greater
        No rendezvous handler for
        Endpoint is missing in endpoint
        endpoint is absent in RendezvousParameters
        rank is absent in RendezvousParameters
        port is missing in endpoint
        Port is absent in endpoint
        port must have value from 0 to 65535
        The etcd protocol must be
        min_nodes must be > 0
        max_restarts must be
        `rank` must be an integer
        `world_size` must be an integer
        rank must be non-negative if using store
        world_size must be positive if using store
        Invalid store type given
        * parameter missing
        port number missing
        LOCAL_RANK is not in the environment
        Expected timeout argument to be of type datetime
        The * timeout (*) must be positive
        The read timeout must be a positive
        """,
        id="TORCH-006",
        category="torchrun-arguments",
        stage="setup",
        sentence="the launch's arguments do not fit: {what}",
        because="torchrun and init_process_group check their own settings before anything starts",
        fix="correct the option or variable that it names; on each node: torchrun --nnodes N "
        "--nproc-per-node G --node-rank R --master-addr HOST --master-port PORT script.py",
        next="torchrun --help; env | grep -E 'RANK|WORLD|MASTER'",
    ),
    _of(
        """
        The connection to etcd has failed
        Timed out waiting for etcd server
        Etcd server process exited
        Timeout while waiting for keys in EtcdStore
        The connection to the C10d store has failed
        The file creation for C10d store has failed
        The rendezvous state is corrupt
        The state object is corrupt
        Unexpected state of EtcdRendezvousHandler
        Unable to perform re*rendezvous using
        EtcdRendezvousRetry*:
        RendezvousGracefulExitError
        DistNetworkError: Connection reset by peer
        DistNetworkError: Broken pipe
        is setting up NCCL communicator and retrieving ncclUniqueId
        """,
        id="TORCH-007",
        starts=r"^(?:[\w.]+(?:Error|Exception): .{0,60}?|[\w.]+\.)?",
        category="rendezvous",
        role="symptom",
        stage="network",
        sentence="the ranks could not meet: {what}",
        checks=(
            "whether the rendezvous endpoint's host runs and listens there: its own log",
            "whether every node reaches that address and port (nc -z HOST PORT): DNS, firewalls",
            "whether all nodes gave the same --rdzv-id, --rdzv-backend and --nnodes",
        ),
    ),
    _of(
        """
        No ibverbs devices present
        ibv_create_cq failed
        ibv_reg_mr:
        ibv_query_port:
        ibv_query_device:
        Unable to find address for:
        Unknown ai_family
        Error on listener socket
        Unexpected completion (opcode
        Exception while handling completion event
        MPI_Comm_dup:
        MPI_Allgather:
        rv != -1. bind:
        rv != -1. listen:
        rv != -1. connect:
        SSL handshake failed
        """,
        id="GLOO-201",
        category="gloo-interface",
        stage="setup",
        starts=r"(?:gloo\S* .{0,120}?|\.(?:cc|h|cpp):\d+\]? .{0,80}?|^(?:RuntimeError|what\(\)): "
        r".{0,80}?)",
        said="[enforce fail at device.cc:80] gloo: ",
        sentence="gloo cannot use the network device that it took: {what}",
        because="the interface, or the address that the host's name resolves to, is not one of "
        "this host",
        fix="set GLOO_SOCKET_IFNAME to an interface that is up (ip -br addr), and make the host name "
        "resolve to its address",
        next="ip -br addr; getent hosts $(hostname)",
    ),
    _of(
        """
        Application timeout caused pair closure
        Read timeout *
        Write timeout *
        Wait timeout for key
        """,
        id="GLOO-202",
        category="gloo-timeout",
        role="symptom",
        stage="wait",
        starts=r"(?:gloo.{0,160}?|\.(?:cc|h|cpp):\d+\]? )",
        said="[../gloo/transport/tcp/pair.cc:81] ",
        sentence="gloo waited too long for another rank: {what}",
        checks=(
            "which rank did not come: it ended, or is in other code (py-spy dump --pid PID)",
            "whether the time-out (30 min by default) is too short for what happens before",
        ),
    ),
    _of(
        """
        Either train_batch_size or train_micro_batch_size_per_gpu
        Check batch related parameters
        Train batch size must be divisible
        Gradient accumulation steps: * has to be greater than 0
        Micro batch size per gpu: * has to be greater than 0
        bfloat16 and fp16 modes cannot be simultaneously enabled
        DeepSpeedConfig:
        Expected a string path to an existing deepspeed config
        DeepSpeed does not recognize LR scheduler
        is not a supported DeepSpeed Optimizer
        You are using an untested ZeRO Optimizer
        zero stage * requires an optimizer
        ZeRO stage * not implemented
        Invalid communication_data_type
        data_types.
        MoE not supported with Stage 3
        DeepSpeed MoE is not supported with ZeRO Stage 3
        AutoEP
        only supported with ZeRO Stage
        compile.autoep_non_moe
        managed_gradient_accumulation=False
        requires dynamic loss scaling
        bf16_optimizer_states
        conflicts with the enabled precision mode
        tensor_parallel.tp.tp_size
        unsupported mix of model_dtype
        no_sync context manager
        coalesce_grad_reduction
        'max_grad_norm' is not supported as an optimizer parameter
        Type * is not supported on your device
        Client Optimizer
        random_ltd_layer_num
        """,
        id="DS-201",
        category="deepspeed-config",
        starts=r"^[\w.]+(?:Error|Exception): .{0,120}?",
        said="AssertionError: ",
        sentence="DeepSpeed refuses its configuration: {what}",
        because="values of ds_config.json contradict each other, the program, or this version",
        fix="correct what it names in the DeepSpeed configuration; batch sizes hold as "
        "train_batch_size = "
        "train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks",
        next="ds_report; cat ds_config.json",
        links=("https://www.deepspeed.ai/docs/config-json/",),
    ),
    _of(
        """
        DeepSpeed backend not set
        DeepSpeed requires the LOCAL_RANK environment variable
        Distributed backend is not initialized. Please set dist_init_required
        Mismatch in local rank setting
        LOCAL_RANK (*) != OMPI_COMM_WORLD_LOCAL_RANK
        MPI rank * does not match torch rank
        MPI world size * does not match torch world size
        local_rank number doesn't match
        rank number doesn't match
        rank number is not in current env
        args.local_rank of * is an unknown type
        Unable to detect suitable master address via `hostname -I`
        not reachable via ssh
        Unknown launcher
        Hostfile contains
        Hostfile is empty
        Hostname '*' not found in hostfile
        No slot '*' specified on host
        pid file exists but shouldn't
        unable to create directory * for each rank log
        """,
        id="DS-202",
        category="world-settings",
        stage="setup",
        starts=r"^\w+Error: .{0,120}?",
        said="AssertionError: ",
        sentence="DeepSpeed's launch does not fit together: {what}",
        because="ranks, hosts and addresses come from its launcher, from MPI or from the "
        "environment, and "
        "two of them say different things, or one is missing",
        fix="start all ranks with one launcher (deepspeed, torchrun or mpirun), and give a "
        "hostfile with "
        "one line `HOST slots=N` a node, reachable by ssh without a password",
        next="env | grep -E 'RANK|WORLD|OMPI_COMM|MASTER'; cat HOSTFILE",
    ),
    _of(
        """
        Expert checkpoint file
        Invalid for universal checkpoint
        The checkpoint being loaded used a DP world size of
        Legacy checkpoint format
        checkpoint requires a folded runtime
        Checkpoint module state did not match
        Only stage3 support for pipeline checkpoint loading
        client_state contains reserved checkpoint key
        """,
        id="DS-203",
        category="checkpoint",
        starts=r"^[\w.]+(?:Error|Exception): .{0,120}?",
        said="RuntimeError: ",
        sentence="DeepSpeed cannot load or save this checkpoint: {what}",
        because="it was written with another number of ranks, another layout or version, or is "
        "cut short",
        fix="load it with the same ranks and ZeRO stage, or convert it with ds_to_universal.py",
        next="ls -l CHECKPOINT",
        links=("https://www.deepspeed.ai/tutorials/universal-checkpointing/",),
    ),
)
