"""Who may read what: only GET, only by names that are ours, and by a token where one is asked for."""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Connection": "close",
}
"""Of every answer; one connection carries one request (`server.py`)."""


@dataclass(frozen=True, slots=True)
class Access:
    """The middleware in front of all pages."""

    app: ASGIApp
    loopback: bool
    """Whether only names of this machine's loopback, or of `names`, are ours: else a page elsewhere
    whose name was made to point here could read what is served (DNS rebinding)."""
    names: frozenset[str] = frozenset()
    """Host names by which the site's proxy, or people, call this server, in small letters."""
    token: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(scope) or self.app
        await answer(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return _refuse(405, "pages are read only", {"Allow": "GET, HEAD"})
        if not self._named(headers.getlist("host")):
            return _refuse(421, "not a name of this server; wirespeed serve --name NAME allows one")
        if self.token is not None and not _bears(headers.get("authorization", ""), self.token):
            asks = {"WWW-Authenticate": 'Basic realm="wirespeed, any user, the token as password"'}
            return _refuse(401, "a token is needed: as password, or as Bearer", asks)
        return None

    def _named(self, hosts: Sequence[str]) -> bool:
        if len(hosts) > 1:
            return False
        name = _name(hosts[0]) if hosts else ""
        if self.loopback and (name in ("localhost", "") or _is_loopback(name)):
            return True
        return name in self.names if self.loopback or self.names else True


def _refuse(status: int, why: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(f"{why}\n", status, headers)


def _name(host: str) -> str:
    """Of a Host header, without its port."""
    bare = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.split(":")[0]
    return bare.lower()


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _bears(authorization: str, token: bytes) -> bool:
    """`Bearer TOKEN`, as scrapers say it, or `Basic`, as browsers ask for a password."""
    scheme, _, said = authorization.partition(" ")
    told: Any = said.strip().encode()
    if scheme.lower() == "basic":
        try:
            told = base64.b64decode(told, validate=True).partition(b":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    # Digests are of one length, so that the comparison tells nothing of that of the token.
    one, other = (hashlib.sha256(text).digest() for text in (told, token))
    return hmac.compare_digest(one, other)
