"""Carry Ethernet frames between two interfaces, each a given time later: `relay.py A B SECONDS`.

Run as a file, in the namespace of the switch, until it is ended. Packet sockets with
PACKET_VNET_HDR carry what the host left undone (checksums, packets of up to 64 KiB) along, so
that a frame leaves as it came and one read moves up to 44 of them. Linux: packet(7).
"""

import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress

_ALL = 0x0003
_SOL_PACKET, _VNET_HEADER, _IGNORE_OUTGOING = 263, 15, 23
_LARGEST = 66_000
_QUEUE_BYTES = 64 << 20
_SOCKET_BYTES = 16 << 20
_READS = 64
"""At most so many reads before what is due is sent."""


class Direction:
    """From one socket to another, in order, each frame `delay_s` after it came."""

    def __init__(self, source: socket.socket, target: socket.socket, delay_s: float) -> None:
        self.source = source
        self._target = target
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0

    def take(self) -> None:
        """Read what is there. A frame beyond the queue's length is lost, as in a full switch."""
        due = time.monotonic() + self._delay_s
        for _ in range(_READS):
            try:
                frame = self.source.recv(_LARGEST)
            except OSError:
                return  # nothing more, or the cable was pulled: it may come back
            if self._bytes + len(frame) <= _QUEUE_BYTES:
                self._waiting.append((due, frame))
                self._bytes += len(frame)

    def give(self, now: float) -> None:
        """Send what is due. What the interface does not take is lost."""
        while self._waiting and self._waiting[0][0] <= now:
            frame = self._waiting.popleft()[1]
            self._bytes -= len(frame)
            with suppress(OSError):
                self._target.send(frame)

    def due(self) -> float:
        """When the next frame must go; infinite when none waits."""
        return self._waiting[0][0] if self._waiting else float("inf")


def _packets(interface: str) -> socket.socket:
    """All frames that come in on an interface, and a way to send more."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setblocking(False)
    opened.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        opened.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
    opened.bind((interface, _ALL))
    return opened


def main(first: str, second: str, seconds: str) -> None:
    """Runs until a signal ends it."""
    one, other = _packets(first), _packets(second)
    ways = [Direction(one, other, float(seconds)), Direction(other, one, float(seconds))]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        wait = min(way.due() for way in ways) - time.monotonic()
        timeout = None if wait == float("inf") else max(0.0, wait)
        # select, not poll: its timeout is in microseconds.
        ready = select.select([way.source for way in ways], [], [], timeout)[0]
        for way in ways:
            if way.source in ready:
                way.take()
            way.give(time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
