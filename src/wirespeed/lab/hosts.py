"""/etc/hosts of each node: what the names of the nodes mean there.

Debian's installer gives a machine's own name the address 127.0.1.1 (Debian Reference, chapter 5,
"The hostname resolution"); a program that tells others the address of its own name then tells
them one at which they find themselves.
"""

from collections.abc import Iterable

from wirespeed.lab.layout import Layout
from wirespeed.lab.spec import Fault, LoopbackName

__all__ = ["write_hosts"]

_DEBIAN = "127.0.1.1"


def write_hosts(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """In place, so that commands which run there already see it as well."""
    layout.hosts(node).write_text(_text(layout, node, faults), "utf-8")


def _text(layout: Layout, node: str, faults: Iterable[Fault]) -> str:
    """As Debian has it, a name that means loopback has no other address there."""
    loopback = any(isinstance(fault, LoopbackName) and fault.node == node for fault in faults)
    others = [other for other in layout.nodes if other != node or not loopback]
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{_DEBIAN} {node}"] if loopback else []
    lines += [f"{layout.address(other)} {other}" for other in others]
    # What a socket that speaks both IPv4 and IPv6 asks for when it wants the name of its partner.
    lines += [f"::ffff:{layout.address(other)} {other}" for other in others]
    return "\n".join(lines) + "\n"
