"""pyxis, enroot, munge, Kubeflow's MPI operator and Ray: what ends a job, by what it means.

Texts from pyxis 0.24, enroot 4.1.2, munge 0.5.18, mpi-operator caa3c47 and Ray's public exceptions.
"""

from functools import partial

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.texts import GONE, rule_of

__all__ = ["RULES"]

_pyxis = partial(
    rule_of,
    anchors=("pyxis: ",),
    starts=r"pyxis: (?:error: )?",
    said="slurmstepd: error: pyxis: ",
    costs="the step does not start",
    explains=(*GONE, "slurm-step", "slurm-launch", "container-image"),
    links=("https://github.com/NVIDIA/pyxis/wiki",),
)
_enroot = partial(
    rule_of,
    starts=r"(?:\[ERROR\] |^|pyxis: +|enroot\S*: )",
    said="pyxis:     ",
    costs="the container does not start",
    explains=(*GONE, "slurm-step", "slurm-launch"),
    links=("https://github.com/NVIDIA/enroot/tree/master/doc",),
)
_munge = partial(
    rule_of,
    starts=r"(?:munged?\b.{0,120}?|(?:auth|unable to).{0,80}munge.{0,80}?)",
    said="munged[41]: Error: ",
    costs="Slurm refuses every call of this node",
    explains=(*GONE, "slurm-controller", "slurm-launch", "slurm-step"),
    links=("https://github.com/dun/munge/wiki",),
)

RULES: tuple[Rule, ...] = (
    _pyxis(
        """
        --container-* argument required
        --container-* specified multiple times
        --container-env: invalid format
        --container-mounts: invalid format
        --container-name: empty name
        --container-name: flag must be
        --container-save: target is a directory
        --container-unshare: * namespace
        --container-unshare=* requested but
        both --container-* and --no-container-* were specified
        both --container-writable and --container-readonly
        mount source must be
        mount target must be
        unknown configuration option
        *: invalid value:
        failed to parse configuration
        failed to register arguments
        *: path too long
        """,
        id="PYX-001",
        category="container-option",
        confidence="certain",
        sentence="pyxis refuses the container options of srun: {what}",
        because="it checks them before it starts anything",
        fix="correct the option: --container-image=REGISTRY#IMAGE:TAG (a `#` after the registry), "
        "--container-mounts=SOURCE:TARGET[:ro],…, --container-name=NAME",
        next="srun --help | grep -A2 container-",
    ),
    _pyxis(
        """
        --container-mounts: source path does not exist
        could not add mount entry
        couldn't add bind mount
        couldn't chdir to
        """,
        id="PYX-002",
        category="container-mount",
        confidence="certain",
        sentence="a folder that the container wants is not on this node: {what}",
        because="each node mounts it from its own file system",
        fix="create or mount the path on every node of the job, or leave it out of "
        "--container-mounts and "
        "--container-workdir",
        next="srun -N $SLURM_NNODES ls -ld PATH",
    ),
    _pyxis(
        """
        failed to import docker image
        failed to create container filesystem for image
        importer * failed
        importer * terminated with signal
        importer did not return a squashfs path
        could not wait for importer
        """,
        id="PYX-003",
        category="container-image",
        sentence="the container's image could not be brought to this node: {what}",
        because="enroot downloads and unpacks it on each node: a wrong name, a registry that asks "
        "for a "
        "login or counts pulls, no network, no room",
        fix="read enroot's lines below it; log in with ~/.config/enroot/.credentials; import once to a "
        "shared .sqsh file (enroot import -o image.sqsh docker://…) and use that path",
        next="enroot import docker://IMAGE; df -h $ENROOT_CACHE_PATH $ENROOT_DATA_PATH /tmp",
    ),
    _pyxis(
        """
        a container with name "*" does not exist
        "create" flag was passed to --container-name but the container already exists
        "exec" flag was passed to --container-name but the container is not running
        couldn't get list of containers
        couldn't get list of existing container filesystems
        "enroot list -f" did not produce any usable output
        failed to export container
        container export: relative path used
        """,
        id="PYX-004",
        category="container-name",
        sentence="the named container is not as pyxis expects it on this node: {what}",
        because="--container-name finds containers of earlier steps on the same node; its epilog may "
        "remove them at the end of the job",
        fix="give --container-image as well, or another name; run the step that makes it on all "
        "nodes first",
        next="srun -N $SLURM_NNODES enroot list -f",
    ),
    _pyxis(
        """
        container start error
        container start failed with error code
        failed to start container
        container exited too soon
        container was not started successfully by another task
        a previous task terminated unexpectedly during container setup
        child * failed with error code
        child * terminated with signal
        couldn't execute enroot command
        couldn't create enroot start configuration script
        if the image has an unusual entrypoint
        couldn't join * namespace
        couldn't get container
        couldn't read container
        couldn't read /proc
        unable to open * namespace
        unable to *stat * namespace
        couldn't mkdir
        slurmd: couldn't mkdir
        couldn't chown
        couldn't create in-memory log file
        couldn't open in-memory log file
        couldn't get job
        couldn't allocate
        couldn't send SIGCONT
        couldn't rewind log file
        could not allocate memory
        could not create pipe
        could not fdopen pipe
        could not wait for child
        failed to acquire container setup lock
        failed to set
        failed to get
        failed to unset
        fork error
        seccomp filter failed
        pytorch: couldn't remap environment variable
        """,
        id="PYX-005",
        category="container-start",
        role="symptom",
        sentence="the container could not be started on this node: {what}",
        checks=(
            "enroot's own lines, which pyxis prints below `printing enroot log file`: a hook "
            "(nvidia-container-cli, mellanox), a mount, or no room",
            "whether the image's entrypoint ends by itself: --no-container-entrypoint",
            "whether the node has room and rights in enroot's folders (ENROOT_RUNTIME_PATH, "
            "ENROOT_DATA_PATH, /run), and user namespaces (sysctl user.max_user_namespaces)",
        ),
        next="srun -w NODE enroot start IMAGE true",
    ),
    _enroot(
        """
        URL * returned error code
        Could not parse authentication realm
        Could not parse digest information
        Could not retrieve digest
        Could not process JSON input
        Unsupported authentication method
        Invalid image reference
        Invalid image format
        Checksum validation failed
        Could not acquire rootfs lock
        """,
        id="ENR-001",
        category="container-image",
        sentence="enroot cannot fetch the image: {what}",
        because="the registry refused (401: log in, 403: not allowed, 404: no such name or tag, "
        "429: too "
        "many pulls), or what came is no image",
        fix="write ~/.config/enroot/.credentials (machine REGISTRY login USER password TOKEN), name "
        "the image as docker://USER@REGISTRY#IMAGE:TAG, or import it once to a shared .sqsh file",
        next="enroot import docker://IMAGE",
    ),
    _enroot(
        """
        Not enough space left in
        Failed to mount:
        File already exists:
        No such file or directory: *
        Could not change directory
        Missing directive ENROOT_ROOTFS
        Process not found:
        ENROOT_NATIVE_OVERLAYFS=y is required
        Invalid argument: *
        Unsupported architecture
        """,
        id="ENR-002",
        category="container-start",
        starts=r"(?:\[ERROR\] |pyxis: +|enroot\S*: )",
        sentence="enroot cannot unpack or start the container: {what}",
        because="a path, an argument or room on the node's disk is missing",
        fix="make room in ENROOT_DATA_PATH, ENROOT_CACHE_PATH and /tmp, remove old containers (enroot "
        "remove), and check the path that it names on that node",
        next="df -h; enroot list -f",
    ),
    _enroot(
        """
        Command not found: *
        Could not find kernel configuration
        Unknown NVIDIA driver capability
        Unknown MELLANOX device id
        /etc/enroot/hooks.d/* exited with return code
        nvidia-container-cli: *
        """,
        id="ENR-003",
        category="container-gpu",
        starts=r"(?:\[ERROR\] |^|pyxis: +|enroot\S*: )(?:\[ERROR\] )?",
        sentence="a hook of enroot fails on this node: {what}",
        because="hooks give the container the GPU driver and the RDMA devices, and need "
        "nvidia-container-cli and a driver that runs on the host",
        fix="install libnvidia-container-tools on the node, check nvidia-smi there, and the values of "
        "NVIDIA_VISIBLE_DEVICES, NVIDIA_DRIVER_CAPABILITIES and MELLANOX_VISIBLE_DEVICES",
        next="nvidia-container-cli info",
    ),
    _munge(
        """
        Failed to access "*": Connection refused
        Failed to access "*": No such file or directory
        Failed to access "*": Permission denied
        Failed to connect to "*":
        Invalid file type for socket
        Munged communication error
        Socket communication error
        Failed to receive message
        Failed to send message
        Received incomplete message
        Sent incomplete message
        Exceeded maximum number of * attempts
        munge_encode: *
        Failed to find the MUNGE socket
        Is munged running
        """,
        id="MUNGE-001",
        category="munge",
        stage="machine",
        sentence="the munge daemon of this node does not answer: {what}",
        because="Slurm signs each message with munged on the same node; in a container its socket "
        "must be "
        "mounted",
        fix="systemctl restart munge on that node; in a container mount /run/munge and use the host's "
        "libmunge",
        next="munge -n | unmunge; systemctl status munge",
    ),
    _munge(
        """
        Expired credential
        Rewound credential
        Replayed credential
        """,
        id="MUNGE-002",
        category="clock-skew",
        stage="machine",
        sentence="munge refuses a message for its time: {what}",
        because="clocks of two nodes differ by more than five minutes, or a node was so busy that the "
        "message came too late",
        fix="start chrony or systemd-timesyncd on all nodes, and see that they agree",
        next="date; chronyc tracking",
    ),
    _munge(
        """
        Invalid credential
        Unauthorized credential
        Failed to match armor
        Failed to decrypt credential
        Failed to MAC credential
        Failed to base64-decode credential
        Failed to decompress credential
        Invalid MAC type
        Invalid cipher type
        Invalid credential version
        Keyfile is insecure
        Keyfile must be
        Failed to find keyfile
        Failed to open keyfile
        Failed to check keyfile
        Keyfile name is undefined
        Keyfile "*" is too small
        Logfile is insecure
        Socket is insecure
        PRNG seed dir is insecure
        PIDfile * is insecure
        Failed to create socket
        Failed to bind
        Failed to open logfile
        Failed to lock
        """,
        id="MUNGE-003",
        category="munge",
        stage="machine",
        sentence="munge's key or files on this node are not right: {what}",
        because="all nodes need the same /etc/munge/munge.key, owned by munge with mode 0400, and "
        "folders that nobody else may write",
        fix="copy the controller's munge.key to this node (chown munge: , chmod 0400), correct the "
        "folders' owners, restart munge, then slurmd",
        next="sha256sum /etc/munge/munge.key on each node; ls -ld /etc/munge /var/log/munge /run/munge",
    ),
    rule_of(
        """
        MPIJob */* has failed
        Job has reached the specified backoff limit
        Resource "*" of Kind "*" already exists and is not managed by MPIJob
        CRD doesn't exist. Exiting
        Unable to sync cache for informer
        Error building kubeConfig
        Creating SSH auth *ecret
        Failed to create scheduler-plugins pod group
        Failed to create volcano pod group
        MPIJob*Found validation errors
        Error running controller
        """,
        id="MPIOP-001",
        category="k8s-mpijob",
        role="symptom",
        stage="setup",
        starts=r"(?:mpi-?job|mpi-operator|controller|^|\s).{0,160}?",
        sentence="Kubeflow's MPI operator gave the job up: {what}",
        checks=(
            "the launcher's log (kubectl logs job/NAME-launcher): it tells why mpirun ended",
            "the workers (kubectl describe pod -l training.kubeflow.org/job-name=NAME): pending, "
            "no image, "
            "no GPU, quota",
            "the MPIJob itself (kubectl describe mpijob NAME), and objects of the same name of "
            "another owner",
        ),
        links=("https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/mpi/",),
    ),
    rule_of(
        """
        ray.exceptions.RuntimeEnvSetupError
        ray.exceptions.ActorUnschedulableError
        ray.exceptions.TaskUnschedulableError
        ray.exceptions.ActorUnavailableError
        ray.exceptions.NodeDiedError
        ray.exceptions.LocalRayletDiedError
        ray.exceptions.ObjectLostError
        ray.exceptions.ObjectFetchTimedOutError
        ray.exceptions.ObjectReconstructionFailed
        ray.exceptions.ObjectStoreFullError
        ray.exceptions.OutOfDiskError
        ray.exceptions.OwnerDiedError
        ray.exceptions.ReferenceCountingAssertionError
        ray.exceptions.RaySystemError
        ray.exceptions.RayChannel
        ray.exceptions.GetTimeoutError
        ray.exceptions.TaskCancelledError
        ray.exceptions.TaskPlacementGroupRemoved
        ray.exceptions.ActorPlacementGroupRemoved
        ray.exceptions.PendingCallsLimitExceeded
        ray.exceptions.PlasmaObjectNotAvailable
        ray.exceptions.CrossLanguageError
        ray.exceptions.AuthenticationError
        Ray does not allocate any GPUs on the driver node
        Some worker processes have died unexpectedly
        The node with node id * has been marked dead
        raylet exited unexpectedly
        The raylet* died
        Failed to connect to GCS
        Can't find a `node_ip_address.json` file
        Failed to start the dashboard
        Unable to connect to GCS
        Raylet is terminated
        """,
        id="RAY-201",
        category="ray-error",
        role="symptom",
        stage="network",
        sentence="Ray reports that it could not go on: {what}",
        checks=(
            "the first error of the worker or node that it names: /tmp/ray/session_latest/logs on that "
            "node (raylet.err, worker-*.err)",
            "whether that node has memory, disk and /dev/shm left, and its processes still run "
            "(ray status)",
            "whether all nodes have one Ray and Python version and reach the head's port 6379",
        ),
        links=("https://docs.ray.io/en/latest/ray-observability/index.html",),
    ),
    _munge(
        """
        Failed to *
        Invalid *
        Exceeded *
        Received *
        Sent *
        Client received *
        Credential size *
        Payload size *
        No credential specified
        No address specified
        MUNGE socket name is undefined
        Logfile name is undefined
        Write error
        """,
        id="MUNGE-004",
        unless="passwd file|supplementary|origin address",
        category="munge",
        role="symptom",
        stage="machine",
        anchors=("munge",),
        starts=r"munged?(?:\[\d+\])?: (?:error: )?",
        sentence="the munge daemon of this node reports: {what}",
        checks=(
            "whether munged runs, with room for files and memory: systemctl status munge",
            "whether this node's key and clock are those of the others: munge -n | ssh NODE unmunge",
        ),
    ),
)
