"""The kernel's log: GPUs (Xid, SXid), memory, PCIe, disks and network cards."""

from wirespeed.diagnose.rule import Rule
from wirespeed.reference.xids import Kind, codes_of, known_codes

__all__ = ["RULES"]

_XID_LINKS = ("https://docs.nvidia.com/deploy/xid-errors/index.html",)
_DEVICE = r"xid \((?:PCI:)?(?P<device>[0-9a-f:.]+)\): (?P<code>"
_DOWN = (
    "launcher-exit",
    "exit-code",
    "watchdog-timeout",
    "mpi-lost-node",
    "crash",
    "KERN-008",
)
_RESET = (
    "drain the node and reset the GPU (nvidia-smi --gpu-reset -i GPU, nothing using it) or "
    "reboot; if "
    "it comes back, replace the GPU"
)
_NEXT = "on that node: dmesg -T | grep -i xid; nvidia-smi -q"


def _codes(*kinds: Kind) -> str:
    """A pattern for all numbers of these kinds."""
    return "|".join(str(code) for kind in kinds for code in codes_of(kind))


_SETTLED = "|".join(str(code) for code in known_codes() if code not in codes_of("watch"))
"""Numbers whose meaning other rules tell, or that mean nothing for a job."""


def _xid(
    number: str, kind: Kind, category: str, what: str, fix: str, positive: str, unless: str = ""
) -> Rule:
    """A grave error of a GPU, which explains whatever failed with it."""
    return Rule(
        id=f"KERN-{number}",
        category=category,
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("NVRM: Xid",),
        pattern=rf"nvrm: {_DEVICE}{_codes(kind)})\b",
        unless=unless,
        sentence=f"the driver reports Xid {{code}} for the GPU at {{device}}: {what}",
        because="the driver writes an Xid to the kernel's log when a GPU fails; NCCL and CUDA "
        "only see "
        "that the GPU stopped",
        costs="the process on this GPU fails, and with it the job",
        fix=fix,
        next=_NEXT,
        explains=_DOWN,
        links=_XID_LINKS,
        positive=(positive,),
        negative=(
            "NVRM: Xid (PCI:0000:ba:00): 45, pid=18, name=python3, Ch 00000002",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05",
        ),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="KERN-001",
        category="gpu-lost",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("NVRM: Xid", "fallen off the bus", "GPU is lost", "handle for GPU"),
        pattern=rf"xid \((?:PCI:)?[0-9a-f:.]+\): (?:{_codes('lost')})\b"
        r"|\bfallen off the bus\b|\bgpu is lost\b"
        r"|unable to determine the device handle for gpu",
        sentence="a GPU has fallen off the bus (Xid 79): it no longer answers over PCIe",
        because="the driver cannot reach the GPU: power, heat, a loose card or riser, or a "
        "broken GPU",
        costs="the process on this GPU fails, and with it the job",
        fix="drain the node and reboot it (power off and on); if it comes back, reseat or "
        "replace the "
        "GPU, check power and temperature",
        next="on that node: dmesg -T | grep -iE 'xid|pcie|aer'; nvidia-smi",
        explains=(
            "gpu-visible",
            "driver-not-loaded",
            "pcie-error",
            "cuda-error",
            "nccl-cuda-error",
            *_DOWN,
        ),
        links=_XID_LINKS,
        positive=(
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=811, name=python, GPU has fallen off the bus.",
            "NVRM: fallen off the bus and is not responding to commands.",
            "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
            "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.",
        ),
        negative=("NVRM: Xid (PCI:0000:3b:00): 31, pid=811, name=python, Ch 00000008",),
    ),
    _xid(
        "002",
        "memory",
        "gpu-memory-error",
        "its memory has errors (ECC) that could not be corrected",
        f"restart the job without this GPU; {_RESET}",
        "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
    ),
    _xid(
        "003",
        "gsp",
        "gpu-gsp",
        "its system processor (GSP) does not answer",
        f"{_RESET}; update the driver, which fixed many of these",
        "NVRM: Xid (PCI:0000:1b:00): 119, pid=8, name=nvidia-smi, Timeout waiting for RPC from "
        "GSP0!",
    ),
    _xid(
        "004",
        "link",
        "nvlink-error",
        "an NVLink error",
        f"look at nvidia-smi nvlink -e and nvlink -s; {_RESET} (or the NVLink cable or switch)",
        "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6)",
        unless=r"non-?fatal",
    ),
    _xid(
        "005",
        "failed",
        "gpu-failed",
        "the GPU stopped working",
        f"{_RESET}; update driver and firmware",
        "NVRM: Xid (PCI:0000:cb:00): 109, pid=17, name=pt_main_thread, Ch 08, CTX SWITCH TIMEOUT",
    ),
    Rule(
        id="KERN-006",
        category="gpu-program-error",
        role="cause",
        stage="program",
        anchors=("NVRM: Xid",),
        pattern=rf"nvrm: {_DEVICE}{_codes('address')})\b",
        sentence="a kernel of the program failed on the GPU at {device} (Xid {code}): it used "
        "memory out of range (illegal memory access)",
        because="Xid 13 and 31 are nearly always an illegal address or instruction of a program, "
        "seldom "
        "the GPU's fault",
        costs="this process ends with a CUDA error; the others wait for it",
        fix="find the kernel: CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer; if many programs "
        "fail on "
        "this GPU only: dcgmi diag -r 3",
        next=_NEXT,
        explains=(
            "cuda-error",
            "NCCL-130",
            "launcher-exit",
            "exit-code",
            "watchdog-timeout",
            "KERN-008",
        ),
        links=_XID_LINKS,
        positive=(
            "NVRM: Xid (PCI:0000:01:00): 31, pid=8, name=python, Ch 00000003, MMU Fault: ENGINE "
            "GRAPHICS",
            "NVRM: Xid (0000:02:00): 13, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0)",
        ),
        negative=("NVRM: Xid (PCI:0000:01:00): 43, pid=8, name=python, Ch 00000010",),
    ),
    Rule(
        id="KERN-007",
        category="gpu-failed",
        role="symptom",
        stage="machine",
        anchors=("NVRM: Xid",),
        pattern=rf"nvrm: {_DEVICE}\d+)\b",
        unless=rf"\): (?:{_SETTLED})\b",
        sentence="the driver reports Xid {code} for the GPU at {device}",
        checks=(
            "what this Xid means, in NVIDIA's catalog: it names whether to restart the program, "
            "reset "
            "the GPU or replace it",
            "whether it comes back: dcgmi diag -r 3; then drain the node",
        ),
        links=_XID_LINKS,
        positive=("NVRM: Xid (PCI:0000:01:00): 121, pid=8, name=python, C2C Link corrected error",),
        negative=("NVRM: Xid (PCI:0000:01:00): 63, pid=8, name=python, Row Remapper: New row",),
    ),
    Rule(
        id="KERN-008",
        category="gpu-channel-ended",
        role="consequence",
        stage="aftermath",
        anchors=("NVRM: Xid",),
        pattern=rf"nvrm: {_DEVICE}{_codes('ended')})\b",
        sentence="the driver ended a channel of a program (Xid {code}), after another error or "
        "its end",
        positive=(
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 01 caused by previous Xid",
        ),
        negative=("NVRM: Xid (PCI:0000:dc:00): 79, GPU has fallen off the bus.",),
    ),
    Rule(
        id="KERN-009",
        category="nvlink-error",
        role="cause",
        stage="machine",
        anchors=("SXid (",),
        pattern=r"sxid \((?:PCI:)?(?P<device>[0-9a-f:.]+)\): (?P<code>\d+), (?:severity: \d+ "
        r")?.{0,40}"
        r"(?<!non-)(?<!non)\bfatal",
        sentence="the NVSwitch at {device} reports the fatal error SXid {code}",
        because="a fatal error of an NVSwitch stalls NVLink traffic; CUDA programs on its GPUs end",
        costs="all GPUs of the node lose NVLink",
        fix="drain the node and reboot it, so that fabric manager sets up GPUs and NVSwitches "
        "anew; if "
        "it comes back, have it repaired",
        next="dmesg -T | grep -i sxid; systemctl status nvidia-fabricmanager",
        explains=_DOWN,
        links=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",),
        positive=(
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack "
            "timeout error",
        ),
        negative=(
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11012, Non-fatal, Link 46 egress "
            "crumbstore",
        ),
    ),
    Rule(
        id="KERN-010",
        category="host-oom-kill",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=(
            "Killed process ",
            "Out of memory: Kill",
            "oom-kill:constraint",
            "invoked oom-killer",
        ),
        pattern=r"kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\)"
        r"|oom-kill:constraint=\w+,.{0,400}task=[^,]+,pid=\d+|invoked oom-killer:"
        r"|out of memory: kill(?:ed)? process \d+",
        sentence="the kernel killed a process (SIGKILL) because memory (RAM) ran out: OOM killer",
        because="the kernel's log names the process, and the limit: 'Memory cgroup' means that "
        "of the "
        "container or job, else the whole host's memory",
        costs="the rank is gone; the others wait for it until their timeouts",
        fix="use less host memory (fewer loader workers, less offload to CPU, smaller prefetch), "
        "raise "
        "the container's or job's memory limit, or add RAM",
        next="on that node: dmesg -T | grep -i -A1 oom-kill; free -g",
        explains=("host-oom-kill", "sigterm", *_DOWN),
        links=("https://www.kernel.org/doc/html/latest/admin-guide/cgroup-v2.html#memory",),
        positive=(
            "Out of memory: Killed process 1234 (python) total-vm:81234kB, anon-rss:7000kB, "
            "oom_score",
            "Memory cgroup out of memory: Killed process 811 (pt_main_thread) total-vm:1kB",
            "Out of memory: Kill process 123 (python) score 900 or sacrifice child",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0-1,oom_memcg=/k,"
            "task_memcg=/k/p,task=python,pid=811,uid=0",
            "python invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0",
        ),
        negative=("CUDA out of memory. Tried to allocate 2.00 GiB", "Killing subprocess 1966"),
    ),
    Rule(
        id="KERN-011",
        category="host-oom-kill",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("killed by the OOM killer", "systemd-oomd", "result 'oom-kill'", "earlyoom"),
        pattern=r"killed by the oom killer|failed with result 'oom-kill'|systemd-oomd.{0,40}killed "
        r"|earlyoom.{0,40}sending sig",
        sentence="a process was killed because the host's memory (RAM) ran out (OOM)",
        because="systemd, systemd-oomd or earlyoom says so",
        costs="the rank is gone; the others wait for it until their timeouts",
        fix="use less host memory (fewer loader workers, less offload), or raise the unit's "
        "MemoryMax",
        next="on that node: journalctl -k | grep -i oom; free -g",
        explains=("host-oom-kill", "sigterm", *_DOWN),
        positive=("train.service: A process of this unit has been killed by the OOM killer.",),
        negative=("(1) The process is killed by SIGKILL by OOM killer due to high memory usage.",),
    ),
    Rule(
        id="KERN-012",
        category="driver-mismatch",
        role="cause",
        confidence="certain",
        anchors=("API mismatch", "library version mismatch"),
        pattern=r"nvrm: api mismatch|driver/library version mismatch",
        sentence="the NVIDIA driver's kernel module and its libraries are of different versions",
        because="the driver was updated while the old module stayed loaded, or the container "
        "brings "
        "libraries of another version",
        costs="no CUDA program runs on this node",
        fix="reboot the node (or unload and load the nvidia modules); in containers leave "
        "libcuda to "
        "the NVIDIA container toolkit",
        next="cat /proc/driver/nvidia/version; nvidia-smi",
        explains=_DOWN,
        positive=(
            "NVRM: API mismatch: the client has the version 535.86.05, but",
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
        negative=("NVRM: loading NVIDIA UNIX x86_64 Kernel Module",),
    ),
    Rule(
        id="KERN-013",
        category="driver-not-loaded",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=(
            "RmInitAdapter failed",
            "communicate with the NVIDIA driver",
            "driver not loaded",
            "insert 'nvidia",
        ),
        pattern=r"rminitadapter failed|couldn't communicate with the nvidia driver|driver not "
        r"loaded"
        r"|could not insert 'nvidia(?![_-]peermem)|module nvidia not found",
        sentence="the NVIDIA driver does not run on this node",
        because="its kernel module could not be loaded or could not start the GPU",
        costs="no CUDA program runs on this node",
        fix="look at dmesg for NVRM lines; build the driver for the running kernel (dkms status) "
        "and "
        "load it (modprobe nvidia); a GPU that fails alone: power the node off and on, else "
        "replace it",
        next="dmesg -T | grep -i nvrm; lsmod | grep nvidia",
        explains=_DOWN,
        positive=(
            "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1290)",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
            "modprobe: ERROR: could not insert 'nvidia': No such device",
        ),
        negative=("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",),
    ),
)
