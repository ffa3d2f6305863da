"""What NCCL says of itself with `NCCL_RUN_DIAGNOSTICS` or `NCCL_RUN_RAS_DIAGNOSTICS` (from 2.31 on).

Lines begin with `HOST:PID NCCL DIAG [OK]` or `[INFO]`; what is not well is an `[INFO]` line, too.
"""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",)
_BOX = r"NCCL DIAG (?:\[\w+\]\s*)?"

RULES: tuple[Rule, ...] = (
    Rule(
        id="NDIAG-001",
        category="slow-network",
        role="symptom",
        stage="network",
        anchors=("% off median",),
        pattern=_BOX + r"net bw: (?P<way>\S+) rank (?P<rank>\d+) \((?P<host>[^)]+)\): "
        r"(?P<speed>[\d.]+) Gbit/s, >\d+% off median (?P<median>[\d.]+)",
        sentence="rank {rank} on {host} reaches {speed} Gbit/s over the network ({way}), the median is "
        "{median} Gbit/s",
        because="NCCL's own diagnostics measured each rank's network device alone",
        checks=(
            "that adapter's link: ibstat (rate, width), ethtool; its PCIe width and generation: "
            "lspci -vv",
            "errors of the port and its cable: perfquery, ethtool -S; the switch port",
            "whether another job used it at that time: run again (wirespeed locate)",
        ),
        next="wirespeed locate",
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] net bw: write rank 3 (node-1): 48.2 Gbit/s, >30% off median "
            "190.4 Gbit/s in comm 0x1f2e",
        ),
        negative=(
            "node-0:4000 NCCL DIAG [OK] net bw: 188.0/190.4/191.2 Gbit/s min/median/max write bw "
            "(across 8 ranks) in comm 0x1f2e",
        ),
    ),
    Rule(
        id="NDIAG-002",
        category="slow-network",
        role="symptom",
        stage="network",
        anchors=("NCCL DIAG [INFO] net bw:",),
        pattern=_BOX
        + r"net bw: (?P<what>(?:setup failed on rank (?P<rank>\d+)|failed: [^%]*?|bootstrap "
        r"failure|test unable to complete in allocated time|cannot exchange the measurement with rank "
        r"\d+|capability probe timed out)[^\n]*?)(?: in comm|$)",
        sentence="NCCL's diagnostics could not measure the network: {what}",
        checks=(
            "whether that rank's host has the network device and driver that NCCL_IB_HCA or the plugin "
            "names: ibv_devinfo, NCCL_DEBUG=INFO",
        ),
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] net bw: setup failed on rank 3 in comm 0x1f2e",
            "node-1:4001 NCCL DIAG [INFO] net bw: failed: no usable IB device in comm 0x1f2e",
        ),
        negative=(
            "node-1:4001 NCCL DIAG [INFO] net bw: required external tool missing in comm 0x1f2e",
        ),
    ),
    Rule(
        id="NDIAG-003",
        category="p2p-data-wrong",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("p2p: read mismatch", "p2p: write mismatch"),
        pattern=_BOX
        + r"p2p: (?P<way>read|write) mismatch (?P<where>.*?) expected=(?P<expected>0x\w+) "
        r"got=(?P<got>0x\w+)",
        sentence="data between two GPUs of a node come wrong ({way}, {where}: {got} for {expected})",
        because="NCCL's own diagnostics wrote a pattern over P2P and read another back",
        costs="collectives over these GPUs give wrong results or hang",
        fix="disable PCIe ACS and the IOMMU or set it to pass-through (iommu=pt); "
        "NCCL_P2P_DISABLE=1 until "
        "then; if one GPU is in every such line, replace it",
        next="nvidia-smi topo -p2p rw; wirespeed check --only gpu",
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] p2p: read mismatch rank=2 cudaDev=0 peer=3 "
            "expected=0x00000000deadbeef got=0x0000000000000000; check ACS",
        ),
        negative=(
            "node-1:4001 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU "
            "pair (56 peer accesses)",
        ),
    ),
    Rule(
        id="NDIAG-004",
        category="p2p-failed",
        role="symptom",
        stage="machine",
        anchors=("GPU-to-GPU peer accesses passed", "NCCL DIAG [INFO] p2p:"),
        pattern=_BOX
        + r"p2p: (?P<what>only (?P<good>\d+)/(?P<all>\d+) GPU-to-GPU peer accesses passed|"
        r"(?:launch/check|topology check|peer-memory import|local CUDA setup) failed|setup failed "
        r"on rank "
        r"(?P<rank>\d+)|destination buffer unavailable)",
        sentence="NCCL's diagnostics could not verify P2P between GPUs of a node: {what}",
        checks=(
            "the lines before it: which pair, and the CUDA or NCCL warning",
            "PCIe ACS and IOMMU (dmesg | grep -i iommu), and whether all GPUs are in one container",
        ),
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] p2p: only 54/56 GPU-to-GPU peer accesses passed verification",
            "node-1:4001 NCCL DIAG [INFO] p2p: setup failed on rank 3 result=1",
        ),
        negative=(
            "node-1:4001 NCCL DIAG [INFO] p2p: temporarily enabled context-wide CUDA peer access rank=3 "
            "cudaDev=1; avoid concurrent CUDA use",
        ),
    ),
    Rule(
        id="NDIAG-005",
        category="gpu-memory-error",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("ECC: uncorrected volatile errors",),
        pattern=_BOX + r"ECC: uncorrected volatile errors on rank\(s\) (?P<ranks>\S+) "
        r"\(worst=(?P<count>\d+)\)",
        sentence="GPUs of rank(s) {ranks} have uncorrectable memory errors (worst: {count})",
        because="NCCL's diagnostics read it from NVML",
        costs="wrong data, or an Xid that ends the process",
        fix="drain the node, reset the GPU (nvidia-smi -r) and replace it if they come again",
        next="nvidia-smi -q -d ECC,ROW_REMAPPER",
        explains=("nccl-cuda-error",),
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) 3 "
            "(worst=2) across "
            "8 ranks in comm 0x1f2e",
        ),
        negative=(
            "node-1:4001 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in "
            "comm 0x1f2e",
        ),
    ),
    Rule(
        id="NDIAG-006",
        category="gpu-memory-error",
        role="symptom",
        stage="machine",
        anchors=("ECC: corrected volatile errors",),
        pattern=_BOX
        + r"ECC: corrected volatile errors at or above threshold (?P<limit>\d+) on rank\(s\) "
        r"(?P<ranks>\S+) \(worst=(?P<count>\d+)\)",
        sentence="GPUs of rank(s) {ranks} correct many memory errors (worst: {count}, from {limit} on)",
        checks=("whether they grow: nvidia-smi -q -d ECC,ROW_REMAPPER, now and in an hour",),
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] ECC: corrected volatile errors at or above threshold 100 on "
            "rank(s) 0,3 (worst=512) across 8 ranks in comm 0x1f2e",
        ),
    ),
    Rule(
        id="NDIAG-007",
        category="nvlink-error",
        role="cause",
        stage="machine",
        confidence="likely",
        anchors=(
            "NVLink: inactive link",
            "NVLink: inconsistent link",
            "NVLink: link-count mismatch",
        ),
        pattern=_BOX
        + r"NVLink: (?P<what>inactive link\(s\)|inconsistent link speeds|link-count mismatch)"
        r".*? rank\(s\) (?P<ranks>\S+)",
        sentence="NVLink of rank(s) {ranks} differs from the others': {what}",
        because="NCCL's diagnostics read the links of every GPU from NVML",
        costs="NCCL uses fewer rings there, or PCIe: every collective is slower, or fails",
        fix="nvidia-smi nvlink --status on that node; reset its GPUs and the fabric manager; "
        "drain the node "
        "if a link stays down",
        next="nvidia-smi nvlink --status; dmesg | grep -i xid",
        links=_LINKS,
        positive=(
            "node-1:4001 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) 3 across 8 ranks "
            "in comm 0x1",
            "n:1 NCCL DIAG [INFO] NVLink: link-count mismatch across 8 ranks in comm 0x1, "
            "rank(s) 5 differ "
            "from rank 0 (18)",
        ),
        negative=(
            "n:1 NCCL DIAG [OK]   NVLink: 18 links per GPU, all active at consistent speed "
            "across 8 ranks "
            "in comm 0x1",
        ),
    ),
    Rule(
        id="NDIAG-008",
        category="nodes-differ",
        role="symptom",
        stage="setup",
        anchors=("mismatch across",),
        pattern=_BOX + r"(?P<what>[\w ]+): (?:(?:count|model) )?mismatch across \d+ ranks in comm "
        r"[^\s,]+,? (?P<how>rank\(s\) \S+ differ from rank \d+ \([^)]*\)|for \S+)",
        unless="NVLink:",
        sentence="ranks differ in {what}: {how}",
        checks=("the driver, GPU type and environment of those hosts: all should be alike",),
        links=_LINKS,
        positive=(
            "n:1 NCCL DIAG [INFO] NVIDIA driver version: mismatch across 8 ranks in comm 0x1, "
            "rank(s) 4-7 "
            "differ from rank 0 (580.95.05)",
            "n:1 NCCL DIAG [INFO] GPU inventory: model mismatch across 8 ranks in comm 0x1, rank(s) 4 "
            "differ from rank 0 (NVIDIA H100 80GB HBM3)",
            "n:1 NCCL DIAG [INFO] NCCL environment: mismatch across 8 ranks in comm 0x1 for NCCL_IB_HCA",
        ),
        negative=(
            "n:1 NCCL DIAG [OK]   CUDA driver version: 13000 consistent across 8 ranks in comm 0x1",
        ),
    ),
    Rule(
        id="NDIAG-009",
        category="missing-rank",
        role="symptom",
        stage="wait",
        anchors=("diagnostics incomplete, gathered",),
        pattern=r"(?P<what>[\w ]+): diagnostics incomplete, gathered (?P<here>\d+)/(?P<all>\d+) ranks",
        sentence="only {here} of {all} ranks answered NCCL's diagnostics",
        checks=("which ranks do not answer: their process and node (ncclras -v)",),
        links=_LINKS,
        positive=(
            "n:1 NCCL DIAG [INFO] ECC: diagnostics incomplete, gathered 7/8 ranks in comm 0x1/0x2/0x3",
        ),
    ),
    Rule(
        id="NDIAG-010",
        category="gpu-xid",
        role="symptom",
        stage="machine",
        anchors=("NCCL DIAG [INFO] Xid", "NCCL DIAG [INFO] SXid"),
        pattern=_BOX + r"S?Xid (?P<xid>\d+) detected .*? on host (?P<host>\S+?)\. (?P<advice>.*)",
        unless="No user action or further investigation",
        sentence="NCCL's diagnostics found Xid {xid} in the kernel log of {host}: {advice}",
        checks=(
            "what that number means and asks for: dmesg -T | grep -i xid, then wirespeed diagnose it",
        ),
        links=("https://docs.nvidia.com/deploy/xid-errors/index.html",),
        positive=(
            "n:1 NCCL DIAG [INFO] Xid 79 detected 12 minutes ago on host node-3. The NVIDIA Xid catalog "
            "recommends resetting the affected GPU.",
        ),
        negative=(
            "n:1 NCCL DIAG [INFO] Xid 43 detected 2 minutes ago on host node-3. No user action "
            "or further "
            "investigation is required for this Xid.",
        ),
    ),
    Rule(
        id="NDIAG-011",
        category="rdma-topology",
        role="symptom",
        stage="machine",
        anchors=("rdma_topo check: failed",),
        pattern=_BOX + r"rdma_topo check: failed on rank\(s\) (?P<ranks>\S+) .*?: (?P<why>.*)",
        sentence="the RDMA topology of rank(s) {ranks} is not as it should be: {why}",
        checks=(
            "PCIe ACS, the NIC's and GPU's switch and ATS on that node: rdma_topo check, lspci -tv",
        ),
        links=_LINKS,
        positive=(
            "n:1 NCCL DIAG [INFO] rdma_topo check: failed on rank(s) 3 across 1/8 ranks in comm "
            "0x1; first "
            "rank 3 exit 1: ACS is enabled on 0000:17:00.0",
        ),
    ),
)
