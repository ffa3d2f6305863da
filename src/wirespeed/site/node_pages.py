"""The overview, the nodes as a list, one node with all that happened to it, and lemons: nodes that fail
jobs more often than chance explains."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from wirespeed.errors import UsageError
from wirespeed.fleet.nodes import NodeEvent, NodeState, history
from wirespeed.model.records import Status
from wirespeed.model.units import counted
from wirespeed.model.verdicts import Standing, standing_of
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import NodeRow, RunRow
from wirespeed.site import fleet
from wirespeed.site.fleet import Group, News
from wirespeed.site.framing import Site, framed, made
from wirespeed.site.links import ago, node_link, query_link, run_link
from wirespeed.site.pictures import Point, lanes, moment
from wirespeed.site.run_pages import run_line
from wirespeed.views.html.parts import html_table
from wirespeed.views.text import Grid, kind_of

if TYPE_CHECKING:
    from wirespeed.fleet.lemons import Judged, Suspect

_MOST_NEWS, _MOST_FAULTS, _MOST_GROUPS, _RUNS = 10, 10, 24, 8
_PAGE = 100
_MANY_CELLS = 2000
"""Nodes above which their cells are small."""
_MOST_EVENTS = 300
_LONGEST = 200


def overview(site: Site, _: Request) -> Response:
    """How the fleet is, what changed since yesterday, every node as a cell, the newest runs."""
    now = datetime.now(UTC)
    with site.index() as index:
        whole = site.nodes(index)
        nodes, groups = whole.nodes, whole.groups
        shown = [fleet.checked(index, one) for one in groups[:_MOST_GROUPS]]
        rows = index.runs(RunFilter(last=_RUNS))
        failing = [node for node in nodes if node.said == "fail"]
        failing.sort(key=lambda node: node.since, reverse=True)
        faults = [
            _fault_line(node, fleet.reason(index, whole, node), now)
            for node in failing[:_MOST_FAULTS]
        ]
    changed = fleet.news(nodes, now)
    counts = Counter(node.said for node in nodes)
    part = made(
        "overview.html",
        title=_title(len(nodes), counts["fail"], counts["warn"]),
        states=[
            (*fleet.LOOKS[said], counts[said], query_link("/nodes", state=said or "unknown"))
            for said in fleet.ORDER
            if counts[said] or said in ("fail", "pass")
        ],
        news=[_news_line(one, now) for one in changed[:_MOST_NEWS]],
        more=len(changed) - _MOST_NEWS,
        faults=faults,
        more_faults=len(failing) - len(faults),
        groups=[_group_line(one, now) for one in shown],
        left=len(groups) - len(shown),
        cells=[
            (one.name, len(one.nodes), cells)
            for one, cells in zip(groups, whole.cells, strict=True)
        ],
        many=len(nodes) > _MANY_CELLS,
        rows=[run_line(row) for row in reversed(rows)],
    )
    return framed(site, "Overview", "Overview", [part])


def warm(site: Site) -> None:
    """Know the fleet before the first page is asked for. Raises what reading the store raises."""
    with site.index() as index:
        site.nodes(index)


def _title(nodes: int, failing: int, warned: int) -> str:
    if not nodes:
        return "No run has told of a node yet"
    of = counted(nodes, "node")
    if failing:
        return f"{failing:,} of {of} {'fail' if failing != 1 else 'fails'}"
    return f"None of {of} fails" + (f", {warned:,} with warnings" if warned else "")


def _news_line(one: News, now: datetime) -> dict[str, Any]:
    mark = {"fail": "✗", "warn": "!", "pass": "✓"}.get(one.kind, "+")
    host = one.node.host
    told = {"kind": one.kind, "mark": mark, "host": host, "text": one.text, "at": one.at}
    links = {"link": node_link(host), "run": run_link(one.node.latest.run)}
    return {**told, **links, "when": ago(moment(one.at), now)}


def _fault_line(node: NodeState, reason: str, now: datetime) -> dict[str, Any]:
    since = ago(moment(node.since), now).removesuffix(" ago")
    told = {"host": node.host, "link": node_link(node.host), "at": node.since}
    return {**told, "reason": reason, "when": f"for {since}"}


def _group_line(one: Group, now: datetime) -> dict[str, Any]:
    row = one.check
    return {
        "name": one.name,
        "nodes": len(one.nodes),
        "counts": [
            (fleet.LOOKS[said][0], f"{one.counts[said]:,} {fleet.LOOKS[said][1]}")
            for said in fleet.ORDER
            if one.counts[said]
        ],
        "verdict": one.verdict,
        "kind": kind_of(one.verdict),
        "link": run_link(row.run) if row else "",
        "checked": f"check of {counted(row.nodes, 'node')}" if row else "no check yet",
        "said": _said(row, now) if row else "",
    }


def _said(row: RunRow, now: datetime) -> str:
    acted = "a fault was acted out: " if row.injected else ""
    return f"{acted}{row.verdict}, {ago(moment(row.started), now)}"


def nodes_page(site: Site, request: Request) -> Response:
    """All nodes, the worst first, with a search by name and state."""
    now = datetime.now(UTC)
    name = request.query_params.get("name", "")[:_LONGEST]
    asked = request.query_params.get("state", "")
    number = request.query_params.get("page", "1")
    page = max(1, int(number)) if number.isascii() and number.isdigit() and len(number) < 6 else 1
    said = {"unknown": ""}.get(asked, asked)
    with site.index() as index:
        whole = site.nodes(index)
        found = [
            node
            for node in whole.nodes
            if name.lower() in node.host.lower() and (not asked or node.said == said)
        ]
        found.sort(key=lambda node: fleet.ORDER.index(node.said))
        shown = found[_PAGE * (page - 1) : _PAGE * page]
        why = [
            fleet.reason(index, whole, one) if one.said in ("fail", "warn") else "" for one in shown
        ]
    links = {"name": name, "state": asked}
    part = made(
        "nodes_list.html",
        name=name,
        state=asked,
        states={"": "any", **{one or "unknown": fleet.LOOKS[one][1] for one in fleet.ORDER}},
        many=len(found),
        rows=[_node_line(one, text, now) for one, text in zip(shown, why, strict=True)],
        newer=query_link("/nodes", **links, page=page - 1) if page > 1 else "",
        older=query_link("/nodes", **links, page=page + 1) if len(found) > _PAGE * page else "",
    )
    return framed(site, "Nodes", "Nodes", [part])


def _node_line(node: NodeState, why: str, now: datetime) -> dict[str, Any]:
    row = node.latest
    return {
        "host": node.host,
        "link": node_link(node.host),
        "kind": fleet.LOOKS[node.said][0],
        "word": fleet.LOOKS[node.said][1],
        "since": node.since[:10],
        "seen": ago(moment(node.last), now),
        "runs": node.runs,
        "blamed": node.blamed or "",
        "flaps": node.flaps or "",
        "restarts": node.restarts or "",
        "gpus": f"{row.gpus} × {row.gpu}".replace("NVIDIA ", "") if row.gpus else "",
        "reason": why,
    }


def node_page(site: Site, request: Request) -> Response:
    """One node; UsageError for one that no run knows."""
    host, now = request.path_params["host"], datetime.now(UTC)
    with site.index() as index:
        found = history(index, host)
        rows = index.runs(RunFilter(node=host, last=_RUNS)) if found else []
        marks = index.nodes(node=host) if found else []
    if found is None:
        raise UsageError(f"no stored run knows a node {host[:80]!r}", next="wirespeed nodes list")
    state = found.state
    part = made(
        "node.html",
        host=host,
        kind=fleet.LOOKS[state.said][0],
        word=fleet.LOOKS[state.said][1],
        since=f"since {state.since[:16].replace('T', ' ')} UTC" if state.since else "",
        facts=list(_facts(state)),
        jobs=said_of_jobs(site.lemons.known, host),
        picture=lanes(f"what happened to {host}", _lanes(marks, found.events), now),
        events=_events(found.events),
        left=max(0, len(found.events) - _MOST_EVENTS),
        rows=[run_line(row) for row in reversed(rows)],
        runs=query_link("/runs", node=host),
    )
    return framed(site, host, "Nodes", [part])


def _facts(state: NodeState) -> Iterator[tuple[str, str]]:
    row = state.latest
    yield "in service since", state.first[:10]
    yield "last seen", f"{state.last[:16].replace('T', ' ')} UTC, by {row.command}"
    yield "runs", f"{state.runs:,}"
    yield (
        "last 30 days",
        f"blamed {state.blamed}×, flapped {state.flaps}×, restarted {state.restarts}×",
    )
    yield "GPUs", f"{row.gpus} × {row.gpu}" if row.gpus else "none seen"
    for name, value in (
        ("driver", row.driver),
        ("CUDA", row.cuda),
        ("NCCL", row.nccl),
        ("torch", row.torch),
        ("kernel", row.kernel),
        ("system", row.os),
        ("zone", row.zone),
        ("instance", row.instance),
    ):
        if value:
            yield name, value


_LANES = {
    "blamed": "blamed",
    "restart": "restarted",
    "machine": "restarted",
    "version": "versions",
    "ecc": "errors",
    "xid": "errors",
}


def _lanes(rows: Sequence[NodeRow], events: Sequence[NodeEvent]) -> list[tuple[str, list[Point]]]:
    """Runs, then what happened, by kind; a kind that never happened has no line."""
    found: dict[str, list[Point]] = {"runs": [_run_point(row) for row in rows]}
    for one in events:
        if lane := _LANES.get(one.kind, ""):
            kind = one.status or ("fail" if lane == "errors" else "")
            label = f"{one.at[:16].replace('T', ' ')} {one.text}"
            point = Point(at=moment(one.at), label=label, link=run_link(one.run), kind=kind)
            found.setdefault(lane, []).append(point)
    return list(found.items())


_DOTS: dict[Standing, Status] = {"good": "pass", "measured": "measured"}
"""Colours of runs that say nothing of this node itself; a failure of others is not this node's."""


def _run_point(row: NodeRow) -> Point:
    kind = row.status or _DOTS.get(standing_of(row.verdict), "not_checked")
    label = f"{row.started[:16].replace('T', ' ')} {row.command}: {row.verdict}, {row.role}"
    return Point(at=moment(row.started), label=label, link=run_link(row.run), kind=kind)


def _events(events: Sequence[NodeEvent]) -> Markup:
    """The newest first."""
    shown = events[::-1][:_MOST_EVENTS]
    grid, links = Grid.of("<when (UTC)|<what|<run"), {}
    colors = {"fail": "red", "warn": "yellow", "pass": "green"}
    for n, one in enumerate(shown):
        cells = (one.at[:16].replace("T", " "), one.text, one.run.rpartition("-")[2])
        grid.add(*cells, color=colors.get(one.status, ""), at=1)
        links[n, 2] = run_link(one.run)
    return html_table(grid, "all that happened, the newest first", "events", links)


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
