"""Which counters tell of a fault, from how much on, and what it means.

Sources of meanings: the kernel's Documentation/ABI/stable/sysfs-class-infiniband, InfiniBand
Architecture Specification 1 (PortCounters), NVIDIA's lists of mlx5 counters, the kernel's drivers of
bnxt_re and EFA, the NVML API reference, RFC 4022.

Of the bounds: a link of InfiniBand or RoCE that works shows none of these in the seconds of a check;
go-back-N transports lose half of their rate at a loss of 1 in 1,000 and measurably at 1 in 100,000
(DCQCN, SIGCOMM 2015; IRN, SIGCOMM 2018), so that 1 in 1,000,000 packets warns and 1 in 10,000 fails.
What ordinary congestion counts (port_xmit_wait, CNPs, ECN marks, flushed completions) is no fault and
is not here.
"""

import re
from dataclasses import dataclass, field

__all__ = ["FAMILIES", "RULES", "Bound", "Family", "Rule"]


@dataclass(frozen=True, slots=True)
class Bound:
    """So many, and of the traffic or of the time such a part."""

    count: int
    rate: float = 0.0
    """Per `Rule.per`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Some counters of one kind of device, and when their growth is a fault."""

    id: str
    kind: str
    """First word of the device: `RDMA`, `interface`, `NVLink`, `GPU` or `TCP`."""
    names: re.Pattern[str]
    per: str = "second"
    """What the rate is told by: `packet` of the device, `second`, or `time`: microseconds paused."""
    less: str = ""
    """A counter of those among them that were no fault."""
    warn: Bound | None = None
    fail: Bound | None = None
    busy: int = 0
    """Fewer packets of the device during the traffic, and a failure is a warning: it was not in use."""


def _rule(id: str, kind: str, names: str, **more: object) -> Rule:
    return Rule(id=id, kind=kind, names=re.compile(names), **more)  # type: ignore[arg-type]


_ANY = Bound(1)
_LOSS_WARN, _LOSS_FAIL = Bound(10, 1e-6), Bound(100, 1e-4)
_BITS_FAIL = Bound(10, 1.0)

RULES = (
    _rule("COUNT-001", "RDMA", "link_downed|link_error_recovery", fail=_ANY),
    _rule("COUNT-001", "interface", "carrier_down_count|link_down_events_phy", fail=_ANY, busy=100),
    _rule(
        "COUNT-002",
        "RDMA",
        "symbol_error|port_rcv_errors|port_rcv_remote_physical_errors|local_link_integrity_errors"
        "|excessive_buffer_overrun_errors|rx_icrc_encapsulated|rx_roce_errors",
        warn=_ANY,
        fail=_BITS_FAIL,
    ),
    _rule(
        "COUNT-002",
        "interface",
        "rx_(crc|frame|length)_errors|tx_carrier_errors"
        "|rx_(crc_errors|symbol_err|pcs_symbol_err|in_range_len_errors)_phy",
        warn=_ANY,
        fail=_BITS_FAIL,
    ),
    # Adaptive routing delivers out of order by design: that alone never fails.
    _rule(
        "COUNT-003",
        "RDMA",
        "out_of_sequence|rnr_nak_retry_err|rnr_naks_rcvd",
        per="packet",
        warn=_LOSS_WARN,
    ),
    _rule(
        "COUNT-003",
        "RDMA",
        "packet_seq_err|implied_nak_seq_err|duplicate_request|roce_adp_retrans|roce_slow_restart"
        "|seq_err_naks_rcvd|dup_req|oos_drop_count",
        per="packet",
        warn=_LOSS_WARN,
        fail=_LOSS_FAIL,
    ),
    _rule(
        "COUNT-003",
        "RDMA",
        "local_ack_timeout_err|roce_adp_retrans_to|to_retransmits",
        warn=_ANY,
        fail=Bound(10, 1.0),
    ),
    _rule(
        "COUNT-003", "RDMA", "req_(transport|rnr)_retries_exceeded|max_retry_exceeded", fail=_ANY
    ),
    # EFA sprays packets over many paths: some repeats are its way, a peer that is lost is not.
    _rule("COUNT-003", "RDMA", "retrans_pkts", per="packet", warn=Bound(100, 1e-3)),
    _rule("COUNT-003", "RDMA", "(unresponsive_remote|impaired_remote_conn)_events", warn=_ANY),
    _rule("COUNT-003", "RDMA", "retrans_timeout_events", warn=_BITS_FAIL),
    _rule(
        "COUNT-004",
        "RDMA",
        "port_xmit_discards|out_of_buffer|(rx|tx)_roce_discards|rx_drops",
        per="packet",
        warn=_LOSS_WARN,
        fail=_LOSS_FAIL,
    ),
    _rule(
        "COUNT-004",
        "interface",
        r"(rx|tx)_discards_phy|rx_prio\d_(buf_discard|cong_discard|discards)|rx_out_of_buffer"
        "|rx_(missed|fifo|over)_errors|tx_(fifo|aborted)_errors",
        per="packet",
        warn=_LOSS_WARN,
        fail=_LOSS_FAIL,
    ),
    # Also counts packets that nobody here wanted, such as LLDP.
    _rule("COUNT-004", "interface", "(rx|tx)_dropped", per="packet", warn=Bound(100, 1e-3)),
    _rule(
        "COUNT-005",
        "interface",
        r"(rx|tx)_(prio\d|global)_pause_duration",
        per="time",
        warn=Bound(1, 0.1),
        fail=Bound(1, 0.5),
    ),
    _rule("COUNT-005", "interface", r"(rx|tx)_(prio\d|global)_pause", warn=Bound(1000, 1000.0)),
    _rule("COUNT-005", "interface", "tx_pause_storm_warning_events", warn=_ANY),
    _rule("COUNT-005", "interface", "tx_pause_storm_error_events", fail=_ANY),
    _rule("COUNT-006", "NVLink", ".*", fail=_ANY),
    _rule("COUNT-007", "GPU", "ECC uncorrectable", fail=_ANY),
    # Of the whole host, also of processes that are none of ours. A busy loopback interface sends
    # hundreds again out of impatience, and the other side says so (DSACK, RFC 2883): not lost.
    _rule(
        "COUNT-008",
        "TCP",
        "RetransSegs",
        per="packet",
        less="TCPDSACKRecv",
        warn=Bound(20, 1e-3),
        fail=Bound(100, 1e-2),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is said where counters of one id grew."""

    about: str
    expected: str
    because: str
    costs: str
    fix: str
    rules: tuple[Rule, ...] = field(default=())


def _family(id: str, **texts: str) -> Family:
    return Family(rules=tuple(rule for rule in RULES if rule.id == id), **texts)


FAMILIES = {
    "COUNT-001": _family(
        "COUNT-001",
        about="links stayed up",
        expected="a link that stays up from the first message to the last",
        because="the link went down or was trained anew: a cable, a transceiver, a port, or a switch",
        costs="every collective waits for the link; beyond the transport's time-out the job ends",
        fix="reseat or change cable and transceiver of this port; `dmesg`, `mlxlink -d DEVICE`, and "
        "the switch's log tell which side went down",
    ),
    "COUNT-002": _family(
        "COUNT-002",
        about="links without bit errors",
        expected="none: error correction leaves no wrong bit in such a time",
        because="bits arrive wrong: a dirty or damaged cable, a transceiver, a port",
        costs="damaged packets are sent again, and the rate drops in bursts",
        fix="clean or change cable and transceiver; `mlxlink -d DEVICE -c` shows the raw bit "
        "error rate. "
        "port_rcv_remote_physical_errors alone: the wrong bits arose at another link of the path",
    ),
    "COUNT-003": _family(
        "COUNT-003",
        about="RDMA without repeats",
        expected="less than 1 in 1,000,000 packets; no time-out at all",
        because="packets are lost or come too late on the way: a lossy switch queue (PFC or ECN not set "
        "up alike on every hop), a bad link on the path, or a receiver that is not ready",
        costs="the sender goes back and repeats; a time-out alone stops a transfer for seconds",
        fix="the same PFC and ECN settings on every NIC and switch port of the path, NCCL_IB_TC as the "
        "fabric wants it; then look for a bad link with `wirespeed locate`",
    ),
    "COUNT-004": _family(
        "COUNT-004",
        about="no packets dropped",
        expected="less than 1 in 1,000,000 packets",
        because="a queue was full: of this NIC (receive ring, host too slow) or of its switch port",
        costs="each lost packet is sent again, and TCP and RoCE slow down at once",
        fix="PFC on the traffic class of RDMA; larger rings (`ethtool -G`), interrupts and ranks on the "
        "NIC's NUMA node; fewer streams onto one port",
    ),
    "COUNT-005": _family(
        "COUNT-005",
        about="no storm of pause frames",
        expected="a link that is paused for less than a tenth of the time",
        because="rx_…: the switch stops this node, somebody behind it is too slow; tx_…: this "
        "node stops "
        "the switch, because it does not take in what arrives",
        costs="a paused port holds back every flow through it, also those of other nodes",
        fix="tx_…: look at PCIe, NUMA and memory of this node; rx_…: find the node that sends pause "
        "frames. A PFC watchdog on the switches bounds a storm",
    ),
    "COUNT-006": _family(
        "COUNT-006",
        about="NVLinks without errors",
        expected="no error on any link of a GPU",
        because="a bad contact or board: GPU, NVSwitch, or cable of the rack",
        costs="replays slow every transfer over this link; a link that fails ends the job (Xid 74)",
        fix="drain the node, reset GPUs and NVSwitches; if it comes back, have the GPU or board "
        "replaced",
    ),
    "COUNT-007": _family(
        "COUNT-007",
        about="GPU memory without uncorrectable errors",
        expected="none",
        because="memory of this GPU is failing",
        costs="wrong data or a job that ends (Xid 48, 63, 64, 94, 95)",
        fix="drain the node and reset the GPU, so that the row is remapped; replace it if it comes back",
    ),
    "COUNT-008": _family(
        "COUNT-008",
        about="TCP without repeats",
        expected="less than 1 in 1,000 segments of this host's TCP, without those that the other "
        "side had already",
        because="segments are lost or late on the way: a bad link, a full queue, a shaped or "
        "lossy path; "
        "other processes of this host count, too",
        costs="TCP halves its rate at each loss: sockets of NCCL and gloo crawl",
        fix="`nstat -az | grep -i retrans` and `ss -ti` on this node show who repeats; then "
        "`wirespeed locate` names the path",
    ),
}

EXPLANATIONS: dict[str, str] = {
    "COUNT-001": "Links stay up during the traffic. The counters of RDMA ports and network "
    "interfaces are "
    "read before and after it; a link that went down or was trained anew in between fails. Look at "
    "cable, transceiver and port of the named device.",
    "COUNT-002": "Links deliver their bits right during the traffic. Symbol, CRC and receive errors of "
    "ports and interfaces: any growth warns, ten and more than one a second fail. Clean or change the "
    "cable; the named port is where the wrong bits arrived.",
    "COUNT-003": "RDMA repeats nothing during the traffic. Packets out of sequence, repeated "
    "requests and "
    "time-outs, told by the adapter: from 1 in 1,000,000 packets a warning, from 1 in 10,000 a "
    "failure; a "
    "time-out always warns. Out of sequence alone, as adaptive routing makes it, never fails.",
    "COUNT-004": "No packets are dropped during the traffic. Discards of ports and interfaces, "
    "from 1 in "
    "1,000,000 packets a warning, from 1 in 10,000 a failure. Look at flow control and at receive "
    "rings.",
    "COUNT-005": "No link is held back by pause frames. A tenth of the time paused warns, half of "
    "it fails, "
    "as does a storm that the adapter has seen itself. Some pausing is how RoCE shares a full port, "
    "and no finding; whoever sends pause frames all the time is too slow to take in what arrives.",
    "COUNT-006": "NVLinks count no errors during the traffic. Replays, recoveries and CRC errors "
    "of a link, as "
    "NVML tells them: any growth fails, because the others wait for the slowest link.",
    "COUNT-007": "GPU memory has no new uncorrectable error. One that arises during the traffic fails: "
    "results of this GPU cannot be trusted.",
    "COUNT-008": "TCP repeats hardly anything during the traffic. Segments that this host sent "
    "again, as a "
    "part of all that it sent: from 1 in 1,000 a warning, from 1 in 100 a failure. What the other side "
    "had already (DSACK) is left out. Every process of the host counts.",
}
"""What `--explain ID` says; the first sentence is the title of the check."""
