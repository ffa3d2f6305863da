"""What Prometheus scrapes: the newest run of each command."""

from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response

from wirespeed.errors import WirespeedError
from wirespeed.model.records import Run
from wirespeed.runs.index import RunFilter
from wirespeed.runs.source import folder_of
from wirespeed.runs.store import load
from wirespeed.site.app import Answer
from wirespeed.site.framing import Site
from wirespeed.views.prometheus import render_all
from wirespeed.views.text import Style

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_LOOKED_AT = 2000
"""Newest runs in which the last of each command is looked for."""


def metrics(site: Site, _: Request) -> Response:
    """As `wirespeed report -o prometheus` writes it; a fault that was acted out alarms nobody."""
    with site.index() as index:
        rows = index.runs(RunFilter(finished=True, last=_LOOKED_AT))
    newest = {row.command: row.run for row in rows if not row.damaged and not row.injected}
    text, whole = _told(tuple(newest.values()))
    if not whole:
        _told.cache_clear()  # what could not be read, as of a store that was busy, is tried again
    return Answer(text, media_type=METRICS)


@lru_cache(maxsize=1)
def _told(names: tuple[str, ...]) -> tuple[bytes, bool]:
    """(text, whether all were read). Runs that ended stay as they are, so most scrapes read none."""
    found: list[Run] = []
    for name in names:
        try:
            found.append(load(folder_of(name)))
        except WirespeedError:
            continue  # removed, or damaged since it was listed
    return render_all(found, Style()).encode(), len(found) == len(names)
