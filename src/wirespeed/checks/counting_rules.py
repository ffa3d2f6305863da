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
from dataclasses import dataclass
from itertools import groupby

__all__ = ["FAMILIES", "RULES", "Bound", "Rule"]


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


FAMILIES = {id: tuple(rules) for id, rules in groupby(RULES, lambda rule: rule.id)}
"""Rules by the id of their finding."""
