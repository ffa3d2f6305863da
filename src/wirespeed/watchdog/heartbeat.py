"""A rank's side of the watchdog: says where the rank is, and ends it when the session says so."""

import contextlib
import faulthandler
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import msgspec

from wirespeed.errors import StorageError, WorldError
from wirespeed.watchdog import protocol
from wirespeed.watchdog.facts import Phase
from wirespeed.watchdog.stacks import main_thread_stack

ABORTED = 1
"""Exit code of a rank that the session ended."""

_KEPT = 16
"""Operations remembered, a power of two."""
_SEND_BOUND_S = 30.0
_GOODBYE_BOUND_S = 10.0
_FLUSH_BOUND_S = 1.0
_RETRY_S = 0.1
_TRACE_LIMIT = 64 * 1024
SESSION_LOST = "the session process is gone"
"""The reason given to `on_abort` when the connection to the session ended."""


def leave(reason: str) -> None:
    """End this process at once with exit code `ABORTED`, whatever its main thread does.

    The default of `on_abort`. `reason` goes to standard error. Flushing is bounded, since the main
    thread may hold the stream's lock while it waits for a reader.
    """
    flusher = threading.Thread(target=_last_words, args=(reason,), daemon=True)
    flusher.start()
    flusher.join(_FLUSH_BOUND_S)
    os._exit(ABORTED)


def _last_words(reason: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        sys.stderr.write(f"wirespeed: this rank is ended: {reason}\n")
        sys.stderr.flush()


class Heartbeat:
    """Connection of one rank to the session's `Monitor`.

    `enter` and `tick` only store attributes and may be called in a timed loop; everything else
    writes to the socket. The main thread owns all methods. `on_abort` is called at most once, as a
    rule in the heartbeat's own thread, so it works while the main thread is blocked in C++ (with the
    GIL released); in the main thread when sending fails there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        rank: int,
        world_size: int,
        *,
        on_abort: Callable[[str], None] = leave,
        stack_file: Path | None = None,
    ) -> None:
        """`token`: the run's key, which is shown to be known and never sent.

        `stack_file`: where `faulthandler` writes stacks upon SIGUSR1; None: not installed.
        """
        self.host, self.port = host, port
        self._token = token
        self._hello = protocol.Hello("", rank, world_size, socket.gethostname(), os.getpid())
        self._in: protocol.LineSeal | None = None
        self._out: protocol.LineSeal | None = None
        self._on_abort, self._stack_path = on_abort, stack_file
        self._stack_file: TextIOWrapper | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._send_lock = threading.Lock()
        self._lines = protocol.LineBuffer(protocol.LINE_LIMIT + protocol.SEAL_BYTES)
        self._closing = False
        self._said_bye = False
        self._aborted = ""
        self._abort_once = threading.Lock()
        self._confirmed = False
        self._gone = threading.Event()
        self._phase: Phase = "starting"
        self._detail = ""
        self._bound = 0.0
        self._labels = [""] * _KEPT
        self._sequence = 0
        self._ticks = 0
        self._began = time.monotonic()

    # The hot path: stores only, no lock, no system call.

    def enter(self, label: str) -> None:
        """An operation begins. Every rank that takes part must give the same `label`."""
        sequence = self._sequence + 1
        self._labels[sequence & (_KEPT - 1)] = label
        self._began = time.monotonic()
        # Last, so that the heartbeat's thread never pairs a new number with an old label.
        self._sequence = sequence

    def tick(self) -> None:
        """A long operation or local work made progress."""
        self._ticks += 1

    def position(self) -> tuple[str, int, int]:
        """(label of the operation last begun, its number, ticks): changes while there is progress."""
        sequence = self._sequence
        return self._labels[sequence & (_KEPT - 1)], sequence, self._ticks

    # The rest of the rank's life.

    def connect(self, timeout: float) -> None:
        """Connect and introduce ourselves; the session may come up later than we do.

        Raises WorldError when there is no session within `timeout` seconds, or it refuses us.
        """
        deadline = time.monotonic() + timeout
        self._install_stack_dump()
        connection = self._welcomed(deadline)
        connection.settimeout(_SEND_BOUND_S)
        self._socket = connection
        self._thread = threading.Thread(target=self._listen, name="heartbeat", daemon=True)
        self._thread.start()

    def phase(self, name: Phase, detail: str = "", bound_s: float | None = None) -> None:
        """Enter a phase, and tell the session at once.

        `bound_s`: seconds that this phase may go without progress (`enter` and `tick` are
        progress); None: the session's start-up bound or operation bound.
        """
        self._phase, self._detail, self._bound = name, detail, bound_s or 0.0
        self._began = time.monotonic()
        if self._socket is not None:
            self._send(self._beat())

    @property
    def announced_s(self) -> float:
        """Seconds that the phase may go without progress, as it was announced; 0: the usual bound."""
        return self._bound

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """Send a result. Order is kept. Raises WorldError when the session is gone."""
        self._send(protocol.Record(kind, data))

    def failed(self, exception: BaseException) -> None:
        """Report the exception that ends this rank; call `finish` afterwards."""
        last = "".join(traceback.format_exception_only(exception)).strip()
        trace = "".join(traceback.format_exception(exception))[-_TRACE_LIMIT:]
        self._phase = "failed"
        self._send(self._beat())
        self._send(protocol.Failed(last[-_TRACE_LIMIT:], trace))

    def finish(self, exit_code: int) -> bool:
        """Say goodbye with the exit code that follows, and close.

        True when the session confirmed that it has read everything, within 10 s. A rank that
        never connected, or was aborted, has nobody to tell: False.
        """
        if self._socket is None:
            self._remove_stack_dump()
            return False
        self._said_bye = True
        with contextlib.suppress(WorldError):
            self._send(self._beat())
            self._send(protocol.Bye(exit_code))
            self._gone.wait(_GOODBYE_BOUND_S)
        self.close()
        return self._confirmed

    def close(self) -> None:
        """Drop the connection without goodbye; the session takes that for a death."""
        self._closing = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_GOODBYE_BOUND_S)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._remove_stack_dump()

    # Connecting.

    def _welcomed(self, deadline: float) -> socket.socket:
        """A connection on which the session took us; in a crowd it may drop us once or more."""
        while True:
            connection = self._dial(deadline)
            try:
                self._introduce(connection, deadline)
            except OSError as error:
                connection.close()
                if time.monotonic() + _RETRY_S > deadline:
                    raise self._not_taken(str(error)) from error
                time.sleep(_RETRY_S)
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def _dial(self, deadline: float) -> socket.socket:
        problem = "no time to try"
        while (left := deadline - time.monotonic()) > 0:
            try:
                connection = protocol.small_segments(self.host, self.port, left)
            except OSError as error:
                problem = str(error)
                time.sleep(min(_RETRY_S, max(0.0, deadline - time.monotonic())))
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol.bound_unacknowledged(connection, _SEND_BOUND_S)
            return connection
        raise WorldError(
            f"rank {self._hello.rank} found no session at {self.host}:{self.port}: {problem}",
            expected="the process of the wirespeed command (or rank 0) to listen there",
            next=f"from {self._hello.host}, try: nc -vz {self.host} {self.port}",
        )

    def _introduce(self, connection: socket.socket, deadline: float) -> None:
        """Each shows the other to know the run's key. OSError when we are dropped, or nobody answers."""
        try:
            greeting = protocol.decode(protocol.read_line(connection, deadline))
            if not isinstance(greeting, protocol.Greeting):
                raise protocol.ProtocolError("it is another program")
            hello = msgspec.structs.replace(self._hello, nonce=protocol.new_token())
            connection.sendall(
                protocol.hello_seal(self._token, greeting.nonce).sealed(protocol.encode(hello))
            )
            self._out, self._in = protocol.session_seals(self._token, greeting.nonce, hello.nonce)
            answer = protocol.decode(self._in.opened(protocol.read_line(connection, deadline)))
        except protocol.ProtocolError as error:
            raise self._not_taken(str(error)) from error
        if not isinstance(answer, protocol.Welcome):
            raise self._not_taken(
                answer.reason if isinstance(answer, protocol.Refused) else "no welcome"
            )

    def _not_taken(self, reason: str) -> WorldError:
        return WorldError(
            f"the session at {self.host}:{self.port} does not take rank {self._hello.rank}: "
            f"{reason}",
            expected=f"a session that waits for rank {self._hello.rank} of "
            f"{self._hello.world_size}",
            next="env | grep -E 'RANK|WORLD_SIZE|MASTER_|WIRESPEED_' on each node",
        )

    # Sending.

    def _beat(self) -> protocol.Beat:
        sequence = self._sequence
        return protocol.Beat(
            phase=self._phase,
            detail=self._detail,
            op=self._labels[sequence & (_KEPT - 1)],
            sequence=sequence,
            ticks=self._ticks,
            age=time.monotonic() - self._began,
            bound=self._bound,
        )

    def _recent(self) -> list[list[Any]]:
        last = self._sequence
        # The slot of the oldest may be overwritten while we read, so it is left out.
        first = max(1, last - _KEPT + 2)
        return [[number, self._labels[number & (_KEPT - 1)]] for number in range(first, last + 1)]

    def _send(self, message: protocol.Message, lock_bound: float = _SEND_BOUND_S) -> None:
        """Raises WorldError when the session does not take it within the bound."""
        line = protocol.encode(message)
        connection, seal = self._socket, self._out
        if connection is None or seal is None or self._aborted:
            raise WorldError(self._aborted or "the rank has no connection to the session")
        if len(line) > protocol.LINE_LIMIT:
            raise WorldError(
                f"a message of {len(line)} bytes", expected=f"at most {protocol.LINE_LIMIT}"
            )
        if not self._send_lock.acquire(timeout=lock_bound):
            raise WorldError(f"the session took nothing for {lock_bound:.0f} s")
        try:
            connection.sendall(seal.sealed(line))
        except OSError as error:
            # Part of the line may be gone, so the stream is of no more use.
            self._abort(f"{SESSION_LOST}: {error}")
            raise WorldError(f"{SESSION_LOST}: {error}") from error
        finally:
            self._send_lock.release()

    # The heartbeat's thread.

    def _listen(self) -> None:
        connection = self._socket
        if connection is None:
            return
        due = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            while not self._closing and not self._aborted:
                if time.monotonic() >= due:
                    due = time.monotonic() + protocol.HEARTBEAT_S
                    self._heartbeat()
                if selector.select(max(0.0, due - time.monotonic())) and not self._closing:
                    self._hear(connection)

    def _heartbeat(self) -> None:
        # While the main thread sends a long record, that record is the sign of life.
        if self._send_lock.locked() or self._said_bye:
            return
        with contextlib.suppress(WorldError):
            self._send(self._beat())

    def _hear(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        try:
            for line in self._lines.feed(data):
                self._obey(protocol.decode(self._in.opened(line) if self._in else line))
        except protocol.ProtocolError as error:
            self._abort(f"the session sent {error}")

    def _obey(self, message: protocol.Message) -> None:
        if isinstance(message, protocol.StackRequest):
            with contextlib.suppress(WorldError):
                self._send(protocol.StackText(main_thread_stack(), self._recent()), lock_bound=1.0)
        elif isinstance(message, protocol.Abort):
            self._abort(message.reason)
        elif isinstance(message, protocol.Bye):
            self._confirmed = True
            self._hang_up()

    def _hang_up(self) -> None:
        """No more will come from the session."""
        if not self._closing:
            self._abort(SESSION_LOST)
        self._closing = True
        self._gone.set()

    def _abort(self, reason: str) -> None:
        """End this rank, once; a rank that said goodbye ends by itself."""
        if self._said_bye or not self._abort_once.acquire(blocking=False):
            return
        self._aborted = reason
        self._on_abort(reason)

    # Stacks of a process that cannot answer.

    def _install_stack_dump(self) -> None:
        if self._stack_path is None or self._stack_file is not None:
            return
        try:
            self._stack_file = self._stack_path.open("w")
        except OSError as error:
            raise StorageError(
                f"cannot write the stack file {self._stack_path}: {error.strerror}",
                expected="a folder that this rank can write to",
            ) from error
        faulthandler.register(signal.SIGUSR1, file=self._stack_file, all_threads=True)

    def _remove_stack_dump(self) -> None:
        if self._stack_file is not None:
            faulthandler.unregister(signal.SIGUSR1)
            self._stack_file.close()
            self._stack_file = None
