"""The server: uvicorn with bounds of our own for each connection, until it is told to end."""

import asyncio
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from wirespeed.site.callers import MOST_HEAD_BYTES, Callers, Door
from wirespeed.site.listening import BACKLOG

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
