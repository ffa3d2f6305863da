"""A node with a ConnectX-7 port, an Ethernet interface and TCP, as files of a test's own."""

from pathlib import Path

import pytest

COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
)
HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_flush_error",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "rx_icrc_encapsulated",
)
ADDRESS = "0c:42:a1:00:00:01"


class Tree:
    """`/sys` and `/proc` below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for device in ("mlx5_0", "mlx5_1"):
            for name in COUNTERS:
                self.put(f"sys/class/infiniband/{device}/ports/1/counters/{name}", 0)
            for name in HW_COUNTERS:
                self.put(f"sys/class/infiniband/{device}/ports/1/hw_counters/{name}", 0)
        eth = "sys/class/net/eth0"
        self.put(f"{eth}/address", ADDRESS)
        self.put(f"{eth}/carrier_down_count", 1)
        (root / eth / "device").mkdir()
        for name in ("rx_packets", "tx_packets", "rx_crc_errors", "rx_missed_errors", "rx_dropped"):
            self.put(f"{eth}/statistics/{name}", 0)
        self.tcp(1000, 1000, 0)

    def put(self, path: str, value: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def rdma(self, name: str, value: object, device: str = "mlx5_0") -> None:
        part = "counters" if name in COUNTERS else "hw_counters"
        self.put(f"sys/class/infiniband/{device}/ports/1/{part}/{name}", value)

    def eth(self, name: str, value: int) -> None:
        self.put(f"sys/class/net/eth0/statistics/{name}", value)

    def tcp(self, received: int, sent: int, again: int, in_vain: int = 0) -> None:
        self.put(
            "proc/net/snmp",
            f"Tcp: InSegs OutSegs RetransSegs\nTcp: {received} {sent} {again}",
        )
        self.put("proc/net/netstat", f"TcpExt: TCPTimeouts TCPDSACKRecv\nTcpExt: 0 {in_vain}")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
