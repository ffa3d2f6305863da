"""The application: each path is a row of a table, and each page is made in a thread, a few at a time."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from wirespeed.errors import UsageError, WirespeedError

_AT_ONCE = 4
"""Pages that are made at the same time; more would only share the interpreter's lock."""
_MOST_WAITING = 1024
"""Many more than there are connections: of who has left nothing is made, when its turn comes."""
_PIECE = 64 << 10
"""Bytes that are handed over at once: the next piece waits until the reader has taken this one."""


class Answer(Response):
    """Sent in pieces, so that slow readers of large pages share one copy of them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = memoryview(self.body)
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        for at in range(0, max(1, len(body)), _PIECE):
            piece, more = bytes(body[at : at + _PIECE]), at + _PIECE < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


@dataclass(eq=False, slots=True)
class Desk:
    """Makes pages in threads; who comes when too many wait already is told to come again."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    waiting: int = 0

    async def made(self, make: Callable[[Request], Response], request: Request) -> Response:
        if self.waiting >= _MOST_WAITING:
            return PlainTextResponse("too many pages are asked for\n", 503, {"Retry-After": "1"})
        self.waiting += 1
        try:
            async with self.room:
                if await request.is_disconnected():
                    return Response(status_code=400)
                return await _beside(make, request)
        finally:
            self.waiting -= 1


async def _beside(make: Callable[[Request], Response], request: Request) -> Response:
    """In a thread that nobody waits for when the server ends, as it would for one of the loop's own."""
    told: Future[Response] = Future()
    told.set_running_or_notify_cancel()

    def work() -> None:
        try:
            told.set_result(make(request))
        except Exception as error:
            told.set_exception(error)

    threading.Thread(target=work, name="page", daemon=True).start()
    return await asyncio.wrap_future(told)


def application(
    pages: Mapping[str, Callable[[Request], Response]],
    failed: Callable[[Request, int, str], Response] | None = None,
) -> Starlette:
    """pages: by path, as Starlette writes paths. failed: the page that tells of an error."""
    desk = Desk()

    def endpoint(make: Callable[[Request], Response]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return await desk.made(make, request)

        return answer

    def told(request: Request, status: int, text: str) -> Response:
        if failed is None:
            return PlainTextResponse(f"{text}\n", status)
        return failed(request, status, text)

    def ours(request: Request, error: Exception) -> Response:
        # A wrong reference is the caller's, such as an id that no run has; all else is the store's.
        return told(request, 404 if type(error) is UsageError else 503, str(error))

    def other(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        bare = f"/{request.url.path.strip('/')}"
        if bare in pages and bare != request.url.path:
            # Relative: nobody here knows a proxy's name.
            return RedirectResponse(str(URL(bare).replace(query=request.url.query)))
        return told(request, status, "there is no such page" if status == 404 else "a bug of ours")

    made = Starlette(
        routes=[Route(path, endpoint(make)) for path, make in pages.items()],
        exception_handlers={WirespeedError: ours, HTTPException: other, 500: other},
    )
    made.router.redirect_slashes = False
    return made
