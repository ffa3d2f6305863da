"""Events of RDMA ports while a job runs: addresses, keys and managers that change under it."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#networking-issues",
    "https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html",
)
_FOLLOWS = (
    "roce-gid-index",
    "ib-retry-exceeded",
    "ib-flush",
    "ib-completion",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)
_COSTS = "transfers on the connections made before it fail, and the job stops"


def _changed(number: int, name: str, event: str, positive: tuple[str, ...]) -> Rule:
    """An event that does no harm by itself; NCCL prints it also in healthy jobs."""
    return Rule(
        id=f"NIB-{number}",
        category="rdma-events",
        role="fact",
        anchors=(event.split("|")[0],) if "|" not in event else tuple(event.split("|")),
        pattern=rf"NET/IB\w* ?: (?:(?P<device>[\w.-]+):\d+ )?(?:got (?:non-fatal )?async event ?: "
        rf")?"
        rf"(?:{event})\b",
        sentence=f"{name} during the job",
        links=_LINKS,
        positive=positive,
        negative=("NET/IB : mlx5_0:1 Got async event : port error",),
    )


RULES: tuple[Rule, ...] = (
    _changed(
        201,
        "the GID table of an RDMA port changed",
        "GID table change|GID table changed",
        (
            "transport/net_ib.cc:73 NCCL WARN NET/IB : Got async event : GID table change",
            "transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table "
            "change",
            "transport/net_ib.cc:140 NCCL WARN NET/IB : rocep1s0f1:1 GID table changed",
            "NCCL INFO NET/IB : mlx5_0:1 Got non-fatal async event: GID table change(18)",
        ),
    ),
    _changed(
        202,
        "the P_Key table of an InfiniBand port changed",
        "P_Key table change|pkey change",
        (
            "transport/net_ib.cc:73 NCCL WARN NET/IB : Got async event : P_Key table change",
            "NCCL INFO NET/IB : mlx5_0:1 Got non-fatal async event: P_Key table change(12)",
        ),
    ),
    _changed(
        203,
        "an InfiniBand port got another LID or subnet manager",
        "LID change|SM change|client reregistration",
        (
            "transport/net_ib.cc:73 NCCL WARN NET/IB : Got async event : LID change",
            "NCCL INFO NET/IB : mlx5_0:1 Got non-fatal async event: SM change(13)",
            "transport/net_ib.cc:73 NCCL WARN NET/IB : Got async event : client reregistration",
        ),
    ),
    Rule(
        id="NIB-204",
        category="rdma-events",
        role="fact",
        anchors=("Got completion",),
        pattern=r"got completion (?:from peer \S+ )?with (?:error |status[= ])(?:IBV_WC_\w+\()?"
        r"(?P<status>1[0-3]|5)\b",
        sentence="an RDMA transfer ended with status {status}",
        links=_LINKS,
        positive=(
            "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
            "NCCL WARN NET/IB: Got completion from peer 10.153.235.13<40554> with "
            "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129",
        ),
        negative=(
            "NCCL WARN NET/IB : Got completion with error 4, opcode 0, len 0, vendor err 81",
        ),
    ),
    Rule(
        id="NIB-205",
        category="ib-gid-change",
        role="cause",
        stage="network",
        needs=("NIB-201", "NIB-204"),
        sentence="the GID table of an RDMA port changed during the job (async event: GID table "
        "change), "
        "and transfers then failed with status {status}: the NIC's IP address was removed or "
        "changed",
        because="a RoCE connection keeps the GID, and so the IP address, with which it was made; "
        "when "
        "the address goes or moves to another index, packets no longer arrive (error 12)",
        costs=_COSTS,
        fix="keep the NICs' addresses stable while jobs run: static addresses instead of DHCP, no "
        "NetworkManager or netplan restart, no pod network that reassigns them; check show_gids on "
        "both ends and NCCL_IB_GID_INDEX; then start again",
        next="show_gids; journalctl -u NetworkManager -u systemd-networkd --since -1h; ip -br addr",
        explains=_FOLLOWS,
        links=_LINKS,
    ),
    Rule(
        id="NIB-206",
        category="ib-pkey-change",
        role="cause",
        stage="network",
        needs=("NIB-202", "NIB-204"),
        sentence="the P_Key table of an InfiniBand port changed during the job (async event), and "
        "transfers then failed with status {status}: the port was moved to another partition",
        because="connections use the P_Key with which they were made; the subnet manager changed "
        "the "
        "port's partitions under the job",
        costs=_COSTS,
        fix="look at the subnet manager's partition table (partitions.conf, UFM) and who changed "
        "it; "
        "set NCCL_IB_PKEY to the index of the right one; then start again",
        next="cat /sys/class/infiniband/*/ports/1/pkeys/0; smpquery pkeys LID",
        explains=_FOLLOWS,
        links=_LINKS,
    ),
    Rule(
        id="NIB-207",
        category="ib-sm-change",
        role="cause",
        stage="network",
        needs=("NIB-203", "NIB-204"),
        absent=("NIB-011",),
        sentence="the subnet manager or a port's LID changed during the job (async event), and "
        "transfers then failed with status {status}",
        because="connections keep the LIDs with which they were made; a new subnet manager, or one "
        "that was started again without its old assignment, gives others",
        costs=_COSTS,
        fix="one subnet manager with a stand-by of lower priority that shares its LID file (opensm "
        "guid2lid, UFM high availability); look at its log; then start again",
        next="sminfo; ibstat; the log of opensm or UFM",
        explains=_FOLLOWS,
        links=_LINKS,
    ),
)
