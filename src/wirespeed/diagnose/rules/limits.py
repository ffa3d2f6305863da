"""Limits of processes and threads, file systems that go away, memory that is damaged."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = (
    "python-runtime",
    "python-error",
    "crash",
    "launcher-exit",
    "exit-code",
    "watchdog-timeout",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="LIM-001",
        category="process-limit",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=(
            "pthread_create failed",
            "Thread creation failed",
            "can't start new thread",
            "fork: Resource temporarily",
            "fork: retry",
            "pthread_create:",
            "unable to fork",
        ),
        pattern=r"pthread_create(?: failed|:).{0,80}(?:resource temporarily "
        r"unavailable|EAGAIN|thread \d+ of)|"
        r"thread creation failed: resource temporarily|can't start new thread|fork: (?:retry: "
        r")?(?:resource "
        r"temporarily unavailable|retry)|unable to fork.{0,40}resource temporarily",
        sentence="no more processes or threads can be started: a limit is reached (ulimit -u, "
        "pids of the "
        "container)",
        because="each rank starts threads by the dozen (OpenMP, data loader, NCCL, gloo), and the "
        "limit counts "
        "all of the user or the container",
        costs="the process fails, or goes without some of its threads",
        fix="OMP_NUM_THREADS=1 (or cores / ranks), fewer loader workers; docker --pids-limit=-1, "
        "Kubernetes "
        "podPidsLimit, ulimit -u unlimited, TasksMax of the systemd unit",
        next="ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
        explains=_DOWN,
        positive=(
            "OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource "
            "temporarily "
            "unavailable",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "RuntimeError: can't start new thread",
            "bash: fork: retry: Resource temporarily unavailable",
        ),
        negative=("NCCL WARN Call to accept failed : Resource temporarily unavailable",),
    ),
    Rule(
        id="LIM-002",
        category="host-memory",
        role="cause",
        stage="machine",
        anchors=("Cannot allocate memory", "std::bad_alloc", "MemoryError"),
        pattern=r"unable to mmap \d+ bytes.{0,80}cannot allocate "
        r"memory|(?:oserror|blockingioerror): \[errno "
        r"12\] cannot allocate memory|fork: cannot allocate "
        r"memory|what\(\):\s+std::bad_alloc|^MemoryError\s*(?::|$)|"
        r"numpy\S*ArrayMemoryError",
        unless=r"ibv_|NCCL|NET/OFI|UCX|libfabric|memlock",
        sentence="the host's memory (RAM) or address space ran out in a program: Cannot allocate "
        "memory",
        because="the kernel refused memory instead of killing a process: overcommit is limited "
        "(vm.overcommit_memory=2), ulimit -v is set, or there are too many mappings "
        "(vm.max_map_count)",
        costs="the process ends; the others wait for it",
        fix="use less host memory (fewer loader workers, less offload to CPU, no copy of the "
        "checkpoint per "
        "rank), ask for more; sysctl vm.overcommit_memory vm.max_map_count; ulimit -v unlimited",
        next="free -g; ulimit -a; cat /proc/meminfo | grep Commit",
        explains=_DOWN,
        positive=(
            "RuntimeError: unable to mmap 134217728 bytes from file </torch_811>: Cannot allocate "
            "memory "
            "(12)",
            "OSError: [Errno 12] Cannot allocate memory",
            "  what():  std::bad_alloc",
        ),
        negative=(
            "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
            "MemoryError handling enabled",
        ),
    ),
    Rule(
        id="LIM-003",
        category="storage-error",
        role="cause",
        stage="machine",
        anchors=(
            "Stale file handle",
            "Input/output error",
            "Transport endpoint is not connected",
            "Remote I/O error",
            "LustreError:",
            "Cannot send after transport endpoint",
        ),
        pattern=r"(?:errno 116\]|:) stale file handle|\[errno (?:5|107|108|121)\] [\w/ ]{5,60}: '/|"
        r"(?:cannot \w+|ls|df|stat|mount|open)\b.{0,160}: (?:transport endpoint is not connected|"
        r"input/output error)|LustreError: .{0,200}(?:failed|evict|-107|-110)",
        sentence="a network or parallel file system does not answer, or lost a file under the job",
        because="the server or its network failed, evicted this client, or the file was replaced "
        "on another "
        "node while it was open",
        costs="programs that read or write there fail, or hang in state D",
        fix="look at the file system's server and mount (umount and mount again); do not replace "
        "files that "
        "running jobs read; stage data to local disks",
        next="dmesg -T | grep -iE 'nfs|lustre|fuse|ceph'; df -h; mount | grep -E 'nfs|lustre|fuse'",
        explains=_DOWN,
        positive=(
            "OSError: [Errno 116] Stale file handle: '/nfs/data/train.bin'",
            "OSError: [Errno 5] Input/output error: '/lustre/ckpt.pt'",
            "ls: cannot access '/mnt/gcs': Transport endpoint is not connected",
            "LustreError: 11-0: fs-OST0001-osc: operation ost_read to node 10.0.0.9@o2ib failed: "
            "rc = -107",
        ),
        negative=(
            "Lustre: fs-OST0001-osc: Connection restored to 10.0.0.9@o2ib",
            "OSError: [Errno 107] Transport endpoint is not connected",
            "OSError: [Errno 5] Input/output error",
        ),
    ),
    Rule(
        id="LIM-004",
        category="crash",
        role="symptom",
        stage="program",
        anchors=(
            "double free or corruption",
            "corrupted size vs",
            "free(): invalid",
            "malloc(): ",
            "munmap_chunk()",
            "general protection fault",
            "stack smashing detected",
        ),
        pattern=r"(?P<what>double free or corruption|corrupted size vs\. prev_size|free\(\): "
        r"invalid \w+|"
        r"malloc\(\): \w[\w ]{3,60}|munmap_chunk\(\): invalid pointer|traps: .{0,60}general "
        r"protection "
        r"fault|\*\*\* stack smashing detected)",
        sentence="a process damaged its own memory: {what}",
        checks=(
            "whether libraries that do not fit are mixed (torch, NCCL, MPI, CUDA of other "
            "versions; two "
            "copies of protobuf or OpenMP): ldd, a fresh environment",
            "whether an extension of the program writes out of range: run without it; a core file "
            "and gdb",
            "whether the machine's memory is bad: dmesg -T | grep -iE 'mce|edac'",
        ),
        explains=("launcher-exit", "exit-code"),
        positive=(
            "double free or corruption (!prev)",
            "corrupted size vs. prev_size",
            "traps: python[811] general protection fault ip:7f sp:7ff error:0 in libcuda.so",
        ),
        negative=("free(): 12 buffers returned",),
    ),
    Rule(
        id="LIM-005",
        category="clock-skew",
        role="cause",
        stage="setup",
        anchors=("certificate is not yet valid", "clock skew detected", "Clock skew"),
        pattern=r"certificate (?:is not yet valid|has expired or is not yet valid)|clock skew "
        r"(?:too great|of "
        r"\d+s? detected)",
        sentence="this machine's clock is wrong: certificates or tickets look as if they were of "
        "the future",
        because="TLS, Kerberos and munge compare times",
        costs="logins, downloads and daemons fail on this node",
        fix="set the clock by NTP: chronyc makestep; systemctl enable --now chronyd",
        next="date -u; chronyc tracking",
        explains=_DOWN,
        positive=(
            "ssl.SSLCertVerificationError: certificate verify failed: certificate is not yet valid",
            "kinit: Clock skew too great while getting initial credentials",
        ),
        negative=("make: warning: Clock skew detected. Your build may be incomplete.",),
    ),
)
