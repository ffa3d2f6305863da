"""RDMA transfers that end with an error: the completion's status and the NIC's own code."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_RDMA = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#networking-issues",
)
_ACS_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#pci-access-control-services-acs",
)
_ANCHORS = ("Got completion",)
_FOLLOWS = (
    "ib-flush",
    "ib-access",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)
_PEER = (
    "whether the other rank or node ended first: the earliest error in its log, dmesg (OOM, Xid)"
)
_GDR = (
    "whether GPUDirect RDMA is broken (ACS, IOMMU, peermem): NCCL_NET_GDR_LEVEL=LOC for a try; "
    "disable ACS, iommu=pt, reload nvidia-peermem"
)


def _status(number: int, name: str) -> str:
    """Every spelling of one completion status since NCCL 2.4."""
    return (
        rf"got completion (?:from peer (?P<peer>\S+) )?with (?:error {number}\b|status[= "
        rf"]{number}\b|status=IBV_WC_{name}\b)(?:.{{0,300}}?vendor[ _]err[= ](?P<vendor>\d+))?"
    )


_TIMEOUT = _status(12, "RETRY_EXC_ERR")

RULES: tuple[Rule, ...] = (
    Rule(
        id="NIB-101",
        category="roce-gid-index",
        role="cause",
        stage="network",
        anchors=_ANCHORS,
        pattern=_TIMEOUT,
        absent=("FACT-005",),
        sentence="an RDMA transfer got no answer (error 12: timeout, retries exceeded, vendor err "
        "{vendor}): on RoCE mostly the GID index (NCCL_IB_GID_INDEX) leads to a network that is "
        "not routed between the nodes",
        because="connections are made over TCP, so a RoCE network that does not carry packets "
        "shows only with the first transfer; when it comes after hours, look for a lost link or a "
        "node that ended",
        costs="NCCL stops; the other ranks wait",
        fix="NCCL_IB_GID_INDEX set to the index of the RoCE v2 GID with the routed IPv4 address "
        "(show_gids; often NCCL_IB_GID_INDEX=3), on all ranks; check routes, VLAN, MTU and "
        "lossless settings (PFC, NCCL_IB_TC) of the switches; NCCL_IB_TIMEOUT=22 outlives short "
        "losses; NCCL_IB_HCA to exclude NICs of other networks",
        next="show_gids; ib_write_bw -d DEVICE -x INDEX between the two nodes; ibstat",
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-ib-gid-index", *_RDMA),
        positive=(
            "NCCL WARN NET/IB : Got completion from peer 10.8.17.147<38560> with error 12, opcode "
            "0, len 0, vendor err 129",
            "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
            "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> "
            "with status=12 opcode=0 len=0 vendor err 129 (Recv)",
            "NCCL WARN NET/IB: Got completion from peer 10.153.235.13<40554> with "
            "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RECV_RDMA_WITH_IMM(129) vendor_err=129",
        ),
        negative=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 4, opcode 0, len "
            "0, vendor err 81",
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=1 opcode=0",
        ),
    ),
    Rule(
        id="NIB-102",
        category="ib-retry-exceeded",
        role="symptom",
        stage="network",
        anchors=_ANCHORS,
        pattern=_TIMEOUT,
        needs=("FACT-005",),
        sentence="an InfiniBand transfer got no answer (error 12: timeout, retries exceeded, "
        "vendor err {vendor}, peer {peer})",
        because="the other NIC did not answer in time: its link, the fabric, or its process is "
        "gone",
        checks=(
            _PEER,
            "whether a link or cable is bad: ibstat, ibqueryerrors, mlxlink, 'port error' in the "
            "logs",
            "whether the nodes may talk (partition keys, NICs of different fabrics, cloud "
            "placement): ib_write_bw between the two nodes; NCCL_IB_PKEY, NCCL_IB_HCA",
            "whether the fabric is congested: NCCL_IB_TIMEOUT=22, NCCL_IB_RETRY_CNT=7",
            "with RoCE NICs: NCCL_IB_GID_INDEX (show_gids)",
        ),
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-ib-timeout", *_RDMA),
        positive=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<3> with status=12 opcode=0 len=0 "
            "vendor err 129 (Send)",
        ),
        negative=("NCCL WARN NET/IB : Got completion with error 5, opcode 0, vendor err 249",),
    ),
    Rule(
        id="NIB-103",
        category="acs",
        role="cause",
        stage="network",
        anchors=_ANCHORS,
        pattern=_status(4, "LOC_PROT_ERR"),
        sentence="the NIC could not read the GPU's memory (error 4: local protection error, vendor "
        "err {vendor}): mostly PCIe ACS or the IOMMU breaks GPUDirect RDMA",
        because="with ACS the NIC's accesses to the GPU take a way through the root complex that "
        "does not deliver them; virtual machines need ATS instead",
        costs="transfers between nodes fail",
        fix="disable ACS on the PCIe switches (setpci -s BRIDGE ECAP_ACS+6.w=0000, or in the BIOS) "
        "and set iommu=pt or off; in virtual machines enable ATS on the NIC; "
        "NCCL_NET_GDR_LEVEL=LOC works around it without GPUDirect RDMA; check that nvidia-peermem "
        "fits driver and OFED",
        next="lspci -vvv | grep -i acsctl (SrcValid+ means ACS is on); ib_write_bw --use_cuda=0",
        explains=_FOLLOWS,
        links=_ACS_LINKS,
        positive=(
            "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
            "fe80::966d:ae03:8b:df54%ib0<33397> with error 4, opcode 32611, len 32611, vendor err "
            "81 (Send)",
            "NCCL WARN NET/IB: Got completion from peer 10.99.91.63<51161> with status=4 "
            "opcode=32614 len=32614 vendor err 81 (Send) localGid ::ffff:10.99.92.59 hca mlx5_1",
        ),
        negative=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=0 len=0 "
            "vendor err 129",
        ),
    ),
    Rule(
        id="NIB-104",
        category="ib-flush",
        role="consequence",
        stage="aftermath",
        anchors=(*_ANCHORS, "Got CQE with error"),
        pattern=_status(5, "WR_FLUSH_ERR") + r"|got CQE with error",
        sentence="a transfer was flushed after its RDMA connection had failed (error 5)",
        checks=("the first completion error of this NIC, and the other rank's log",),
        positive=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 5, opcode 0, len "
            "0, vendor err 249",
            "NCCL WARN NET/IB: ncclIbTest: Got CQE with error (devIndex=0, req=0x7f, wr_id=0)",
        ),
        negative=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 12, vendor err 129",
        ),
    ),
    Rule(
        id="NIB-105",
        category="ib-access",
        role="symptom",
        stage="network",
        anchors=_ANCHORS,
        pattern=_status(10, "REM_ACCESS_ERR"),
        sentence="the other NIC refused access to its memory (error 10: remote access error, "
        "vendor err {vendor}, peer {peer})",
        checks=(
            _GDR,
            "whether NCCL uses a NIC that is no network (NVSwitch-internal mlx5 device): "
            "NCCL_IB_HCA names the right ones",
            _PEER,
            "whether ranks run different NCCL versions, plugins or settings (env | grep NCCL)",
        ),
        explains=_FOLLOWS,
        links=_ACS_LINKS,
        positive=(
            "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<1> with "
            "status=IBV_WC_REM_ACCESS_ERR(10) opcode=0 vendor_err=136",
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 10, opcode 0, len "
            "0, vendor err 136",
        ),
        negative=("NCCL WARN NET/IB : Got completion with error 1, opcode 0, vendor err 105",),
    ),
    Rule(
        id="NIB-106",
        category="ib-remote-operation",
        role="symptom",
        stage="network",
        anchors=_ANCHORS,
        pattern=rf"(?:{_status(11, 'REM_OP_ERR')})",
        sentence="the other NIC could not carry out a transfer (error 11: remote operation error, "
        "vendor err {vendor}, peer {peer})",
        checks=(
            "whether the other node's NIC cannot reach its GPU's memory: " + _GDR,
            _PEER,
            "whether the other NIC failed: dmesg there (mlx5, AER)",
        ),
        explains=_FOLLOWS,
        links=_ACS_LINKS,
        positive=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 11, opcode 0, len "
            "0, vendor err 137",
        ),
        negative=("NCCL WARN NET/IB : Got completion with error 12, opcode 0, vendor err 129",),
    ),
    Rule(
        id="NIB-107",
        category="ib-receiver-not-ready",
        role="symptom",
        stage="network",
        anchors=_ANCHORS,
        pattern=_status(13, "RNR_RETRY_EXC_ERR"),
        sentence="the other rank was not ready to receive (error 13: RNR retries exceeded, peer "
        "{peer})",
        checks=(
            _PEER,
            "whether the ranks call different collectives or sizes: TORCH_DISTRIBUTED_DEBUG=DETAIL",
            "whether ranks run different NCCL versions, plugins or settings",
        ),
        explains=_FOLLOWS,
        links=_RDMA,
        positive=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 13, opcode 0, len "
            "0, vendor err 135",
        ),
        negative=("NCCL WARN NET/IB : Got completion with error 12, opcode 0, vendor err 129",),
    ),
    Rule(
        id="NIB-108",
        category="ib-completion",
        role="symptom",
        stage="network",
        anchors=_ANCHORS,
        pattern=r"got completion (?:from peer (?P<peer>\S+) )?with (?:error |status[= "
        r"])(?:IBV_WC_(?P<name>LOC_LEN_ERR|LOC_QP_OP_ERR|REM_INV_REQ_ERR|GENERAL_ERR|FATAL_ERR"
        r"|BAD_RESP_ERR|LOC_ACCESS_ERR)\(?)?(?P<status>[1236789]|1[4-9]|2\d)\b(?:.{0,300}?vendor[ "
        r"_]err[= ](?P<vendor>\d+))?",
        sentence="an RDMA transfer failed with status {status} (vendor err {vendor}, peer {peer})",
        checks=(
            _GDR,
            "whether ranks run different NCCL versions, plugins or settings, or send other sizes "
            "than are received",
            "whether memory behind a buffer was freed: a newer NCCL; NCCL_IB_USE_INLINE unset",
            _PEER,
        ),
        explains=_FOLLOWS,
        links=_RDMA,
        positive=(
            "NCCL WARN NET/IB : Got completion from peer 10.1.3.201<33057> with status=9 opcode=0 "
            "len=0 vendor err 138 (Send)",
            "NCCL WARN NET/IB : Got completion with error 1, opcode 0, len 0, vendor err 105",
        ),
        negative=("NCCL WARN NET/IB : Got completion with error 12, opcode 0, vendor err 129",),
    ),
)
