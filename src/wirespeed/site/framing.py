"""What all pages share: where the runs come from, the frame around a page, files of ours; and what takes
long to find in the stored runs (`Beside`)."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from wirespeed import __version__
from wirespeed.errors import WirespeedError
from wirespeed.runs.index import RunFilter
from wirespeed.runs.source import StoredRuns
from wirespeed.site.app import Answer
from wirespeed.site.fleet import Fleet, whole
from wirespeed.views.html.parts import filled, plotly_script, source

if TYPE_CHECKING:
    from wirespeed.fleet.lemons import Judged

_FIRST_S, _WAIT_S, _SHARE = 0.3, 0.05, 0.2
_OLDEST_S = 60.0
_T = TypeVar("_T")
Opened = Callable[[], AbstractContextManager[StoredRuns]]


def version_of(index: StoredRuns) -> tuple[object, ...]:
    """Another one when a run has come or ended; when an older one has changed, a minute later."""
    newest = [(row.run, row.finished) for row in index.runs(RunFilter(last=1))]
    return (*newest, int(time.monotonic() / _OLDEST_S))


@dataclass(eq=False, slots=True)
class Beside(Generic[_T]):
    """The newest that is known; another is found in a thread, which pages hardly wait for."""

    find: Callable[[StoredRuns], _T]
    lock: threading.Lock = field(default_factory=threading.Lock)
    version: tuple[object, ...] = ()
    known: _T | None = None
    finding: threading.Thread | None = None
    next_s: float = 0.0
    """When it may be looked for again: that shall take a small share of the time."""
    took_s: float = 0.0
    """What it took the last time."""

    @property
    def is_long(self) -> bool:
        """Whether it is being found, which takes more than a moment."""
        return self.finding is not None and self.took_s > _FIRST_S

    def of(self, index: StoredRuns, opened: Opened, *, here: bool = False) -> _T | None:
        """What is known after a moment; None: nothing yet.

        opened: rows of the stored runs for the thread. here: where nothing is known it is found at once,
        and what reading the runs raises is raised.
        """
        version = version_of(index)
        with self.lock:
            if here and self.known is None:
                self._find(index, version)
            elif version != self.version and not self.finding and time.monotonic() > self.next_s:
                words = (opened, version)
                self.finding = threading.Thread(target=self._beside, args=words, daemon=True)
                self.finding.start()
            finding = self.finding
        if finding is not None:
            finding.join(_WAIT_S if self.known is not None else _FIRST_S)
        return self.known

    def _beside(self, opened: Opened, version: tuple[object, ...]) -> None:
        try:
            with suppress(WirespeedError), opened() as index:
                self._find(index, version)
        finally:
            self.finding = None

    def _find(self, index: StoredRuns, version: tuple[object, ...]) -> None:
        begun = time.monotonic()
        self.known, self.version = self.find(index), version
        self.took_s = time.monotonic() - begun
        self.next_s = time.monotonic() + self.took_s / _SHARE


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
