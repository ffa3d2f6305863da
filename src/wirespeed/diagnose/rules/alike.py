"""What every rank of a job should say alike; `wirespeed.diagnose.disagreements` names who does not.

Texts of NCCL 2.4 to 2.30 (src/misc, src/plugin, src/transport/net_ib.cc, src/init.cc).
"""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    Rule(
        id="SAME-001",
        category="NCCL version",
        role="fact",
        alike=True,
        anchors=("CCL version",),
        pattern=r"(?P<name>[NR]CCL) version[ :]+(?P<version>\d+\.\d+(?:\.\d+)*)",
        sentence="{name} {version}",
        positive=("NCCL version 2.27.3+cuda12.9", "RCCL version : 2.22.3-HEAD:9c6d9a9"),
        negative=("Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703",),
    ),
    Rule(
        id="SAME-002",
        category="driver",
        role="fact",
        alike=True,
        anchors=("cudaDriverVersion", "hipDriverVersion"),
        pattern=r"(?:cuda|hip)DriverVersion (?P<driver>\d+)",
        sentence="driver for CUDA {driver}",
        positive=("NCCL INFO cudaDriverVersion 12040",),
        negative=("CUDA Driver version found is 12. Minimum requirement is 13",),
    ),
    Rule(
        id="SAME-003",
        category="net plugin",
        role="fact",
        alike=True,
        anchors=("Loaded net plugin", "loaded external network plugin"),
        pattern=r"NET/Plugin ?: (?:loaded net plugin (?P<plugin>[\w -]{1,40}?) \(v\d+\)"
        r"|successfully loaded external network plugin)",
        sentence="a net plugin is loaded",
        positive=("NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v8)",),
        negative=("NCCL INFO NET/Plugin: Loaded collnet plugin SHARP (v8)",),
    ),
    Rule(
        id="SAME-004",
        category="net plugin",
        role="fact",
        alike=True,
        anchors=("No plugin found", "Using internal network plugin"),
        pattern=r"NET/Plugin ?: .{0,300}?(?:no plugin found|using internal network plugin)",
        sentence="no net plugin",
        positive=(
            "NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
            "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        ),
        negative=("NCCL INFO TUNER/Plugin: No plugin found",),
    ),
    Rule(
        id="SAME-005",
        category="GPUDirect RDMA",
        role="fact",
        alike=True,
        anchors=("GPU Direct RDMA Enabled for HCA", "GPU Direct RDMA Disabled for HCA"),
        pattern=r"GPU Direct RDMA (?P<state>enabled|disabled) for HCA",
        sentence="GPUDirect RDMA {state}",
        positive=("NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",),
        negative=("NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 7 > 6)",),
    ),
    Rule(
        id="SAME-006",
        category="number of network adapters",
        role="fact",
        alike=True,
        anchors=("NET/IB : Using", "NET/IB: Using"),
        pattern=r"NET/IB\w* ?: using .{0,2000}\[(?P<last>\d+)\][\w.-]+:\d+(?:\+\d+)?/(?:IB|RoCE)\b",
        sentence="RDMA adapters 0 to {last}",
        positive=(
            "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.1.0.1<0>",
        ),
        negative=("NCCL INFO NET/IB : No device found.",),
    ),
    Rule(
        id="SAME-007",
        category="number of network adapters",
        role="fact",
        alike=True,
        anchors=("Selected Provider is", "selected provider is"),
        pattern=r"NET/OFI .{0,40}selected provider is (?P<provider>[\w;-]+)"
        r".{0,40}found (?P<count>\d+) nics",
        sentence="{count} adapters of libfabric's {provider}",
        positive=("NCCL INFO NET/OFI Selected Provider is efa, fabric is efa (found 4 nics)",),
        negative=("NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.7.3-aws",),
    ),
    Rule(
        id="SAME-008",
        category="number of channels",
        role="fact",
        alike=True,
        anchors=(" coll channels",),
        pattern=r"(?P<coll>\d+) coll channels, .{0,80}?(?P<p2p>\d+) p2p channels,",
        sentence="{coll} coll channels, {p2p} p2p channels",
        positive=(
            "NCCL INFO 16 coll channels, 0 collnet channels, 16 nvls channels, 16 p2p channels, 1 p2p "
            "channels per peer",
        ),
        negative=("NCCL INFO Channel 00/02 :    0   1   2   3",),
    ),
)
