"""A node that lets in no new connection, except to some ports, with nft in its namespace.

Packets are dropped without a word, as most firewalls do it. A new connection of TCP begins with a
SYN without ACK (RFC 9293, 3.5); what is established goes on, also when it is older than the
firewall. UDP has no beginning, so that there the kernel's connection tracking tells what answers
to the node's own packets (nft(8), "conntrack expressions").
"""

from collections.abc import Iterable, Sequence

from wirespeed.lab.layout import Layout
from wirespeed.lab.spec import Fault, Firewall
from wirespeed.lab.tools import attempt, tool

__all__ = ["close_ports", "open_port"]

_TABLE = "wslab_firewall"
_SET = "open_ports"


def close_ports(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Bring the node into the state that follows from its faults, also back to open."""
    own = [fault for fault in faults if isinstance(fault, Firewall) and fault.node == node]
    if own:
        tool(*_nft(layout, node), "-f", "-", give=_rules(own[-1].ports))
    else:
        attempt(*_nft(layout, node), "delete", "table", "inet", _TABLE)


def open_port(layout: Layout, faults: Iterable[Fault], port: int) -> None:
    """The master port of a run, on every node whose firewall names no ports of its own.

    It stays open until the firewall goes: another run may use it still.
    """
    for fault in faults:
        if isinstance(fault, Firewall) and not fault.ports:
            words = ("add", "element", "inet", _TABLE, _SET, f"{{ {port} }}")
            tool(*_nft(layout, fault.node), *words)


def _rules(ports: Sequence[int]) -> str:
    listed = ", ".join(str(port) for port in ports)
    elements = f"elements = {{ {listed} }};" if ports else ""
    rules = (
        "type filter hook input priority 0; policy accept;",
        'iif "lo" accept;',
        f"tcp dport @{_SET} accept;",
        f"udp dport @{_SET} accept;",
        "tcp flags & (syn | ack) == syn drop;",
        "meta l4proto udp ct state established,related accept;",
        "meta l4proto udp drop;",
    )
    body = f"set {_SET} {{ type inet_service; {elements} }}; chain input {{ {' '.join(rules)} }};"
    # One transaction that takes the place of a table from before.
    return f"table inet {_TABLE}\ndelete table inet {_TABLE}\ntable inet {_TABLE} {{ {body} }}\n"


def _nft(layout: Layout, node: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", layout.space(node), "nft")
