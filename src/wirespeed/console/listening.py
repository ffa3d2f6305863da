"""On which address rank 0's console listens: the chosen interface's, where one was chosen."""

import os
import socket
from collections.abc import Mapping

from wirespeed.console.relayed import VARIABLE
from wirespeed.launchers.ready import INTERFACE
from wirespeed.world.identity import Identity

__all__ = ["ANY", "listening_address", "reached_at"]

ANY = "0.0.0.0"


def listening_address(identity: Identity, environ: Mapping[str, str] | None = None) -> str:
    """An IPv4 address of this node, or `0.0.0.0` where nobody said which; a token guards it there.

    Under an engine of ours GLOO_SOCKET_IFNAME was set by `--interface` or by the engine, which knows
    that it leads to the nodes; set by hand it may be the very mistake that the run shall find, and
    the console must stay reachable.
    """
    environ = os.environ if environ is None else environ
    if identity.master_addr in ("127.0.0.1", "localhost"):
        return "127.0.0.1"
    ours = environ.get("GLOO_SOCKET_IFNAME", "") if VARIABLE in environ else ""
    names = environ.get(INTERFACE) or ours
    return next((found for name in names.split(",") if (found := _address(name))), ANY)


def reached_at(listening: str) -> str:
    """Where this node itself reaches it."""
    return "127.0.0.1" if listening == ANY else listening


def _address(interface: str) -> str:
    """Its IPv4 address; empty for loopback, which no other node reaches, and for none such."""
    import psutil

    addresses = psutil.net_if_addrs().get(interface, [])
    own = [a.address for a in addresses if a.family == socket.AF_INET]
    return next((address for address in own if not address.startswith("127.")), "")
