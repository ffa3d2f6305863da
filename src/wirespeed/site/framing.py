"""What all pages share: where the runs come from, the frame around a page, files of ours, links."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from wirespeed import __version__
from wirespeed.runs.source import StoredRuns
from wirespeed.site.app import Answer
from wirespeed.site.beside import Beside
from wirespeed.site.fleet import Fleet, whole
from wirespeed.views.html.parts import filled, plotly_script, source

if TYPE_CHECKING:
    from wirespeed.fleet.lemons import Judged

PACKAGE = "wirespeed.site"
PLACES = (
    ("Overview", "/"),
    ("Nodes", "/nodes"),
    ("Lemons", "/lemons"),
    ("Runs", "/runs"),
    ("Trends", "/trends"),
    ("Live", "/live"),
)
_FOREVER = "private, max-age=31536000, immutable"
_FILES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "site.css": (
        "text/css",
        lambda: source("style.css") + source("site.css", PACKAGE),
    ),
    "site.js": ("text/javascript", lambda: source("site.js", PACKAGE)),
    "page.js": ("text/javascript", lambda: source("page.js")),
    "draw.js": ("text/javascript", lambda: source("draw.js")),
    "plotly.js": ("text/javascript", plotly_script),
}


@dataclass(frozen=True, slots=True)
class Site:
    """What is served."""

    opened: Callable[..., AbstractContextManager[StoredRuns]]
    """Rows of the stored runs, for so many seconds; see `index`."""
    store: str
    """Where they are, in words."""
    fleet: Beside[Fleet] = field(default_factory=lambda: Beside(whole))
    """Asked for by `nodes`."""
    lemons: Beside["Judged"] = field(default_factory=lambda: Beside(_judged))

    def index(self) -> AbstractContextManager[StoredRuns]:
        """Rows of the stored runs, for one page: those of a moment ago while the states of a large fleet
        are found, since to look what has come takes long beside that."""
        return self.opened(seconds=0.0 if self.fleet.is_long else None)

    def nodes(self, index: StoredRuns) -> Fleet:
        """As they are now, or were a moment ago."""
        return self.fleet.of(index, self.index, here=True) or Fleet()


def _judged(index: StoredRuns) -> "Judged":
    from wirespeed.fleet.lemons import judged  # numpy, which no other page needs

    return judged(index, time.time())


@cache
def _file(name: str) -> tuple[str, bytes]:
    """(content type, content)."""
    kind, read = _FILES[name]
    return kind, read().encode()


def address(name: str) -> str:
    """Of a file of ours: another content has another address, so that it may be kept for ever."""
    return f"/static/{name}?{hashlib.sha256(_file(name)[1]).hexdigest()[:12]}"


def static(site: Site, request: Request) -> Response:
    """A file of ours; nothing of the request but the name of one chooses it."""
    name = request.path_params["name"]
    if name not in _FILES:
        return message(site, HTTPStatus.NOT_FOUND, "there is no such file")
    kind, content = _file(name)
    return Answer(content, media_type=kind, headers={"Cache-Control": _FOREVER})


def framed(
    site: Site,
    title: str,
    here: str,
    parts: Sequence[str],
    *,
    scripts: Sequence[str] = (),
    again_s: float = 0.0,
    status: int = HTTPStatus.OK,
) -> Response:
    """A whole page. here: which of `PLACES`; again_s: seconds after which a live page asks again."""
    text = filled(
        "frame.html",
        of=PACKAGE,
        title=title,
        here=here,
        places=PLACES,
        parts=parts,
        style=address("site.css"),
        scripts=[address(name) for name in ("site.js", *scripts)],
        again_s=again_s,
        store=site.store,
        now=datetime.now(UTC).isoformat(),
        version=__version__,
    )
    return Answer(text.encode(), status_code=status, media_type="text/html")


def message(site: Site, status: int, text: str, here: str = "") -> Response:
    """A page that tells why there is none."""
    said = {"kind": "warn", "head": f"{status}", "title": HTTPStatus(status).phrase, "text": text}
    part = filled("message.html", of=PACKAGE, **said)
    return framed(site, HTTPStatus(status).phrase, here, [part], status=status)


def made(template: str, /, **values: Any) -> str:
    """A part of a page, from a template of this package."""
    return filled(template, of=PACKAGE, **values)
