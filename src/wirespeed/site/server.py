"""The server: uvicorn with bounds of our own for each connection, until it is told to end.

A caller that is slow, or says nothing, holds up nobody: every connection carries one request and has a
bounded time for it. Where there are too many, the one that goes is the oldest of the peer that has
most of those that we wait for (`node/callers.py`).
"""

import asyncio
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from wirespeed.node.callers import crowded_out
from wirespeed.site.listening import BACKLOG

MOST_CONNECTIONS = 128
TIMEOUT_S = 10.0
"""For one request to come in whole, and again for its answer to be made and taken."""
MOST_HEAD_BYTES = 16 << 10
_LOOK_S = 0.1


@dataclass(eq=False, slots=True)
class Caller:
    """One connection, from the moment it is accepted."""

    transport: asyncio.Transport
    peer: str
    since: float
    protocol: "_Http | None" = None

    @property
    def asked(self) -> bool:
        """Whether a whole request has come."""
        return self.protocol is not None and self.protocol.cycle is not None

    @property
    def answering(self) -> bool:
        """Whether its answer is being made, which it waits for and not we for it."""
        cycle = None if self.protocol is None else self.protocol.cycle
        return cycle is not None and not cycle.response_started


@dataclass(eq=False, slots=True)
class Callers:
    """All connections, in the order in which they came."""

    here: dict[Caller, None] = field(default_factory=dict)

    def admit(self, transport: asyncio.Transport) -> Caller:
        """Give it a place, if need be somebody else's."""
        if len(self.here) >= MOST_CONNECTIONS:
            waited_for = [one for one in self.here if not one.answering] or list(self.here)
            self.dismiss(waited_for[crowded_out([one.peer for one in waited_for])])
        name = transport.get_extra_info("peername")
        peer = name[0].removeprefix("::ffff:") if name else ""
        caller = Caller(transport, peer, time.monotonic())
        self.here[caller] = None
        return caller

    def dismiss(self, caller: Caller) -> None:
        """Hang up at once, whatever is still to be sent."""
        self.here.pop(caller, None)
        caller.transport.abort()

    async def dismiss_overdue(self) -> None:
        """For as long as the server lives."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            for caller in list(self.here):
                if now - caller.since > TIMEOUT_S * (2 if caller.asked else 1):
                    self.dismiss(caller)


class _Http(H11Protocol):
    """uvicorn's HTTP/1.1, which says when its connection is gone."""

    def __init__(self, gone: Callable[[], None], *known: Any) -> None:
        super().__init__(*known)
        self._gone = gone
        self._made = False
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._made = True
        if self._early:
            self.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if not self._made:  # the handshake of TLS is over, and its waiter not yet awake
            self._early += data
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        if self._made:
            super().connection_lost(exc)


class Door(asyncio.Protocol):
    """A connection before its first byte is read: it gets a place, then TLS if asked for, then HTTP."""

    def __init__(
        self, callers: Callers, tls: ssl.SSLContext | None, config: Config, state: ServerState
    ) -> None:
        self._callers, self._tls = callers, tls
        self._known: tuple[Any, ...] = (config, state, {})
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        caller = self._callers.admit(transport)
        caller.protocol = _Http(lambda: self._left(caller), *self._known)
        if self._tls is None:
            transport.set_protocol(caller.protocol)
            caller.protocol.connection_made(transport)
        else:
            transport.pause_reading()
            shaken = self._shake(caller, caller.protocol, self._tls)
            self._task = asyncio.get_running_loop().create_task(shaken)

    def _left(self, caller: Caller) -> None:
        self._callers.here.pop(caller, None)

    async def _shake(self, caller: Caller, protocol: _Http, tls: ssl.SSLContext) -> None:
        try:
            transport = await asyncio.get_running_loop().start_tls(
                caller.transport, protocol, tls, server_side=True, ssl_handshake_timeout=TIMEOUT_S
            )
        except OSError:  # no TLS, or none that we take, or it has left
            self._callers.dismiss(caller)
            return
        if transport is None:
            self._callers.dismiss(caller)
            return
        protocol.connection_made(transport)


_ENDS_WITHIN_S = 3
_SWITCH_S = 0.0005
"""A page asks SQLite a hundred times, and each time would wait ten times as long, Python's 5 ms, for a
thread that computes beside it."""


class Server(uvicorn.Server):
    """Serves an application at one socket. SIGINT and SIGTERM are how it is meant to end."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=H11Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                timeout_graceful_shutdown=_ENDS_WITHIN_S,
            )
        )
        self._listener, self._tls = listener, tls
        self._callers = Callers()
        self._overdue: asyncio.Task[None] | None = None
        self.on_started: Callable[[], None] = lambda: None

    def serve_until_stopped(self) -> None:
        """In this thread; signals are taken where it is the main one."""
        sys.setswitchinterval(_SWITCH_S)
        asyncio.run(self.serve([self._listener]))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with a door of our own in front of each connection."""
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(self._door, sock=self._listener, backlog=BACKLOG)
            if self._listener.family != socket.AF_UNIX
            else await loop.create_unix_server(self._door, sock=self._listener, backlog=BACKLOG)
        ]
        self._overdue = loop.create_task(self._callers.dismiss_overdue())
        self.started = True
        self.on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers that are being sent are given a moment."""
        await super().shutdown(sockets)
        if self._overdue is not None:
            self._overdue.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not raised again afterwards: an end that was asked for is no failure."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.handle_exit)
        yield

    def _door(self) -> Door:
        return Door(self._callers, self._tls, self.config, self.server_state)
