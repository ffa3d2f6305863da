"""A door on each node at which the others knock, to learn whether they can reach it and how well.

It answers TCP connections and UDP packets that know the door's secret, which itself is never sent;
others hold up nobody. It is open from before the world joins to the end of its own checks.
"""

import errno
import hmac
import ipaddress
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from wirespeed.errors import WorldError
from wirespeed.world.network.callers import serve_callers
from wirespeed.world.network.knocking import PROOF_BYTES, admits, proof

__all__ = ["ANSWER", "QUESTION", "Door", "Doorbell", "sealed"]

_SECRET_BYTES = 16
QUESTION = struct.Struct(f"!{PROOF_BYTES}sI")
"""How a packet begins: the proof that its sender knows the secret, its number."""
ANSWER = struct.Struct(f"!{PROOF_BYTES}sIId")
"""The answer: the proof, the packet's number, bytes received, this node's clock in seconds."""
_LARGEST = 65535
_READ_S = 1.0
_PATIENCE_S = 0.25
_BACKLOG = 256
_AT_ONCE, _OF_ONE_PEER = 32, 8
"""Connections that are answered at a time: each lasts a round trip, and a node knocks once at a time."""
_HOST_LETTERS = 255
_ANY = "0.0.0.0"


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
        """Raises ValueError for anything but a door: whoever reaches the store can write there."""
        try:
            data = json.loads(text)
        except RecursionError as error:
            raise ValueError("no JSON") from error
        if not isinstance(data, dict) or data.keys() != _IS_GOOD.keys():
            raise ValueError("no door")
        for name, value in data.items():
            if not _IS_GOOD[name](value):
                raise ValueError(f"{name} is {value!r:.80}")
        return Door(**data)

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_address(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(ipaddress.IPv4Address(value))
    except ValueError:
        return False


def _is_secret(value: Any) -> bool:
    letters = set(value) if isinstance(value, str) else {""}
    return letters <= set("0123456789abcdef") and len(value) == 2 * _SECRET_BYTES


_IS_GOOD: dict[str, Callable[[Any], bool]] = {
    "rank": lambda value: _is_number(value, 2**31),
    "host": lambda value: (
        isinstance(value, str) and len(value) <= _HOST_LETTERS and value.isprintable()
    ),
    "address": _is_address,
    "port": lambda value: bool(value) and _is_number(value, 65535),
    "secret": _is_secret,
}


def sealed(layout: struct.Struct, key: bytes, purpose: bytes, *fields: Any) -> bytes:
    """A packet of that layout: the proof of purpose and fields, then the fields."""
    text = layout.pack(bytes(PROOF_BYTES), *fields)
    return layout.pack(proof(key, purpose + text), *fields)


class Doorbell:
    """Listens at one port number, for TCP and UDP, until `close`."""

    def __init__(self, clock_shift_s: float = 0.0, address: str = _ANY) -> None:
        """`clock_shift_s`: what this node's clock is said to be wrong by, for a fault on purpose.

        `address`: the one that is told to the others; where it is none of this node's, all are
        listened on. Raises WorldError when no port can be had.
        """
        self._shift = clock_shift_s
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._closing = False
        self._tcp, self._udp = _listen(address)
        self.port: int = self._tcp.getsockname()[1]
        self._threads = [
            threading.Thread(target=serve, name="doorbell", daemon=True)
            for serve in (self._serve_tcp, self._serve_udp)
        ]
        for thread in self._threads:
            thread.start()

    def door(self, rank: int, host: str, address: str) -> Door:
        secret = self._secret.hex()
        return Door(rank=rank, host=host, address=address, port=self.port, secret=secret)

    def close(self) -> None:
        self._closing = True
        for thread in self._threads:
            thread.join(2 * (_PATIENCE_S + _READ_S))
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

    # The threads.

    def _serve_tcp(self) -> None:
        serve_callers(
            self._tcp,
            lambda line: admits(line, self._secret),
            seconds=_READ_S,
            at_once=_AT_ONCE,
            of_one_peer=_OF_ONE_PEER,
            closing=lambda: self._closing,
        )

    def _serve_udp(self) -> None:
        self._udp.settimeout(_PATIENCE_S)
        while not self._closing:
            with suppress(OSError):  # nobody asked, or who did is gone
                self._answer(*self._udp.recvfrom(_LARGEST))

    def _answer(self, packet: bytes, sender: tuple[str, int]) -> None:
        if len(packet) < QUESTION.size:
            return
        number, size = QUESTION.unpack_from(packet)[1], len(packet)
        asked = sealed(QUESTION, self._secret, b"%d bytes" % size, number)
        if hmac.compare_digest(packet[: QUESTION.size], asked):
            fields = (number, size, time.time() + self._shift)
            self._udp.sendto(sealed(ANSWER, self._secret, b"answer", *fields), sender)


def _listen(address: str) -> tuple[socket.socket, socket.socket]:
    """A TCP and a UDP socket of the same number, so that one rule of a firewall decides on both."""
    for _ in range(20):
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            tcp.bind((address, 0))
            tcp.listen(_BACKLOG)
            udp.bind((address, tcp.getsockname()[1]))
        except OSError as error:
            tcp.close()
            udp.close()
            if error.errno != errno.EADDRINUSE:
                address = _ANY  # what this node announces is not its own, or no address at all
            continue
        return tcp, udp
    raise WorldError("no port is free on this node", expected="ports in ip_local_port_range")
