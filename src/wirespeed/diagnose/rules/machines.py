"""Nodes that a scheduler or Ray lost, logins that a scheduler forbids, NVSwitch services, "
"NVSHMEM."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = (
    "python-runtime",
    "launcher-exit",
    "slurm-aborted",
    "exit-code",
    "watchdog-timeout",
    "mpi-lost-node",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="MACH-001",
        category="node-failure",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("DUE TO NODE",),
        pattern=r"cancelled at \S+ due to node (?P<node>(?!failure)\S+) failure",
        sentence="node {node} of the job failed, and Slurm ended the job",
        because="slurmctld lost the node: it crashed, was rebooted, or its network went away",
        costs="all ranks were ended; what was not saved is lost",
        fix="start again without it (--exclude={node}) and have it looked at (dmesg, console, "
        "sinfo -R); "
        "--no-kill lets the other nodes go on",
        next="sinfo -R; sacct -j JOB -o JobID,State,NodeList",
        explains=("SLURM-003", "sigterm", *_DOWN),
        links=("https://slurm.schedmd.com/troubleshoot.html",),
        positive=(
            "slurmstepd: error: *** STEP 811.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO NODE "
            "n2 "
            "FAILURE ***",
        ),
        negative=(
            "slurmstepd: error: *** JOB 811 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO TIME "
            "LIMIT ***",
        ),
    ),
    Rule(
        id="MACH-002",
        category="node-failure",
        role="cause",
        stage="machine",
        anchors=("has been marked dead", "missed too many heartbeats", "The node was terminated"),
        pattern=r"node with node id.{0,120}marked dead because (?P<why>.{1,120})|node was "
        r"terminated "
        r"(?:expectedly|unexpectedly)",
        sentence="Ray lost a node: its raylet does not answer any more",
        because="the machine failed or was taken away, its memory ran out so that the raylet was "
        "killed, or it "
        "is so busy that heartbeats are late",
        costs="the actors on this node are gone; the others wait for them",
        fix="look at that node: dmesg (OOM), ray's logs "
        "(/tmp/ray/session_latest/logs/raylet.out), whether "
        "the cloud took it back; leave memory and a core for Ray itself",
        next="ray status; ray list nodes",
        explains=("END-007", "python-aftermath", *_DOWN),
        links=("https://docs.ray.io/en/latest/ray-core/fault_tolerance/nodes.html",),
        positive=(
            "The node with node id: abc and address: 10.0.0.7 has been marked dead because the "
            "detector "
            "has missed too many heartbeats from it.",
        ),
        negative=("node with node id: abc joined the cluster",),
    ),
    Rule(
        id="MACH-003",
        category="launcher-ssh",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=(
            "pam_slurm",
            "no active jobs on this node",
            "account is currently not available",
            "account has expired",
            "System is booting up",
            "pam_nologin",
        ),
        pattern=r"(?P<what>pam_slurm\S*.{0,60}no active jobs on this node|you have no active jobs "
        r"on this node|"
        r"account is currently not available|your account has expired|system is (?:booting "
        r"up|going down))",
        sentence="the other node forbids the ssh login: {what}",
        because="Slurm's pam_slurm_adopt lets users in only where they have a running job; "
        "nologin and expired "
        "accounts shut everybody out",
        costs="no process is started on that node",
        fix="start the processes inside the allocation (srun, or mpirun from sbatch or salloc "
        "with exactly "
        "these nodes); check the hostfile against scontrol show hostnames",
        next="squeue -u $USER -o '%i %N'; scontrol show hostnames",
        explains=("mpi-daemon", "launcher-exit", "exit-code"),
        links=("https://slurm.schedmd.com/pam_slurm_adopt.html",),
        positive=(
            "Access denied by pam_slurm_adopt: you have no active jobs on this node",
            '"System is booting up. Unprivileged users are not permitted to log in yet.',
        ),
        negative=("pam_unix(sshd:session): session opened for user mpi",),
    ),
    Rule(
        id="MACH-004",
        category="fabric-manager",
        role="cause",
        stage="machine",
        anchors=("fabricmanager", "fabric manager"),
        pattern=r"nv-?(?:idia-)?fabricmanager.{0,120}(?P<what>failed to "
        r".{1,80}|error\b.{1,80}|version mismatch"
        r".{0,80}|entered failed state|failed with result \S+)|fabric ?manager version "
        r".{0,80}(?:does not "
        r"match|mismatch).{0,60}",
        sentence="NVIDIA's fabric manager fails on this node: NVSwitch cannot be used",
        because="it must be of exactly the driver's version, and must see all NVSwitches",
        costs="CUDA does not start (error 802), or GPUs cannot reach each other",
        fix="install nvidia-fabricmanager of the driver's exact version, systemctl enable --now "
        "nvidia-fabricmanager; when NVSwitches are missing power the node off and on",
        next="systemctl status nvidia-fabricmanager; cat /var/log/fabricmanager.log; nvidia-smi "
        "-q | grep "
        "-A3 Fabric",
        explains=("NCCL-101", "NCCL-102", "NCCL-103", "nccl-cuda-error", *_DOWN),
        links=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",),
        positive=(
            "nv-fabricmanager[811]: failed to find all NVSwitches",
            "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
            "fabric manager version 535.104.05 does not match driver version 535.86.10",
        ),
        negative=(
            "nv-fabricmanager[811]: Successfully configured all the available GPUs and NVSwitches",
        ),
    ),
    Rule(
        id="MACH-005",
        category="nvshmem",
        role="symptom",
        stage="setup",
        anchors=("nvshmem", "NVSHMEM"),
        pattern=r"(?:nvshmem\S*|/transport/ib\w+/\S+).{0,120}(?P<what>init(?:ialization)? "
        r"failed|NULL value "
        r"\S+ failed|nvshmemi?_\w+ failed|failed to "
        r"(?:allocate|register|map|create|open)\b.{0,60}|non-zero "
        r"status: \d+ .{0,80})",
        unless=r"DEBUG|INFO",
        sentence="NVSHMEM cannot start its transport: {what}",
        checks=(
            "whether RDMA devices are in the container and memlock is unlimited: ibv_devinfo, "
            "ulimit -l",
            "whether GPUDirect RDMA works: lsmod | grep peermem; for IBGDA the driver options "
            "NVreg_EnableStreamMemOPs=1 and PeerMappingOverride=1, then reload the driver or "
            "reboot",
            "whether it takes the right NICs: NVSHMEM_HCA_LIST, NVSHMEM_IB_GID_INDEX; one rank a "
            "GPU",
            "whether NVSHMEM fits CUDA and the program (DeepEP): NVSHMEM_INFO=1, "
            "NVSHMEM_DEBUG=INFO",
        ),
        explains=("python-runtime", "launcher-exit", "exit-code"),
        links=("https://docs.nvidia.com/nvshmem/api/gen/env.html",),
        positive=(
            "/dvs/p4/nvshmem/src/modules/transport/ibrc/ibrc.cpp:400: NULL value get_device_list "
            "failed",
            "nvshmem: init failed for transport: IBGDA",
        ),
        negative=("NVSHMEM v3.2.5, nvshmem initialized",),
    ),
    Rule(
        id="MACH-006",
        category="watchdog-timeout",
        role="symptom",
        stage="wait",
        anchors=("DeepEP",),
        pattern=r"DeepEP.{0,40}(?P<what>timeout|timed out|recv timeout)",
        sentence="DeepEP waited in vain for another rank's tokens",
        checks=(
            "whether a rank ended or hangs: the earliest error in all ranks' logs",
            "whether RDMA between the nodes works for NVSHMEM (IBGDA): its own tests; "
            "NVSHMEM_IB_GID_INDEX, NVSHMEM_HCA_LIST",
            "whether all ranks call dispatch and combine with the same settings "
            "(num_max_dispatch_tokens)",
        ),
        explains=("python-runtime", "launcher-exit", "exit-code"),
        links=("https://github.com/deepseek-ai/DeepEP",),
        positive=("RuntimeError: DeepEP error: CPU recv timeout",),
        negative=("DeepEP: buffer of 512 MB",),
    ),
    Rule(
        id="MACH-007",
        category="gpu-memory-error",
        role="cause",
        stage="machine",
        anchors=("page retirement", "Row Remapper", "row remap", "Remapping Failure"),
        pattern=r"uncorrectable page retirement pending|row remap\w* ?: ?failed|remapping failure "
        r"occurred\s*: "
        r"yes|row remapper: .{0,40}(?:failed|no reserved)",
        sentence="a GPU's memory has errors that wait for a reset, or cannot be repaired any more",
        because="the driver retires pages or replaces rows at the next reset; where no spare row "
        "is left the GPU "
        "must be replaced",
        costs="programs on this GPU end with ECC errors",
        fix="drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot; with 'Remapping "
        "Failure "
        "Occurred: Yes' have it replaced",
        next="nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT,ECC",
        explains=_DOWN,
        links=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",),
        positive=(
            "NVRM: GPU at PCI:0000:3b:00: GPU-1234 has uncorrectable page retirement pending",
            "        Remapping Failure Occurred        : Yes",
        ),
        negative=("        Remapping Failure Occurred        : No",),
    ),
    Rule(
        id="MACH-008",
        category="gpu-failed",
        role="cause",
        stage="machine",
        anchors=("GPU requires reset", "No devices were found"),
        pattern=r"\bGPU requires reset|(?:^|nvidia-smi:? )\s*no devices were found",
        sentence="nvidia-smi finds a GPU that needs a reset, or none at all",
        because="the GPU failed (Xid), was lost, or its driver could not start it",
        costs="no CUDA program runs on this GPU",
        fix="look at dmesg for Xid and NVRM lines; drain the node; nvidia-smi --gpu-reset, else "
        "power it off "
        "and on; if it comes back have the GPU replaced",
        next="dmesg -T | grep -iE 'nvrm|xid'; lspci | grep -i nvidia",
        explains=("gpu-visible", *_DOWN),
        links=("https://docs.nvidia.com/deploy/xid-errors/index.html",),
        positive=(
            "No devices were found",
            "NVML: GPU requires reset",
        ),
        negative=("NET/IB : No device found.",),
    ),
)
