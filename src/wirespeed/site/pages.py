"""Which page lies at which path."""

from collections.abc import Callable, Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from wirespeed.site import lemon_pages, live_pages, metrics, node_pages, run_pages, trend_pages
from wirespeed.site.app import application
from wirespeed.site.framing import Site, message, static

_PAGES: Mapping[str, Callable[[Site, Request], Response]] = {
    "/": node_pages.overview,
    "/nodes": node_pages.nodes_page,
    "/nodes/": node_pages.nodes_page,
    "/nodes/{host:path}": node_pages.node_page,
    "/lemons": lemon_pages.lemons_page,
    "/runs": run_pages.runs_page,
    "/runs/{run}": run_pages.run_page,
    "/compare": run_pages.compare_page,
    "/trends": trend_pages.trends_page,
    "/live": live_pages.live_page,
    "/live/{run}": live_pages.job_page,
    "/metrics": metrics.metrics,
    "/static/{name}": static,
}


def site_application(site: Site) -> Starlette:
    """All pages of a site."""

    def failed(_: Request, status: int, text: str) -> Response:
        return message(site, status, text)

    return application({path: partial(page, site) for path, page in _PAGES.items()}, failed)
