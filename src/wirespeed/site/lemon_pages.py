"""Nodes that fail jobs more often than chance explains."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from wirespeed.model.units import counted
from wirespeed.site.framing import Site, framed, made
from wirespeed.site.links import node_link
from wirespeed.views.html.parts import html_table
from wirespeed.views.text import Grid

if TYPE_CHECKING:
    from wirespeed.fleet.lemons import Judged, Suspect

_AGAIN_S = 2.0


def lemons_page(site: Site, _: Request) -> Response:
    """The accused and the suspects, the surest first."""
    with site.index() as index:
        found = site.lemons.of(index, site.index)
        hosts = {name: node.host for node in site.nodes(index).nodes for name in names(node.host)}
    accused = [one for one in found.suspects if one.accused] if found else []
    title = f"{counted(len(accused), 'lemon')}" if accused else "Nobody is accused"
    part = made(
        "lemons.html",
        title=title if found else "Lemons",
        found=found,
        table=_table(found, hosts) if found and found.suspects else "",
    )
    return framed(site, "Lemons", "Lemons", [part], again_s=0.0 if found else _AGAIN_S)


def names(host: str) -> set[str]:
    """By which it may be called: Slurm leaves out the domain."""
    return {host, host.partition(".")[0]}


def _table(found: "Judged", hosts: Mapping[str, str]) -> str:
    """hosts: of the nodes that have a page, by name."""
    grid = Grid.of("<node|<said|<failed|by chance|evidence|<since|<remark")
    links = {}
    for n, one in enumerate(found.suspects):
        word, color = ("LEMON", "red") if one.accused else ("suspect", "yellow")
        rivals = ", ".join(one.rivals[:4])
        remark = f"or {rivals}: they ran the same jobs" if rivals else ""
        since = datetime.fromtimestamp(one.since_s, UTC).date().isoformat()
        failed = f"{one.failures} of {counted(one.jobs, 'job')}"
        figures = (f"{one.expected:.1f}", f"10^{one.evidence:.1f}")
        grid.add(one.node, word, failed, *figures, since, remark, color=color, at=1)
        if one.node in hosts:
            links[n, 0] = node_link(hosts[one.node])
    return html_table(grid, "nodes that fail jobs, the surest first", "lemons", links)


def said_of_jobs(found: "Judged | None", host: str) -> str:
    """What is known of the ends of that node's jobs; empty where nothing is remarkable."""
    for one in found.suspects if found else ():
        if one.node in names(host):
            return _words(one)
    return ""


def _words(one: "Suspect") -> str:
    word = "LEMON" if one.accused else "suspect"
    failed = f"{one.failures} of {counted(one.jobs, 'job')} failed"
    return f"{word}: {failed}, {one.expected:.1f} by chance"
