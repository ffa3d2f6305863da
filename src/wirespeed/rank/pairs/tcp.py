"""A pair over plain TCP: what a CPU world's collectives run on, with a bound on every wait.

Every phase opens a connection of its own, so that one which stalls (a black hole, a firewall, a node
that died) costs that figure and nothing else. Who calls shows that it knows the token before it counts
as the peer, and strangers hold up nobody. The receiving side measures: what left the sender may still
lie in a buffer.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from statistics import median
from threading import Event, Thread

from wirespeed.node.callers import serve_callers, take
from wirespeed.node.reachability import admits, call

CONNECT_S = 2.0
LATE_S = 1.5
"""How much later than planned the last byte may come; then what came so far is the answer."""
SKIPPED = 0.3
"""Share of a transfer that is not counted: slow start, and the burst that a shaper lets pass."""
PINGS = 20
_PING = bytes(32)
_BLOCK = bytes(256 << 10)
_TOKEN_BYTES = 16
_STEP_S = 0.25
_BACKLOG = 256
_AT_ONCE, _OF_ONE_PEER = 32, 8
"""Callers that have not shown the token yet: a peer calls once at a time."""

Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank can be reached, and the key by which it knows a caller; the key is never sent."""

    address: str
    port: int
    token: bytes


class Door:
    """A rank's listening socket; `close` it."""

    def __init__(self, address: str, tick: Tick) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.bind((address, 0))
        self._socket.listen(_BACKLOG)
        self._tick = tick
        self.seat = Seat(address, self._socket.getsockname()[1], os.urandom(_TOKEN_BYTES))
        self._came: SimpleQueue[socket.socket] = SimpleQueue()
        self._closing = Event()
        Thread(target=self._serve, name="pairs", daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._socket.close()

    def ping(self, peer: Seat | None) -> float:
        """Half of the median round trip in seconds, from the side that calls (`peer` given).

        Infinite where no answer came; the side that is called gives that too.
        """
        with suppress(OSError), self._line(peer) as line:
            line.settimeout(CONNECT_S)
            times = []
            for _ in range(PINGS):
                begin = time.perf_counter()
                if peer is not None:
                    line.sendall(_PING)
                take(line, len(_PING))
                times.append(time.perf_counter() - begin)
                if peer is None:
                    line.sendall(_PING)
                self._tick()
            return median(times) / 2 if peer is not None else float("inf")
        return float("inf")

    def transfer(self, peer: Seat | None, *, sends: bool, receives: bool, seconds: float) -> float:
        """Bytes a second that came here; 0.0 on a side that only sends, or when nothing came.

        The side with `peer` calls, the other waits to be called; either or both may send.
        """
        with suppress(OSError), self._line(peer) as line:
            sender = Thread(target=self._send, args=(line, seconds), daemon=True)
            if sends:
                sender.start()
            rate = self._receive(line, seconds) if receives else 0.0
            if sends:
                sender.join(seconds + LATE_S + CONNECT_S)
                with suppress(OSError):  # until the other side hangs up: our data may be on the way
                    self._receive(line, 0.0)
            return rate
        return 0.0

    def _line(self, peer: Seat | None) -> socket.socket:
        if peer is not None:
            line = call(peer.address, peer.port, peer.token, CONNECT_S)
        else:
            line = self._answer()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line

    def _answer(self) -> socket.socket:
        """The next caller that knows our token."""
        try:
            return self._came.get(timeout=CONNECT_S)
        except Empty:
            raise TimeoutError("nobody called") from None

    def _serve(self) -> None:
        serve_callers(
            self._socket,
            self._greet,
            seconds=CONNECT_S,
            at_once=_AT_ONCE,
            of_one_peer=_OF_ONE_PEER,
            closing=self._closing.is_set,
        )

    def _greet(self, line: socket.socket) -> None:
        if admits(line, self.seat.token):
            self._came.put(socket.socket(fileno=line.detach()))

    def _send(self, line: socket.socket, seconds: float) -> None:
        """As much as goes through in that time, then the end."""
        deadline = time.monotonic() + seconds
        with suppress(OSError):
            line.settimeout(_STEP_S)
            while time.monotonic() < deadline:
                with suppress(TimeoutError):
                    line.send(_BLOCK)
                self._tick()
            line.shutdown(socket.SHUT_WR)

    def _receive(self, line: socket.socket, seconds: float) -> float:
        meter, buffer = _Meter(seconds), bytearray(1 << 20)
        deadline = time.monotonic() + seconds + LATE_S
        line.settimeout(_STEP_S)
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                count = line.recv_into(buffer)
                if not count:
                    return meter.rate(ended=True)
                meter.add(count)
            self._tick()
        return meter.rate(ended=False)


class _Meter:
    """Counts what comes after the first part of a transfer."""

    def __init__(self, seconds: float) -> None:
        self._skip_s = SKIPPED * seconds
        self._begin: float | None = None
        self._all = self._counted = 0
        self._mark = self._last = 0.0

    def add(self, count: int) -> None:
        now = time.perf_counter()
        if self._begin is None:
            self._begin = self._mark = now
        if now - self._begin < self._skip_s:
            self._mark = now
        else:
            self._counted += count
        self._all += count
        self._last = now

    def rate(self, *, ended: bool) -> float:
        """Without an end the silence up to now counts too."""
        if self._begin is None:
            return 0.0
        last = self._last if ended else time.perf_counter()
        if self._counted and last > self._mark:
            return self._counted / (last - self._mark)
        return self._all / (last - self._begin) if last > self._begin else 0.0


def own_address(one_host: bool) -> str:
    """The address that the collectives use: of GLOO_SOCKET_IFNAME, or of the way to the master."""
    named = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0].strip()
    if named and (found := _address_of(named)):
        return found
    if one_host:
        return "127.0.0.1"
    master = os.environ.get("MASTER_ADDR") or socket.gethostname()
    family, _, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # sends nothing: asks only which way it would go
        return str(probe.getsockname()[0])


def _address_of(interface: str) -> str:
    import psutil

    addresses = psutil.net_if_addrs().get(interface, ())
    return next((one.address for one in addresses if one.family == socket.AF_INET), "")
