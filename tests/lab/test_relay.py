"""Frames wait, stay in order, and are bounded."""

import socket
import time

from wirespeed.lab.inside import Direction


def test_frames_leave_in_order_and_not_before_their_time() -> None:
    (a, source), (target, b) = (
        socket.socketpair(type=socket.SOCK_DGRAM),
        socket.socketpair(type=socket.SOCK_DGRAM),
    )
    with a, source, target, b:
        for end in (source, b):
            end.setblocking(False)
        way = Direction(source, target, 30.0)
        for frame in (b"one", b"two"):
            a.send(frame)
        way.take()
        now = time.monotonic()
        assert 0 < way.due() - now <= 30
        way.give(now)
        way.give(now + 31)
        assert [b.recv(10), b.recv(10)] == [b"one", b"two"]
        assert way.due() == float("inf")
