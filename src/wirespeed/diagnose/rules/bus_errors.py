"""Bus errors with what proves where they come from."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_SHM_FIX = (
    "give the container more shared memory: docker run --shm-size=16g (or --ipc=host); in "
    "Kubernetes "
    "an emptyDir with medium: Memory (a tmpfs) mounted at /dev/shm"
)
_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
)
_FOLLOWS = (
    "crash",
    "ucx-error",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SHM-020",
        category="signals",
        role="fact",
        anchors=("Bus error", "SIGBUS"),
        pattern=r"caught signal 7|signal:? (?:7 )?\(?(?:bus error|sigbus)|fatal python error: bus "
        r"error"
        r"|bus error \(core dumped\)|\bSIGBUS\b",
        sentence="a bus error (SIGBUS)",
        positive=(
            "[8d6bf97c3bf4:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)",
            "[n1:811] Signal: Bus error (7)",
            "Fatal Python error: Bus error",
        ),
        negative=("PCIe Bus Error: severity=Corrected, type=Data Link Layer",),
    ),
    Rule(
        id="SHM-021",
        category="stack",
        role="fact",
        anchors=("libnccl.so", "librccl.so", "ncclGroupEnd()", "ncclCommInit", "ncclShmOpen"),
        pattern=r"(?:^|\s)(?:\[ ?\d+\]|#?\d+) "
        r".{0,120}(?:lib[nr]ccl\.so|nccl(?:GroupEnd|CommInit\w*|"
        r"GetUniqueId|RedOpDestroy|AllReduce|ShmOpen)\b)",
        sentence="NCCL is in a crash's stack",
        positive=(
            " 2 0x000000000007587d ncclGroupEnd()  ???:0",
            "[ 3] /usr/lib/x86_64-linux-gnu/libnccl.so.2(+0x4a655)[0x7f]",
            "#4 0x7f in ?? () from /usr/lib/libnccl.so.2",
        ),
        negative=("OSError: libnccl.so.2: cannot open shared object file",),
    ),
    Rule(
        id="SHM-022",
        category="shm-too-small",
        role="cause",
        stage="setup",
        needs=("SHM-020", "SHM-021"),
        sentence="a bus error (SIGBUS) inside NCCL: /dev/shm (shared memory) is too small",
        because="NCCL maps files in /dev/shm and writes to them; where the tmpfs has no room left "
        "the "
        "kernel sends SIGBUS; docker and Kubernetes give a container 64 MB unless told otherwise",
        costs="the process is killed; the other ranks lose it",
        fix=_SHM_FIX,
        next="in the container: df -h /dev/shm",
        explains=("END-002", "MPI-038", "HYD-003", *_FOLLOWS),
        links=_LINKS,
    ),
    Rule(
        id="SHM-023",
        category="shm-too-small",
        role="cause",
        stage="setup",
        anchors=("Error while creating shared memory segment",),
        pattern=r"error while creating shared memory segment (?P<file>\S+) \(size "
        r"(?P<size>\d+)\)\s*$",
        sentence="NCCL could not make the file {file} of {size} bytes in /dev/shm: nearly always "
        "because /dev/shm is too small",
        because="each pair of GPUs needs such a file (7 to 10 MB and more); docker and Kubernetes "
        "give a "
        "container 64 MB of /dev/shm or less unless told otherwise, and files of killed jobs stay "
        "there; NCCL_DEBUG=INFO would print the system's reason (No space left on device)",
        costs="NCCL cannot be initialised: every rank of the node fails",
        fix=_SHM_FIX
        + "; remove left-over /dev/shm/nccl-* files; where there is space (df), look at the "
        "permissions of /dev/shm",
        next="in the container: df -h /dev/shm; ls -l /dev/shm",
        explains=("SHM-002", *_FOLLOWS),
        links=_LINKS,
        positive=(
            "Error while creating shared memory segment /dev/shm/nccl-1YsMbG (size 7340384)",
            "include/shm.h:48 NCCL WARN Error while creating shared memory segment "
            "nccl-shm-recv-11d2bad5bf-0-1-0 (size 9637888)",
        ),
        negative=(
            "Error while attaching to shared memory segment /dev/shm/nccl-8 (size 33030528)",
            "Error while creating shared memory segment /dev/shm/nccl-a (size 96), error: "
            "Permission "
            "denied (13)",
        ),
    ),
    Rule(
        id="SHM-024",
        category="shm-too-small",
        role="cause",
        stage="setup",
        anchors=("not enough space for",),
        pattern=r"it appears as if there is not enough space for (?P<file>\S+)",
        sentence="there is no room for the shared-memory file {file} of MPI",
        because="Open MPI keeps its shared memory in files of /dev/shm or its session directory "
        "in /tmp",
        costs="MPI_Init fails on this node",
        fix=_SHM_FIX + "; free /tmp, or choose another place with --mca btl_sm_backing_directory",
        next="df -h /dev/shm /tmp",
        explains=("mpi-init", *_FOLLOWS),
        positive=(
            "It appears as if there is not enough space for /dev/shm/vader_segment.n1.1 (the",
        ),
        negative=("There are not enough slots available in the system",),
    ),
    Rule(
        id="SHM-025",
        category="container-ptrace",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("Read -1, expected", "process_vm_readv", "CMA support is not available"),
        pattern=r"read -1, expected \d+, errno = "
        r"(?P<errno>1)\b|process_vm_readv\(.{0,80}operation not "
        r"permitted",
        sentence="a container forbids processes to read each other's memory (CMA, errno 1: "
        "Operation not "
        "permitted)",
        because="Open MPI and UCX copy between the processes of a node with process_vm_readv, "
        "which "
        "docker's default profile forbids",
        costs="messages between ranks of the node fail or are slow",
        fix="docker run --cap-add=SYS_PTRACE (or a seccomp profile that allows process_vm_readv), "
        "or do "
        "without: OMPI_MCA_btl_vader_single_copy_mechanism=none, UCX_TLS=^cma",
        next="cat /proc/sys/kernel/yama/ptrace_scope",
        explains=_FOLLOWS,
        links=("https://github.com/open-mpi/ompi/issues/4948",),
        positive=("[c0ffee:00811] Read -1, expected 5280, errno = 1",),
        negative=("[c0ffee:00811] Read -1, expected 5280, errno = 14",),
    ),
)
