"""`python -m wirespeed.session.beside PID RANK SIZE`: takes what the watched rank with that pid tells.

The secret comes on stdin; told on stdout: where it listens for the rank, and the port for others.
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress

from wirespeed.errors import WirespeedError
from wirespeed.launchers.watch_relay import WatchRelay
from wirespeed.watch.beside import LONGEST, marked, opened

_POLL_S = 0.2
_LATE_S = 3.0
"""What other ranks still tell after rank 0 has ended."""


class _Sender:
    """Beside another rank than 0: hands on, once the rank has learnt where to."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._secret = ""
        self._waiting: list[str] = []

    def take(self, text: str) -> None:
        if text.find('"k":"to"', 0, 40) >= 0:
            self._learn(text)
        elif self._socket is None:
            self._waiting = [*self._waiting[-100:], text]
        else:
            self._send(text)

    def _learn(self, text: str) -> None:
        with suppress(ValueError, KeyError, TypeError, OSError):
            told = json.loads(text)
            port, _, self._secret = str(told["at"]).partition(":")
            every = socket.getaddrinfo(str(told["host"]), int(port), type=socket.SOCK_DGRAM)
            # Where both are known, IPv4: the other end has it even where its kernel has no IPv6.
            family, *_, address = min(every, key=lambda one: one[0] != socket.AF_INET)
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect(address)
            for one in self._waiting:
                self._send(one)

    def _send(self, text: str) -> None:
        if self._socket is not None:
            with suppress(OSError):  # nobody is there, or not as fast
                self._socket.send(marked(text, self._secret))

    def close(self) -> int:
        return 0


class _Receiver:
    """Beside rank 0: the session of the job."""

    def __init__(self, size: int, secret: str) -> None:
        from wirespeed.session.watched_elsewhere import WatchedElsewhere

        self._job, self._secret = WatchedElsewhere(size), secret
        self.socket = _open_to_all()
        self.port = self.socket.getsockname()[1]

    def take(self, text: str) -> None:
        self._job.take(text)

    def receive(self) -> None:
        """What other ranks have sent; what does not bear the mark is nobody's."""
        with suppress(BlockingIOError):
            while True:
                text = opened(self.socket.recv(LONGEST + 64), self._secret)
                if text is not None:
                    self._job.take(text)

    def close(self) -> int:
        until = time.monotonic() + _LATE_S
        while time.monotonic() < until and not self._job.over:
            self.receive()
            time.sleep(_POLL_S)
        return self._job.close()


def _open_to_all() -> socket.socket:
    """For IPv4 and IPv6, where the kernel has both."""
    try:
        one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.bind(("::", 0))
    except OSError:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(("", 0))
    one.setblocking(False)
    return one


def main(pid: int, rank: int, size: int) -> int:
    """Until the rank has ended."""
    try:
        return _main(pid, rank, size)
    except (WirespeedError, OSError) as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return getattr(error, "exit_code", 3)


def _main(pid: int, rank: int, size: int) -> int:
    secret = sys.stdin.readline().strip()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its rank
    relay = WatchRelay()
    receiver = _Receiver(size, secret) if rank == 0 else None
    taker = receiver or _Sender()
    try:
        os.write(1, f"{relay.path} {receiver.port if receiver else 0}\n".encode())
        os.close(1)
        with selectors.DefaultSelector() as ready:
            ready.register(relay.socket, selectors.EVENT_READ)
            if receiver is not None:
                ready.register(receiver.socket, selectors.EVENT_READ)
            while os.getppid() == pid:
                ready.select(_POLL_S)
                for text in (*relay.read(), *relay.look()):
                    taker.take(text)
                if receiver is not None:
                    receiver.receive()
        for text in relay.read():
            taker.take(text)
    except BrokenPipeError:
        return 0  # the rank has ended before it began
    finally:
        relay.close()
    return taker.close()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
