"""Which page lies at which path; and what Prometheus scrapes: the newest run of each command."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from wirespeed.errors import WirespeedError
from wirespeed.model.records import Run
from wirespeed.runs.index import RunFilter
from wirespeed.runs.source import folder_of
from wirespeed.runs.store import load
from wirespeed.site import live_pages, node_pages, run_pages, trend_pages
from wirespeed.site.app import Answer, application
from wirespeed.site.framing import Site, message, static
from wirespeed.views.prometheus import render_all, render_states
from wirespeed.views.text import Style

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_LOOKED_AT = 2000
"""Newest runs in which the last of each command is looked for."""


def metrics(site: Site, _: Request) -> Response:
    """The state of each node, and the newest runs as `wirespeed report -o prometheus` writes them; a
    fault that was injected on purpose alarms nobody."""
    with site.index() as index:
        rows = index.runs(RunFilter(finished=True, last=_LOOKED_AT))
        nodes = site.nodes(index).nodes
    newest = {row.command: row.run for row in rows if not row.damaged and not row.injected}
    text, whole = _told(tuple(newest.values()))
    if not whole:
        _told.cache_clear()  # what could not be read, as of a store that was busy, is tried again
    states = render_states({node.host: node.said or "unknown" for node in nodes}).encode()
    return Answer(text + states, media_type=METRICS)


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


_PAGES: Mapping[str, Callable[[Site, Request], Response]] = {
    "/": node_pages.overview,
    "/nodes": node_pages.nodes_page,
    "/nodes/": node_pages.nodes_page,
    "/nodes/{host:path}": node_pages.node_page,
    "/lemons": node_pages.lemons_page,
    "/runs": run_pages.runs_page,
    "/runs/{run}": run_pages.run_page,
    "/compare": run_pages.compare_page,
    "/trends": trend_pages.trends_page,
    "/live": live_pages.live_page,
    "/live/{run}": live_pages.job_page,
    "/metrics": metrics,
    "/static/{name}": static,
}


def site_application(site: Site) -> Starlette:
    """All pages of a site."""

    def failed(_: Request, status: int, text: str) -> Response:
        return message(site, status, text)

    return application({path: partial(page, site) for path, page in _PAGES.items()}, failed)
