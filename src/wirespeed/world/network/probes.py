"""Knock at another node's door: can it be reached, do large packets pass, is its clock right?

Every function is bounded by the seconds it is given, and raises nothing for a peer that is away.
"""

import hmac
import itertools
import secrets
import socket
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wirespeed.world.network.doorbell import ANSWER, QUESTION, Door, sealed
from wirespeed.world.network.knocking import call

__all__ = ["Path", "knock", "path_to_json", "probe_path"]

_KNOCKS = 2
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE, _IP_MTU = 10, 3, 14
"""linux/in.h: send with Don't Fragment set whatever the kernel believes of the path (PROBE); the
MTU of the interface behind a connected socket (IP_MTU)."""
_HEADERS = 28
"""Bytes of an IPv4 and a UDP header."""
_SMALLEST_MTU = 576
"""Every IPv4 host takes packets of this size (RFC 791)."""
_JUMBO_MTU = 9216
_TRIES = 3
_CLOCKS = 8
_WAIT_S, _LEAST_WAIT_S, _PAUSE_S = 0.25, 0.1, 0.02


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
                return problem
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
            time.sleep(max(0.0, min(_PAUSE_S, until - time.monotonic())))
        return None

    def passes(self, size: int, wait: float) -> bool:
        """Whether an IP packet of so many bytes arrives, in one of a few tries."""
        return any(self.ask(size - _HEADERS, wait) for _ in range(_TRIES))

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
    found = {
        "mtu": path.mtu,
        "passes": path.passes,
        "clock_offset_s": path.clock_offset_s,
        "clock_error_s": path.clock_error_s,
        "why": path.why or None,
    }
    return {name: value for name, value in found.items() if value is not None}
