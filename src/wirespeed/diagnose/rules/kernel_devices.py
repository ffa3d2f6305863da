"""The kernel's log: machine, PCIe, disks and network cards."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("launcher-exit", "exit-code", "watchdog-timeout", "mpi-lost-node", "crash")

RULES: tuple[Rule, ...] = (
    Rule(
        id="KERN-030",
        category="nic-link-down",
        role="cause",
        stage="network",
        anchors=("Link down", "Link is down", "definitely down", "Cable unplugged", "Cable error"),
        pattern=r"(?:mlx[45]_core|mlx5_\d|bnxt_en|ice|i40e|ixgbe|ena|ionic|efa|eth\d|en[opsx]\w+|ib\d"
        r"|bond\d)\b.{0,80}\blink (?:is )?down|nic link is down|link status definitely down"
        r"|port module event.{0,40}(?:unplugged|cable error)",
        sentence="a network card lost its link (link down)",
        because="the kernel saw the cable or the switch port go down; traffic over it stops "
        "until the "
        "link is up",
        costs="connections over this card break or wait (RDMA: retries, then error 12)",
        fix="check cable, transceiver and switch port; ethtool -S and mlxlink show error "
        "counters; take "
        "the node out until the link is stable",
        next="on that node: dmesg -T | grep -i link; ip -br link; ibstat",
        explains=(*_DOWN, "ib-retry-exceeded"),
        positive=(
            "mlx5_core 0000:3b:00.0 eth0: Link down",
            "bnxt_en 0000:18:00.0 ens1f0: NIC Link is Down",
            "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged",
            "bond0: (slave ens3): link status definitely down, disabling slave",
        ),
        negative=("mlx5_core 0000:3b:00.0 eth0: Link up", "NVLink down-rated to 25 GB/s"),
    ),
    Rule(
        id="KERN-031",
        category="nic-failed",
        role="cause",
        stage="machine",
        anchors=("NETDEV WATCHDOG", "health compromised", "cause a leak of a command", "synd 0x"),
        pattern=r"netdev watchdog: .{1,80}transmit queue \d+ timed out|health compromised"
        r"|mlx5_core.{0,120}will cause a leak of a command|mlx5_core.{0,60}fatal error",
        sentence="a network card or its driver stopped working",
        because="the kernel waited in vain for the card (transmit queue or firmware command "
        "timed out)",
        costs="traffic over this card stops",
        fix="restart the node or reload the card's driver; update its firmware and driver; "
        "replace it if "
        "it comes back",
        next="on that node: dmesg -T | grep -iE 'watchdog|mlx5'; ethtool -i DEVICE",
        explains=(*_DOWN, "ib-retry-exceeded"),
        positive=(
            "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
            "mlx5_core 0000:3b:00.0: poll_health:800:(pid 0): device's health compromised - "
            "reached miss",
        ),
        negative=("watchdog: NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",),
    ),
    Rule(
        id="KERN-032",
        category="pcie-error",
        role="cause",
        stage="machine",
        anchors=("AER: ", "PCIe Bus Error", "pciehp: Slot"),
        pattern=r"AER: (?:multiple )?uncorrect\w+ |severity=uncorrected|pciehp: slot\(\S+\): "
        r"link down",
        sentence="a PCIe device reports an uncorrected error",
        because="transfers between this device and the host failed: a bad slot, riser, cable or "
        "device",
        costs="the device (GPU, NIC or disk) fails or resets",
        fix="the line names the device (lspci -s ADDRESS): reseat or replace it; update "
        "firmware; drain "
        "the node meanwhile",
        next="dmesg -T | grep -iE 'aer|pcie'",
        explains=_DOWN,
        positive=(
            "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:00:01.0",
            "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), "
            "type=Transaction",
        ),
        negative=(
            "pcieport 0000:00:01.0: AER: Corrected error received: 0000:00:01.0",
            "PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        ),
    ),
    Rule(
        id="KERN-033",
        category="iommu-fault",
        role="cause",
        stage="machine",
        anchors=("DMAR: ", "IO_PAGE_FAULT", "arm-smmu"),
        pattern=r"DMAR: \[DMA (?:read|write)[^\]]*\]|DMAR: DRHD: handling fault|AMD-Vi: event "
        r"logged "
        r"\[IO_PAGE_FAULT|\bIO_PAGE_FAULT device=|arm-smmu\S* \S+: event 0x10",
        sentence="the IOMMU blocked a device's access to memory",
        because="copies between GPUs (P2P) or from a NIC into a GPU (GPUDirect) are refused or "
        "redirected when the IOMMU translates them",
        costs="peer-to-peer copies hang, fail or give wrong data",
        fix="turn the IOMMU off or to pass-through (intel_iommu=off, or iommu=pt) and PCIe ACS "
        "off; "
        "NCCL_P2P_DISABLE=1 as a workaround",
        next="cat /proc/cmdline; dmesg -T | grep -iE 'dmar|amd-vi|smmu'",
        explains=("p2p-hang", "data-corruption", *_DOWN),
        positive=(
            "DMAR: [DMA Read] Request device [3b:00.0] PASID ffffffff fault addr 387f0000 [fault "
            "reason",
            "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0023 "
            "address=0xd0f7a000",
        ),
        negative=("DMAR: IOMMU enabled", "AMD-Vi: Interrupt remapping enabled"),
    ),
    Rule(
        id="KERN-034",
        category="machine-check",
        role="cause",
        stage="machine",
        anchors=(
            "Machine Check Exception",
            "EDAC MC",
            "Kernel panic",
            "Uncorrected hardware memory",
        ),
        pattern=r"machine check exception|EDAC MC\d+: \d+ UE |kernel panic - not syncing"
        r"|uncorrected hardware memory error|fatal machine check",
        sentence="the machine has a hardware error (machine check, memory) or its kernel stopped",
        because="the kernel's log says so",
        costs="processes on this node are killed or the node restarts",
        fix="drain the node; read ras-mc-ctl --errors or the BMC's event log (ipmitool sel "
        "list); replace "
        "the memory module or part that it names",
        next="ipmitool sel list | tail; ras-mc-ctl --errors",
        explains=("host-oom-kill", *_DOWN),
        positive=(
            "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400",
            "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
            "Kernel panic - not syncing: Fatal exception",
        ),
        negative=("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "EDAC MC: Ver: 3.0.0"),
    ),
    Rule(
        id="KERN-035",
        category="storage-error",
        role="cause",
        stage="machine",
        anchors=(
            "I/O error",
            "EXT4-fs error",
            "XFS (",
            "Remounting filesystem",
            "nvme nvme",
            "nfs: server",
        ),
        pattern=r"(?:blk_update_request|print_req_error|buffer|critical medium|metadata)?:? ?I/O "
        r"error,? "
        r"(?:on )?dev|EXT4-fs error \(device|remounting filesystem read-only|XFS \(\S+\): .{0,60}"
        r"(?:I/O error|corruption)|nvme nvme\d+: .{0,60}(?:timeout|controller is down)"
        r"|nfs: server \S+ not responding",
        sentence="a disk or file system fails",
        because="the kernel's log reports errors or time-outs of the device",
        costs="processes that read data or write checkpoints there fail or hang",
        fix="check the device (smartctl -a, nvme smart-log) or the file server; replace the "
        "disk; move "
        "the data elsewhere",
        next="on that node: dmesg -T | grep -iE 'i/o error|nvme|nfs'; df -h",
        explains=_DOWN,
        positive=(
            "blk_update_request: I/O error, dev nvme0n1, sector 811",
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python",
            "nvme nvme0: I/O 811 QID 3 timeout, aborting",
            "nfs: server fs1 not responding, still trying",
        ),
        negative=(
            "nfs: server fs1 OK",
            "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        ),
    ),
    Rule(
        id="KERN-036",
        category="process-stuck",
        role="symptom",
        stage="machine",
        anchors=("blocked for more than", "soft lockup", "hard LOCKUP", "rcu_sched"),
        pattern=r"task (?P<name>\S+?):(?P<pid>\d+) blocked for more than \d+ seconds|bug: soft "
        r"lockup"
        r"|watchdog detected hard lockup|rcu_\w+ (?:self-)?detected (?:expedited )?stall",
        sentence="the kernel found a process or CPU stuck for minutes",
        checks=(
            "whether a file system does not answer (stack below names nfs, lustre, ext4, "
            "io_schedule): "
            "mend the storage",
            "whether a driver hangs (stack names nvidia, mlx5): reset or reboot the node",
            "whether memory is nearly full and the machine swaps: free -g",
        ),
        positive=(
            "INFO: task python:1234 blocked for more than 120 seconds.",
            "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:811]",
        ),
        negative=("blocked for more than one reason",),
    ),
    Rule(
        id="KERN-037",
        category="gpu-failed",
        role="cause",
        stage="machine",
        anchors=("amdgpu",),
        pattern=r"amdgpu.{0,80}(?:gpu reset begin|ring \S+ timeout|uncorrectable hardware "
        r"error|gpu "
        r"recovery failed|job_timedout)",
        sentence="the amdgpu driver reports that a GPU failed or is being reset",
        because="the driver lost a GPU's answer or found an uncorrectable error",
        costs="the process on this GPU fails, and with it the job",
        fix="drain the node, reset the GPU (rocm-smi --gpureset -d N) or reboot; replace it if "
        "it comes "
        "back",
        next="dmesg -T | grep -i amdgpu; rocm-smi --showrasinfo all",
        explains=_DOWN,
        positive=("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",),
        negative=("amdgpu 0000:c1:00.0: amdgpu: VRAM: 65520M 0x0000008000000000",),
    ),
)
