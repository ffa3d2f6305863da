"""TCP of this network namespace: /proc/net/snmp and /proc/net/netstat (RFC 4022, SNMP counters).

They count every process of the namespace, not ours alone.
"""

from pathlib import Path

from wirespeed.world.counters.found import Found

__all__ = ["read_tcp"]

_KEPT = {
    "snmp": ("Tcp", ("InSegs", "OutSegs", "RetransSegs", "InErrs", "InCsumErrors")),
    "netstat": (
        "TcpExt",
        ("TCPTimeouts", "TCPLostRetransmit", "TCPFastRetrans", "TCPSynRetrans", "TCPDSACKRecv"),
    ),
}


def read_tcp(found: Found, root: Path) -> None:
    """Segments sent, received and sent again, and why; as device `TCP`."""
    for file, (protocol, names) in _KEPT.items():
        try:
            lines = (root / "proc/net" / file).read_text().splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            found.miss(f"TCP {file}", f"/proc/net/{file}: {error.strerror}")
            continue
        rows = [line.split()[1:] for line in lines if line.startswith(f"{protocol}:")]
        if len(rows) != 2:
            found.miss(f"TCP {file}", f"/proc/net/{file} has no two lines of {protocol}")
            continue
        table = dict(zip(*rows, strict=False))
        found.keep("TCP", {name: int(table[name]) for name in names if _number(table.get(name))})


def _number(text: str | None) -> bool:
    return text is not None and text.isdecimal()
