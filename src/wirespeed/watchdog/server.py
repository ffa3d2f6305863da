"""The session's TCP side: accepts, admits who knows the key, reads and writes without blocking.

What a message means is not known here: it is handed to the `Listener`.
"""

import contextlib
import selectors
import socket
import time
from typing import Protocol

from wirespeed.errors import CannotMeasure, refused_as
from wirespeed.watchdog import protocol

_HELLO_BOUND_S = 10.0
_MOST_STRANGERS = 128
"""Connections that are no rank's yet, beyond one for each rank."""
_ACCEPTED_AT_ONCE = 64
"""Then the ranks are served, however many more are at the door."""
_FLUSH_BOUND_S = 1.0
_BACKLOG = 4096
_READ_BYTES = 256 * 1024
_UNSENT_LIMIT = 1024 * 1024


class Connection:
    """One accepted socket; `rank` is None until it is one's, `hello` until it knew the run's key."""

    def __init__(self, accepted: socket.socket, address: tuple[str, int], now: float) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = accepted
        self.peer = address[0]
        self.address = f"{address[0]}:{address[1]}"
        self.opened_at = now
        self.rank: int | None = None
        self.hello: protocol.Hello | None = None
        self._lines = protocol.LineBuffer(protocol.HELLO_LIMIT)
        self._nonce = protocol.new_token()
        self._in: protocol.LineSeal | None = None
        self._out: protocol.LineSeal | None = None
        self._unsent = bytearray(protocol.encode(protocol.Greeting(self._nonce)))
        self.flush()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._unsent)

    def meet(self, token: str, line: bytes) -> protocol.Hello:
        """The first line of a rank that knows the run's key; ProtocolError for any other."""
        hello = protocol.decode(protocol.hello_seal(token, self._nonce).opened(line))
        if not isinstance(hello, protocol.Hello):
            raise protocol.ProtocolError(f"{type(hello).__name__} without hello")
        self._in, self._out = protocol.session_seals(token, self._nonce, hello.nonce)
        self.hello = hello
        return hello

    def trust(self, rank: int) -> None:
        """It is that rank's: longer lines are allowed from now on."""
        self.rank = rank
        self._lines.limit = protocol.LINE_LIMIT + protocol.SEAL_BYTES

    def read(self) -> list[bytes] | None:
        """The lines that arrived; None at the end of the stream.

        Raises ProtocolError for a line that is too long.
        """
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._lines.feed(data) if data else None

    def message(self, line: bytes) -> protocol.Message:
        """What the rank says. Raises ProtocolError for what it did not say."""
        if self._in is None:
            raise protocol.ProtocolError("a line before hello")
        return protocol.decode(self._in.opened(line))

    def send(self, message: protocol.Message) -> None:
        """Queue and send what goes; a peer that takes nothing costs at most 1 MiB."""
        if self._out is not None and len(self._unsent) < _UNSENT_LIMIT:
            self._unsent += self._out.sealed(protocol.encode(message))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now; a broken one is noticed by the next read."""
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def close(self) -> None:
        self.socket.close()


class Listener(Protocol):
    """Who is told what arrives."""

    def joined(self, hello: protocol.Hello, address: str, now: float) -> str:
        """Returns why the rank, which calls from `address`, is refused, or ``."""

    def turned_away(self, address: str, why: str) -> None:
        """Somebody said something without the run's key."""

    def heard(self, rank: int, message: protocol.Message, now: float) -> None: ...

    def lost(self, rank: int, now: float, why: str) -> None: ...


class Server:
    """Serves the ranks of one run from one thread, which calls `step` again and again."""

    def __init__(self, token: str, world_size: int, listener: Listener) -> None:
        self._token, self._listener = token, listener
        self._limit = world_size + _MOST_STRANGERS
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[Connection, None] = {}  # the oldest first
        self._ranks: dict[int, Connection] = {}
        self._door: socket.socket | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def listen(self, host: str, port: int) -> int:
        """Open the port (0: the kernel chooses) and return it. Raises CannotMeasure."""
        expected = "an address of this machine and a free port (0 lets the kernel choose)"
        told = {"expected": expected, "next": "ip -brief address"}
        with refused_as(CannotMeasure, f"cannot listen on {host}:{port}", **told):
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._door = socket.create_server((host, port), family=family, backlog=_BACKLOG)
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
        while self._strangers and now - next(iter(self._strangers)).opened_at > _HELLO_BOUND_S:
            self._drop(next(iter(self._strangers)))

    def send(self, rank: int, message: protocol.Message) -> None:
        """To one rank, if it is connected."""
        if connection := self._ranks.get(rank):
            connection.send(message)
            self._register_writes(connection)

    def broadcast(self, message: protocol.Message) -> None:
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
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._door is None:
                return
            try:
                accepted, address = self._door.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors, or the peer is gone already: come back to it later.
                self._crowd_out(1)
                time.sleep(0.01)
                return
            connection = Connection(accepted, address, now)
            self._selector.register(accepted, selectors.EVENT_READ, connection)
            self._strangers[connection] = None
            self._crowd_out(self._limit + 1)

    def _crowd_out(self, too_many: int) -> None:
        """Where so many strangers are here, one leaves; a rank that is quick to say hello never does."""
        if len(self._strangers) >= too_many:
            from wirespeed.node.callers import crowded_out

            here = list(self._strangers)
            self._drop(here[crowded_out([one.peer for one in here])])

    def _serve_connection(self, connection: Connection, now: float) -> None:
        if connection.socket.fileno() < 0:
            return  # dropped earlier in this very step
        connection.flush()
        why = "the connection ended"
        try:
            lines = connection.read()
            for line in lines or ():
                self._take(connection, line, now)
        except protocol.ProtocolError as error:
            lines, why = None, f"the session closed the connection ({error})"
            if connection.hello is None:
                self._listener.turned_away(connection.address, str(error))
        if lines is None:
            self._drop(connection)
            if connection.rank is not None:
                self._listener.lost(connection.rank, now, why)
        else:
            self._register_writes(connection)

    def _take(self, connection: Connection, line: bytes, now: float) -> None:
        if connection.rank is not None:
            self._listener.heard(connection.rank, connection.message(line), now)
            return
        hello = connection.meet(self._token, line)
        if reason := self._listener.joined(hello, connection.address, now):
            connection.send(protocol.Refused(reason))
            raise protocol.ProtocolError(reason)
        connection.trust(hello.rank)
        del self._strangers[connection]
        self._ranks[hello.rank] = connection
        connection.send(protocol.Welcome())

    def _register_writes(self, connection: Connection) -> None:
        events = selectors.EVENT_READ
        if connection.wants_to_write:
            events |= selectors.EVENT_WRITE
        if self._selector.get_key(connection.socket).events != events:
            self._selector.modify(connection.socket, events, connection)

    def _drop(self, connection: Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.close()
        self._strangers.pop(connection, None)
        if connection.rank is not None:
            self._ranks.pop(connection.rank, None)
