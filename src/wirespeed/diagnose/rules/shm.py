"""Shared memory (/dev/shm) that is too small."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_FIX = (
    "give the container more shared memory: docker run --shm-size=1g (or --ipc=host); in Kubernetes "
    "an emptyDir with medium: Memory mounted at /dev/shm"
)
_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SHM-001",
        category="shm-too-small",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("posix_fallocate failed", "No space left on device"),
        pattern=r"(call to posix_fallocate failed|/dev/shm/nccl-\S+).{0,80}no space left on device",
        sentence="/dev/shm is full: NCCL could not make its shared-memory file",
        because="docker and Kubernetes give a container 64 MB of /dev/shm unless told otherwise, "
        "too small for NCCL between the GPUs of one node",
        costs="NCCL cannot be initialised: every rank of the node fails",
        fix=_FIX,
        next="in the container: df -h /dev/shm",
        explains=("SHM-002",),
        links=_LINKS,
        positive=(
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
            "NCCL WARN Error: failed to extend /dev/shm/nccl-h3wfZa to 9637892 bytes, error: "
            "No space left on device (28)",
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
        pattern=r"error while creating shared memory segment (?P<file>\S+) \(size (?P<size>\d+)\)",
        sentence="NCCL could not make the shared-memory file {file} of {size} bytes in /dev/shm",
        checks=(
            f"whether /dev/shm is too small (df -h /dev/shm): {_FIX}",
            "whether this user may write to /dev/shm (ls -ld /dev/shm: drwxrwxrwt)",
        ),
        links=_LINKS,
        positive=(
            "include/shm.h:48 NCCL WARN Error while creating shared memory segment "
            "nccl-shm-recv-11d2bad5bf-0-1-0 (size 9637888)",
        ),
        negative=("NCCL INFO Channel 00 : 0[1b0] -> 1[1c0] via SHM/direct/direct",),
    ),
)
