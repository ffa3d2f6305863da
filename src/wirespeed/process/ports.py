"""TCP ports that are free on this machine at this moment."""

import socket
from contextlib import suppress


def free_port(address: str = "") -> int:
    """One that nobody uses at that address (empty: at any)."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port


def is_free(port: int) -> bool:
    """Whether a socket of this machine can have it."""
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("", port))
        return True
    return False
