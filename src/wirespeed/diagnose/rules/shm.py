"""Shared memory (/dev/shm) that is too small or not permitted."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_FIX = (
    "give the container more shared memory: docker run --shm-size=1g (or --ipc=host); in "
    "Kubernetes an emptyDir with medium: Memory (a tmpfs) mounted at /dev/shm"
)
_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
)
_BECAUSE = (
    "docker and Kubernetes give a container 64 MB of /dev/shm unless told otherwise, too small for "
    "NCCL between the GPUs of one node; files of jobs that were killed stay there too"
)
_COSTS = "NCCL cannot be initialised: every rank of the node fails"
_FOLLOWS = (
    "nccl-system-error",
    "nccl-cuda-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SHM-001",
        category="shm-too-small",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("No space left on device",),
        pattern=r"(?:call to (?:posix_fallocate|ftruncate|shm_open|mmap) "
        r"failed|/dev/shm/(?:nccl|rccl)?|nccl-shm-\S+|error while (?:creating|attaching to) shared "
        r"memory segment).{0,160}no space left on device",
        unless=r"UCX",
        sentence="/dev/shm is full: NCCL could not make its shared-memory file (No space left on "
        "device)",
        because=_BECAUSE,
        costs=_COSTS,
        fix=_FIX,
        next="in the container: df -h /dev/shm; ls -l /dev/shm",
        explains=("SHM-002", "SHM-003", *_FOLLOWS),
        links=_LINKS,
        positive=(
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
            "NCCL WARN Error: failed to extend /dev/shm/nccl-h3wfZa to 9637892 bytes, error: "
            "No space left on device (28)",
            "Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 9637888), "
            "error: No space left on device (28)",
        ),
        negative=(
            "OSError: [Errno 28] No space left on device: '/checkpoints/step_100.pt'",
            "NCCL INFO Channel 00 : 3[1c0] -> 2[1b0] via direct shared memory",
        ),
    ),
    Rule(
        id="SHM-002",
        category="shm-too-small",
        role="symptom",
        stage="setup",
        anchors=("shared memory segment",),
        pattern=r"error while (?:creating|attaching to) shared memory segment (?P<file>\S+) \(size "
        r"(?P<size>\d+)\)",
        unless=r"no space left",
        sentence="NCCL could not make the shared-memory file {file} of {size} bytes in /dev/shm",
        checks=(
            f"whether /dev/shm is too small (df -h /dev/shm): {_FIX}",
            "whether ranks of one node have different /dev/shm or host names (one container a rank "
            "with its own IPC namespace): --ipc=host, or NCCL_SHM_DISABLE=1",
            "whether this user may write to /dev/shm (ls -ld /dev/shm: drwxrwxrwt)",
        ),
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "include/shm.h:48 NCCL WARN Error while creating shared memory segment "
            "nccl-shm-recv-11d2bad5bf-0-1-0 (size 9637888)",
            "misc/shmutils.cc:87 NCCL WARN Error while attaching to shared memory segment "
            "/dev/shm/nccl-8 (size 33030528)",
        ),
        negative=("NCCL INFO Channel 00 : 0[1b0] -> 1[1c0] via SHM/direct/direct",),
    ),
    Rule(
        id="SHM-003",
        category="shm-too-small",
        role="cause",
        stage="setup",
        anchors=("bus error", "Bus error"),
        pattern=r"(?:unexpected bus error|insufficient shared memory|out of shared "
        r"memory).{0,120}|bus error.{0,120}(?:\bshm\b|shared memory)",
        sentence="/dev/shm is too small: a process was ended by a bus error (SIGBUS) while it used "
        "shared memory",
        because=_BECAUSE,
        costs="the process is killed while it writes a shared-memory file that has no space",
        fix=_FIX,
        next="in the container: df -h /dev/shm",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "ERROR: Unexpected bus error encountered in worker. This might be caused by "
            "insufficient shared memory (shm).",
            "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory.",
        ),
        negative=("Signal: Bus error (7)",),
    ),
    Rule(
        id="SHM-004",
        category="shm-not-writable",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("/dev/shm", "shm_open", "shared memory segment"),
        pattern=r"(?:call to shm_open|/dev/shm/nccl\S*|shared memory segment|failed to "
        r"(?:create|open) /dev/shm).{0,120}(?P<error>permission denied|read-only file "
        r"system|operation not permitted)",
        sentence="NCCL may not use /dev/shm: {error}",
        because="the directory is not writable for this user, or mounted read-only",
        costs=_COSTS,
        fix="mount a writable tmpfs at /dev/shm with mode 1777 (docker --ipc=host, --tmpfs "
        "/dev/shm); remove files of other users; NCCL_SHM_DISABLE=1 meanwhile",
        next="ls -ld /dev/shm; ls -l /dev/shm; mount | grep shm",
        explains=("SHM-002", *_FOLLOWS),
        links=_LINKS,
        positive=(
            "misc/shmutils.cc:50 NCCL WARN Error: failed to open /dev/shm/nccl-Ab12 , error: "
            "Permission denied (13)",
            "NCCL WARN Call to shm_open failed : Permission denied",
        ),
        negative=("mkdir /data: Permission denied",),
    ),
    Rule(
        id="SHM-005",
        category="shm-namespace",
        role="cause",
        stage="setup",
        anchors=("shm_open failed", "/dev/shm/nccl"),
        pattern=r"(?:call to shm_open failed|/dev/shm/nccl\S*|shared memory segment).{0,120}no "
        r"such file or directory",
        sentence="a rank does not find the shared-memory file that another rank of the node made "
        "(No such file or directory)",
        because="the ranks of the node run in containers with /dev/shm of their own, and NCCL "
        "takes them for one machine because host name and boot id are equal",
        costs=_COSTS,
        fix="give them one /dev/shm (--ipc=host), or different host identities (NCCL_HOSTID), or "
        "NCCL_SHM_DISABLE=1",
        next="hostname; ls -l /dev/shm in each container",
        explains=("SHM-002", *_FOLLOWS),
        links=_LINKS,
        positive=(
            "include/shm.h:33 NCCL WARN Call to shm_open failed : No such file or directory",
            "misc/shmutils.cc:70 NCCL WARN Error: failed to open /dev/shm/nccl-x1 , error: No such "
            "file or directory (2)",
        ),
        negative=("cat: /etc/foo: No such file or directory",),
    ),
)
