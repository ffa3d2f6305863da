"""Answer whoever calls at a port, so that a stranger who calls often, or says nothing, holds up nobody.

Callers are answered at once by a few threads. Each has a bounded time; where there are too many, the
one that leaves is the oldest of the peer that has most: who answers quickly is never that one.
"""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

GRACE_S = 0.05
"""What a caller is given to say its word, however many others call."""
_LOOK_S = 0.25
_BREATH_S = 0.01


def serve_callers(
    listener: socket.socket,
    answer: Callable[[socket.socket], object],
    *,
    seconds: float,
    at_once: int,
    of_one_peer: int,
    closing: Callable[[], bool],
) -> None:
    """Accept in this thread until `closing()`, and give each caller to `answer` in another one.

    `answer` gets a socket with a time-out of `seconds` and need not close it; its OSErrors are
    nobody's concern. After `seconds` in all the caller is cut off, whatever it sends. There are at
    most `at_once` callers and `of_one_peer` from one address, but this machine's own; who comes
    beyond that takes the place of an older one, or is turned away where all are new.
    """
    desk = _Desk(answer, seconds, at_once, of_one_peer)
    with suppress(OSError):  # it may be closed already
        listener.settimeout(_LOOK_S)
    while not closing() and listener.fileno() >= 0:
        try:
            caller, address = listener.accept()
        except TimeoutError:
            desk.dismiss_overdue()
        except OSError:  # out of descriptors, or who called is gone, or the listener is closed
            desk.dismiss_overdue()
            time.sleep(_BREATH_S)
        else:
            desk.admit(caller, address[0].removeprefix("::ffff:"))
    desk.close()


def crowded_out(peers: Sequence[str]) -> int:
    """Which caller leaves, of these peers' callers from the oldest to the newest, by its place.

    It is the oldest of the peer that has most.
    """
    return peers.index(Counter(peers).most_common(1)[0][0])


def take(line: socket.socket, count: int) -> bytes:
    """Exactly so many bytes; ConnectionError when the other side hangs up before."""
    got = b""
    while len(got) < count:
        part = line.recv(count - len(got))
        if not part:
            raise ConnectionError("the other side hung up")
        got += part
    return got


@dataclass(eq=False, slots=True)
class _Caller:
    socket: socket.socket
    peer: str
    since: float


@dataclass(eq=False, slots=True)
class _Desk:
    """The callers that are being answered, and the threads that do it."""

    answer: Callable[[socket.socket], object]
    seconds: float
    at_once: int
    of_one_peer: int
    freed: threading.Condition = field(default_factory=threading.Condition)
    here: dict[_Caller, None] = field(default_factory=dict)
    """In the order in which they came."""
    queue: "SimpleQueue[_Caller | None]" = field(default_factory=SimpleQueue)
    threads: int = 0

    def admit(self, caller: socket.socket, peer: str) -> None:
        new = _Caller(caller, peer, time.monotonic())
        self.dismiss_overdue()
        with self.freed:
            if not self._has_room(new):
                caller.close()
                return
            self.here[new] = None
            if self.threads < min(self.at_once, len(self.here)):
                self.threads += 1
                threading.Thread(target=self._work, name="callers", daemon=True).start()
        caller.settimeout(self.seconds)
        self.queue.put(new)

    def dismiss_overdue(self) -> None:
        overdue = time.monotonic() - self.seconds
        with self.freed:
            for caller in [one for one in self.here if one.since < overdue]:
                self._dismiss(caller)

    def close(self) -> None:
        with self.freed:
            for caller in list(self.here):
                self._dismiss(caller)
        for _ in range(self.threads):
            self.queue.put(None)

    def _has_room(self, new: _Caller) -> bool:
        """Make room if need be; False when nobody has been here for long enough to leave."""
        of_peer = [one for one in self.here if one.peer == new.peer]
        if len(of_peer) >= self.of_one_peer and not new.peer.startswith(("127.", "::1")):
            return self._makes_way(of_peer[0], new)
        if len(self.here) < self.at_once:
            return True
        here = list(self.here)
        leaver = here[crowded_out([one.peer for one in here])]
        # Many true ranks at once are a crowd too: they are quick, so wait for one to be done.
        left_s = max(0.0, GRACE_S - (new.since - leaver.since))
        self.freed.wait_for(lambda: len(self.here) < self.at_once, left_s)
        return len(self.here) < self.at_once or self._makes_way(leaver, new)

    def _makes_way(self, older: _Caller, new: _Caller) -> bool:
        if time.monotonic() - older.since < GRACE_S:
            return False
        self._dismiss(older)
        return True

    def _dismiss(self, caller: _Caller) -> None:
        """Its thread hears the end of the stream at once, and closes it."""
        self.here.pop(caller, None)
        with suppress(OSError):
            caller.socket.shutdown(socket.SHUT_RDWR)

    def _work(self) -> None:
        while (caller := self.queue.get()) is not None:
            with caller.socket, suppress(OSError):
                self.answer(caller.socket)
            with self.freed:
                self.here.pop(caller, None)
                self.freed.notify()
