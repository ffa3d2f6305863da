"""The console's TCP side: accepts, admits those with the token, reads and writes without blocking.

What a message means is not known here: it is handed to the `Listener`.
"""

import contextlib
import hmac
import selectors
import socket
import time
from typing import Protocol

from wirespeed.errors import CannotMeasure
from wirespeed.world.watch.connection import Connection
from wirespeed.world.watch.protocol import (
    Hello,
    Message,
    ProtocolError,
    Refused,
    Welcome,
    decode,
)

__all__ = ["Listener", "Server"]

_HELLO_BOUND_S = 10.0
_MOST_STRANGERS = 128
"""Connections without token at a time, beyond one for each rank."""
_FLUSH_BOUND_S = 1.0
_BACKLOG = 4096


class Listener(Protocol):
    """Who is told what arrives."""

    def joined(self, hello: Hello, now: float) -> str:
        """Returns why the rank is refused, or ``."""

    def heard(self, rank: int, message: Message, now: float) -> None: ...

    def lost(self, rank: int, now: float, why: str) -> None: ...


class Server:
    """Serves the ranks of one run from one thread, which calls `step` again and again."""

    def __init__(self, token: str, world_size: int, listener: Listener) -> None:
        self._token = token.encode()
        self._listener = listener
        self._limit = world_size + _MOST_STRANGERS
        self._selector = selectors.DefaultSelector()
        self._strangers: list[Connection] = []
        self._ranks: dict[int, Connection] = {}
        self._door: socket.socket | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def listen(self, host: str, port: int) -> int:
        """Open the port (0: the kernel chooses) and return it. Raises CannotMeasure."""
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._door = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise CannotMeasure(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                expected="an address of this machine and a free port (0 lets the kernel choose)",
                next="ip -brief address",
            ) from error
        self._door.setblocking(False)
        self._selector.register(self._door, selectors.EVENT_READ)
        return int(self._door.getsockname()[1])

    def wake(self) -> None:
        """End the present `step` soon; may be called from any thread."""
        with contextlib.suppress(OSError):
            self._wake_in.send(b"w")

    def wait(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready within `timeout` seconds, for `serve`."""
        return self._selector.select(timeout)

    def serve(self, ready: list[tuple[selectors.SelectorKey, int]], now: float) -> None:
        """Read and write what is ready."""
        for key, _ in ready:
            if isinstance(key.data, Connection):
                self._serve_connection(key.data, now)
            elif key.fileobj is self._door:
                self._accept(now)
            else:
                with contextlib.suppress(BlockingIOError):
                    self._wake_out.recv(4096)
        for stranger in [s for s in self._strangers if now - s.opened_at > _HELLO_BOUND_S]:
            self._drop(stranger)

    def send(self, rank: int, message: Message) -> None:
        """To one rank, if it is connected."""
        if connection := self._ranks.get(rank):
            connection.send(message)
            self._register_writes(connection)

    def broadcast(self, message: Message) -> None:
        for rank in list(self._ranks):
            self.send(rank, message)

    def close(self) -> None:
        """Send what is queued, within a second, and close everything."""
        deadline = time.monotonic() + _FLUSH_BOUND_S
        waiting = [c for c in self._ranks.values() if c.wants_to_write]
        while waiting and time.monotonic() < deadline:
            time.sleep(0.01)
            for connection in waiting:
                connection.flush()
            waiting = [c for c in waiting if c.wants_to_write]
        for connection in (*self._ranks.values(), *self._strangers):
            connection.close()
        for end in (self._door, self._wake_in, self._wake_out):
            if end is not None:
                end.close()
        self._selector.close()

    def _accept(self, now: float) -> None:
        while self._door is not None:
            try:
                accepted, _ = self._door.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors, or the peer is gone already: come back to it later.
                time.sleep(0.01)
                return
            connection = Connection(accepted, now)
            self._selector.register(accepted, selectors.EVENT_READ, connection)
            self._strangers.append(connection)
            if len(self._strangers) > self._limit:
                self._drop(self._strangers[0])

    def _serve_connection(self, connection: Connection, now: float) -> None:
        if connection.socket.fileno() < 0:
            return  # dropped earlier in this very step
        connection.flush()
        why = "the connection ended"
        try:
            lines = connection.read()
            for line in lines or ():
                self._take(connection, decode(line), now)
        except ProtocolError as error:
            lines, why = None, f"the console closed the connection ({error})"
        if lines is None:
            self._drop(connection)
            if connection.rank is not None:
                self._listener.lost(connection.rank, now, why)
        else:
            self._register_writes(connection)

    def _take(self, connection: Connection, message: Message, now: float) -> None:
        if connection.rank is not None:
            self._listener.heard(connection.rank, message, now)
            return
        token = message.token.encode(errors="replace") if isinstance(message, Hello) else b""
        if not isinstance(message, Hello) or not hmac.compare_digest(token, self._token):
            raise ProtocolError("no token")
        if reason := self._listener.joined(message, now):
            connection.send(Refused(reason))
            raise ProtocolError(reason)
        connection.trust(message.rank)
        self._strangers.remove(connection)
        self._ranks[message.rank] = connection
        connection.send(Welcome())

    def _register_writes(self, connection: Connection) -> None:
        events = selectors.EVENT_READ
        if connection.wants_to_write:
            events |= selectors.EVENT_WRITE
        if self._selector.get_key(connection.socket).events != events:
            self._selector.modify(connection.socket, events, connection)

    def _drop(self, connection: Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.close()
        if connection in self._strangers:
            self._strangers.remove(connection)
        if connection.rank is not None:
            self._ranks.pop(connection.rank, None)
