"""A door on each node at which the others knock, to learn whether they can reach it and how well.

One thread answers TCP connections and UDP packets that bring the door's secret; whatever else
arrives is left unanswered. It is open from before the world joins to the end of its own checks.
"""

import hmac
import json
import secrets
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from wirespeed.errors import WorldError

__all__ = ["ANSWER", "QUESTION", "SECRET_BYTES", "Door", "Doorbell"]

SECRET_BYTES = 16
QUESTION = struct.Struct(f"!{SECRET_BYTES}sI")
"""How a packet begins: the secret, its number."""
ANSWER = struct.Struct(f"!{SECRET_BYTES}sIId")
"""The answer: the secret, the packet's number, bytes received, this node's clock in seconds."""
_LARGEST = 65535
_READ_S = 1.0
_PATIENCE_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What the others need to know to knock."""

    rank: int
    host: str
    address: str
    """IPv4 address that this node's libraries announce to the others."""
    port: int
    secret: str
    """Hexadecimal."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> "Door":
        return Door(**json.loads(text))

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)


class Doorbell:
    """Listens at one port number, for TCP and UDP, on all addresses until `close`."""

    def __init__(self, clock_shift_s: float = 0.0) -> None:
        """`clock_shift_s`: what this node's clock is said to be wrong by, for a fault on purpose.

        Raises WorldError when no port can be had.
        """
        self._shift = clock_shift_s
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._closing = False
        self._tcp, self._udp = _listen()
        self.port: int = self._tcp.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="doorbell", daemon=True)
        self._thread.start()

    def door(self, rank: int, host: str, address: str) -> Door:
        secret = self._secret.hex()
        return Door(rank=rank, host=host, address=address, port=self.port, secret=secret)

    def close(self) -> None:
        self._closing = True
        self._thread.join(2 * (_PATIENCE_S + _READ_S))
        self._tcp.close()
        self._udp.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # The thread.

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._tcp, selectors.EVENT_READ, self._greet)
            selector.register(self._udp, selectors.EVENT_READ, self._answer)
            while not self._closing:
                for key, _ in selector.select(_PATIENCE_S):
                    with suppress(OSError):  # whoever knocked went away
                        key.data()

    def _greet(self) -> None:
        connection, _ = self._tcp.accept()
        with connection:
            connection.settimeout(_READ_S)
            if hmac.compare_digest(connection.recv(SECRET_BYTES), self._secret):
                connection.sendall(self._secret[::-1])

    def _answer(self) -> None:
        packet, sender = self._udp.recvfrom(_LARGEST)
        if len(packet) < QUESTION.size:
            return
        secret, number = QUESTION.unpack_from(packet)
        if hmac.compare_digest(secret, self._secret):
            now = time.time() + self._shift
            self._udp.sendto(ANSWER.pack(secret, number, len(packet), now), sender)


def _listen() -> tuple[socket.socket, socket.socket]:
    """A TCP and a UDP socket of the same number, so that one rule of a firewall decides on both."""
    for _ in range(20):
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            tcp.bind(("0.0.0.0", 0))
            tcp.listen(64)
            udp.bind(("0.0.0.0", tcp.getsockname()[1]))
        except OSError:
            tcp.close()
            udp.close()
            continue
        tcp.setblocking(False)
        udp.setblocking(False)
        return tcp, udp
    raise WorldError("no port is free on this node", expected="ports in ip_local_port_range")
