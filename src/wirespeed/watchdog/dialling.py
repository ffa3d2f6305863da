"""A rank's connection to the session before anything is said on it, and the first lines."""

import socket
import time

from wirespeed.watchdog.protocol import HELLO_LIMIT, ProtocolError

__all__ = ["bound_unacknowledged", "read_line", "small_segments"]

_SEGMENT_BYTES = 500
"""With headers below 576 bytes, which every IPv4 path takes (RFC 791)."""


def read_line(connection: socket.socket, deadline: float) -> bytes:
    """The next line of the session, read byte by byte so that none of what follows is taken."""
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        byte = connection.recv(1)
        if not byte:
            raise ConnectionError(
                "it closed the connection, so it belongs to another run or is another program"
            )
        line += byte
        if len(line) > HELLO_LIMIT:
            raise ProtocolError("an answer without end")
    return bytes(line[:-1])


def small_segments(host: str, port: int, timeout: float) -> socket.socket:
    """A connection that sends and asks for small packets only, to say what becomes of large ones.

    Where a switch drops large packets, all other connections stall, and this one shall tell it.
    """
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
            connection.settimeout(timeout)
            connection.connect(address)
        except OSError as problem:
            connection.close()
            error = problem
            continue
        return connection
    raise error


def bound_unacknowledged(connection: socket.socket, seconds: float) -> None:
    """A session whose machine vanished never closes; give up on it like on one that did."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = int(seconds * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
