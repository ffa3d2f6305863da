"""Reachability: an echo server on each node, and whether the others reach it at its addresses."""

import errno
import hmac
import ipaddress
import itertools
import os
import secrets
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from msgspec import Meta, MsgspecError, convert, json

from wirespeed.errors import WorldError
from wirespeed.node.callers import serve_callers, take

PROOF_BYTES = 16
_CALLER, _CALLED = b"caller", b"called"
_TRIES, _PAUSE_S = 10, 0.1


def call(address: str, port: int, key: bytes, seconds: float) -> socket.socket:
    """A connection to an end that knows the key. OSError within `seconds` when nobody answers.

    Who hangs up is called again a few times: in a crowd it may have taken us for a stranger.
    """
    for _ in range(_TRIES):
        with ExitStack() as unless_known:
            line = unless_known.enter_context(socket.create_connection((address, port), seconds))
            try:
                known = _introduced(line, key)
            except ConnectionError:
                time.sleep(_PAUSE_S)
                continue
            if not known:
                break
            unless_known.pop_all()
            return line
    raise ConnectionError("another program answered")


def _introduced(line: socket.socket, key: bytes) -> bool:
    """The caller's part: whether the other end knows the key. OSError when it hangs up or is silent."""
    mine = os.urandom(PROOF_BYTES)
    line.sendall(mine)
    answer = take(line, 2 * PROOF_BYTES)
    nonces = mine + answer[:PROOF_BYTES]
    if not hmac.compare_digest(answer[PROOF_BYTES:], proof(key, _CALLED + nonces)):
        return False
    line.sendall(proof(key, _CALLER + nonces))
    return True


def admits(line: socket.socket, key: bytes) -> bool:
    """The called end's part: whether the caller knows the key. OSError likewise."""
    theirs, mine = take(line, PROOF_BYTES), os.urandom(PROOF_BYTES)
    line.sendall(mine + proof(key, _CALLED + theirs + mine))
    return hmac.compare_digest(take(line, PROOF_BYTES), proof(key, _CALLER + theirs + mine))


def proof(key: bytes, text: bytes) -> bytes:
    """16 bytes that only who knows the key can make of that text."""
    return hmac.digest(key, text, "sha256")[:PROOF_BYTES]


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
_ANY = "0.0.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What the others need to know to knock."""

    rank: Annotated[int, Meta(ge=0, le=2**31)]
    host: Annotated[str, Meta(max_length=255)]
    address: str
    """IPv4 address that this node's libraries announce to the others."""
    port: Annotated[int, Meta(ge=1, le=65535)]
    secret: Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{2 * _SECRET_BYTES}}}\Z")]
    """Hexadecimal."""

    def __post_init__(self) -> None:
        ipaddress.IPv4Address(self.address)
        if not self.host.isprintable():
            raise ValueError(f"host is {self.host!r:.80}")

    def to_json(self) -> str:
        return json.encode(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> "Door":
        """Raises ValueError for anything but a door: whoever reaches the store can write there."""
        try:
            data = json.decode(text)
            door = convert(data, Door)
        except (MsgspecError, RecursionError) as error:
            raise ValueError(f"no door: {error}") from error
        if data.keys() != asdict(door).keys():
            raise ValueError("no door")
        return door

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)


def sealed(layout: struct.Struct, key: bytes, purpose: bytes, *fields: Any) -> bytes:
    """A packet of that layout: the proof of purpose and fields, then the fields."""
    text = layout.pack(bytes(PROOF_BYTES), *fields)
    return layout.pack(proof(key, purpose + text), *fields)


class Caller:
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
            threading.Thread(target=serve, name="echo", daemon=True)
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

    def __exit__(self, *_: object) -> None:
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


_KNOCKS = 2
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE, _IP_MTU = 10, 3, 14
"""linux/in.h: send with Don't Fragment set whatever the kernel believes of the path (PROBE); the
MTU of the interface behind a connected socket (IP_MTU)."""
_HEADERS = 28
"""Bytes of an IPv4 and a UDP header."""
_SMALLEST_MTU = 576
"""Every IPv4 host takes packets of this size (RFC 791)."""
_JUMBO_MTU = 9216
_PROBES_TRIES = 3
_CLOCKS = 8
_WAIT_S, _LEAST_WAIT_S, _PROBES_PAUSE_S = 0.25, 0.1, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What a few packets showed; None where it could not be told."""

    mtu: int | None = None
    """Bytes of the largest packet that the interface sends."""
    passes: int | None = None
    """Bytes of the largest packet that arrived; `mtu` on a good path."""
    clock_offset_s: float | None = None
    """The peer's clock minus ours."""
    clock_error_s: float | None = None
    """Half of the round trip: the offset is true within it."""
    why: str = ""
    """Why something is not known."""


def knock(door: Door, timeout_s: float) -> str:
    """Connect by TCP and see that it knows the secret: "", else what happened (the last of two tries).

    Takes about `2 * timeout_s`. A connection that is refused was answered: it is not tried again.
    """
    problem = ""
    for _ in range(_KNOCKS):
        try:
            call(door.address, door.port, door.key, timeout_s).close()
            return ""
        except TimeoutError:
            problem = f"no answer within {timeout_s:g} s"
        except ConnectionRefusedError:
            return "connection refused"
        except OSError as error:
            problem = error.strerror or str(error)
            if error.errno is None:  # somebody is there
                break
    return problem


def probe_path(door: Door, bound_s: float, clock_shift_s: float = 0.0) -> Path:
    """Packet size and clock, by UDP. A first small packet tells whether UDP passes at all.

    clock_shift_s: what our own clock is said to be wrong by, for a fault on purpose.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            udp.connect((door.address, door.port))
            # The loopback's 64 KiB are no packet of a network.
            mtu = min(udp.getsockopt(socket.IPPROTO_IP, _IP_MTU), _JUMBO_MTU)
        except OSError as error:
            return Path(why=error.strerror or str(error))
        asker = _Asker(udp, door, time.monotonic() + bound_s)
        times = [one for _ in range(_CLOCKS) if (one := asker.ask(QUESTION.size, _WAIT_S))]
        if not times:
            return Path(mtu=mtu, why="no answer by UDP")
        offset, error_s = _clock(times)
        passes = asker.largest(mtu, max(_LEAST_WAIT_S, 10 * error_s))
    ahead = offset - clock_shift_s
    return Path(mtu=mtu, passes=passes, clock_offset_s=ahead, clock_error_s=error_s)


class _Asker:
    """Sends packets to one door and waits for the answers, until a deadline."""

    def __init__(self, udp: socket.socket, door: Door, deadline: float) -> None:
        self._udp = udp
        self._key = door.key
        self._deadline = deadline
        # Not from 0: an answer that was overheard earlier must not fit.
        self._numbers = itertools.count(secrets.randbits(31))

    def ask(self, payload: int, wait: float) -> tuple[float, float, float] | None:
        """(sent, their clock, received) of a packet of so many bytes; None without the answer."""
        until = min(time.monotonic() + wait, self._deadline)
        number = next(self._numbers)
        sent = time.time()
        try:
            asked = sealed(QUESTION, self._key, b"%d bytes" % payload, number)
            self._udp.send(asked + bytes(payload - QUESTION.size))
            while (left := until - time.monotonic()) > 0:
                self._udp.settimeout(left)
                packet = self._udp.recv(ANSWER.size)
                received = time.time()
                # Others are late answers to packets that were given up.
                if len(packet) == ANSWER.size:
                    clock = ANSWER.unpack(packet)[-1]
                    expected = sealed(ANSWER, self._key, b"answer", number, payload, clock)
                    if hmac.compare_digest(packet, expected):
                        return sent, clock, received
        except OSError:  # refused, too long for the interface, or time is over
            time.sleep(max(0.0, min(_PROBES_PAUSE_S, until - time.monotonic())))
        return None

    def passes(self, size: int, wait: float) -> bool:
        """Whether an IP packet of so many bytes arrives, in one of a few tries."""
        return any(self.ask(size - _HEADERS, wait) for _ in range(_PROBES_TRIES))

    def largest(self, mtu: int, wait: float) -> int | None:
        """Bytes of the largest packet that arrives, by bisection; None when time was too short."""
        if self.passes(mtu, wait):
            return mtu
        low, high = _SMALLEST_MTU, mtu
        if not self.passes(low, wait):
            return None
        while high - low > 1:
            if time.monotonic() > self._deadline:
                return None
            middle = (low + high) // 2
            if self.passes(middle, wait):
                low = middle
            else:
                high = middle
        return low


def _clock(times: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
    """Offset and its bound, from the quickest exchange (as NTP does, RFC 5905)."""
    sent, clock, received = min(times, key=lambda one: one[2] - one[0])
    return clock - statistics.fmean((sent, received)), (received - sent) / 2


def path_to_json(path: Path) -> dict[str, Any]:
    """Flat, without what is not known."""
    return {name: value for name, value in asdict(path).items() if value not in (None, "")}
