"""EFA: the first messages to another instance that never arrive."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_START = ("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",)
_FIX = (
    "add inbound and outbound rules for all traffic whose source and destination are the security "
    "group "
    "itself, to the group of all instances; the instances must be in one subnet (same placement "
    "group)"
)
_FOLLOWS = (
    "efa-error",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="OFI-030",
        category="efa-security-group",
        role="cause",
        stage="network",
        anchors=("completed with error",),
        pattern=r"NET/OFI request 0x\w+ completed with error.{0,160}size: 0, state: CREATED, "
        r"direction: "
        r"SEND",
        unless=r"cannot allocate|invalid argument",
        sentence="the first message over EFA (libfabric) to another instance, of no bytes, already "
        "failed: the network does not let it through, mostly the security group",
        because="the plugin (OFI) sends a message of no bytes to connect; EFA's packets are no "
        "TCP or UDP, "
        "and only a rule for all traffic within the security group lets them pass; old versions "
        "print "
        "a meaningless errno ('unknown error', 'Not a directory')",
        costs="NCCL cannot connect the instances",
        fix=_FIX,
        next="fi_pingpong -p efa between the two; aws ec2 describe-security-groups",
        explains=_FOLLOWS,
        links=_START,
        positive=(
            "ofi_process_cq:1039 NCCL WARN NET/OFI Request 0x7fbb completed with error. RC: 20. "
            "Error: "
            "unknown error. Completed length: 0, Request: { buffer_index: 255, dev: 1, size: 0, "
            "state: "
            "CREATED, direction: SEND }",
        ),
        negative=(
            "NCCL WARN NET/OFI Request 0x7f completed with error. RC: 5. Error: Input/output "
            "error. "
            "Request: { dev: 1, size: 524288, state: PENDING, direction: RECV }",
        ),
    ),
    Rule(
        id="OFI-031",
        category="efa-security-group",
        role="symptom",
        stage="network",
        anchors=(
            "rxr_cq_write_tx_error",
            "efa_rdm_txe_handle_error",
            "efa_rdm_ope",
            "efa:ep_data",
            "efa:cq:",
        ),
        pattern=r"libfabric:\d+:.{0,60}efa:.{0,120}(?:tx_error|txe_handle_error|write_tx_error|"
        r"handle_error)\S*.{0,20}err: ?(?P<code>\d+)",
        sentence="libfabric's EFA provider could not send to another instance (err {code})",
        checks=(
            f"whether the security group lets EFA through: {_FIX}",
            "whether the other process or instance ended first: its log",
            "whether libfabric, plugin and driver are of one EFA installer on all nodes",
        ),
        explains=("efa-error", "launcher-exit"),
        links=_START,
        positive=(
            "libfabric:35:1668017255::efa:cq:rxr_cq_write_tx_error():243<warn> "
            "rxr_cq_write_tx_error: "
            "err: 20, prov_err: Not a directory (20)",
        ),
        negative=("libfabric:35:1668017255::efa:core:efa_mr_cache_init():80<info> size: 20",),
    ),
)
