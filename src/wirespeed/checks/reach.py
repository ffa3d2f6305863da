"""What nodes saw when they knocked at each other: shut ports, lost large packets, clocks apart.

Each node looks at a few others (`wirespeed.rank.echo_server`), so that the cost does not grow with the
world; a fault of one pair that did not look at each other is found by `wirespeed locate`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from wirespeed.checks.registry import absent, not_applicable, tell
from wirespeed.model.records import Finding, Subject, World
from wirespeed.model.units import format_duration, listed

CLOCK_LIMIT_S = 0.1
_SHOWN = 4

Edge = dict[str, Any]
"""What one node, the `source`, saw of another, the `host`."""


def reach_findings(world: World) -> list[Finding]:
    """NET-004 to NET-007; pure. Nothing for a world without nodes."""
    if not world.nodes:
        return []
    edges = [{"source": node.host, **peer} for node in world.nodes for peer in node.peers]
    return [
        *_reach(world, edges),
        *_packets(world, edges),
        *_clocks(world, edges),
        *_names(world, edges),
    ]


def _unchecked(world: World, id: str, title: str, why: str = "") -> list[Finding]:
    if len(world.nodes) == 1:
        return [not_applicable(id, _ABOUT[id], "one node")]
    because = why or "this command makes no test connections between nodes"
    return [absent(id, title, because)]


_ABOUT = {
    "NET-004": "ports between nodes",
    "NET-005": "packet size between nodes",
    "NET-006": "clocks of the nodes",
    "NET-007": "names of other nodes",
}
"""By id, what is looked at."""


def _why(edges: Iterable[Edge]) -> str:
    return next((edge["why"] for edge in edges if "why" in edge), "")


# NET-004.


def _reach(world: World, edges: Sequence[Edge]) -> list[Finding]:
    # A node that announces its loopback address is another finding's (NET-001).
    asked = [edge for edge in edges if not edge["address"].startswith("127.")]
    shut = [edge for edge in asked if edge["tcp"]]
    if not asked:
        return _unchecked(world, "NET-004", "ports between nodes not checked")
    if not shut:
        return [tell("NET-004", "good", nodes=_nodes(asked), connections=len(asked))]
    inward = _all_bad(asked, shut, "host")
    found = [
        _shut(host, "shut in", [edge for edge in shut if edge["host"] == host]) for host in inward
    ]
    rest = [edge for edge in shut if edge["host"] not in inward]
    outward = _all_bad(asked, rest, "source")
    found += [
        _shut(host, "shut out", [edge for edge in rest if edge["source"] == host])
        for host in outward
    ]
    between = [edge for edge in rest if edge["source"] not in outward]
    return found + [
        tell(
            "NET-004",
            "shut between",
            subject=Subject("link", _path(edge)),
            saw=_told(edge),
            edge=edge,
        )
        for edge in between
    ]


def _all_bad(asked: Iterable[Edge], bad: Iterable[Edge], end: str) -> list[str]:
    """Hosts of which every connection at that end is bad."""
    total, wrong = (Counter(edge[end] for edge in edges) for edges in (asked, bad))
    return sorted(host for host in wrong if wrong[host] == total[host])


def _shut(host: str, case: str, edges: Sequence[Edge]) -> Finding:
    """One node that no other reaches, or that reaches no other."""
    why = {"because": _why_shut(edges[0]["tcp"])} if case == "shut in" else {}
    return tell(
        "NET-004",
        case,
        subject=Subject("node", host),
        evidence=map(_told, edges),
        host=host,
        first=edges[0],
        sources=listed([edge["source"] for edge in edges], _SHOWN),
        targets=", ".join(edge["host"] for edge in edges[:_SHOWN]),
        **why,
    )


def _why_shut(said: str) -> str:
    if "refused" in said:
        return "a firewall rejects the port, or that address leads to another machine"
    if "another" in said:
        return "that address leads to another machine"
    return "a firewall or security group drops what comes to other ports than the master's"


def _path(edge: Edge) -> str:
    return f"{edge['source']} -> {edge['host']}"


def _told(edge: Edge) -> str:
    return f"{_path(edge)} ({edge['address']}:{edge['port']}): {edge['tcp']}"


def _nodes(edges: Iterable[Edge]) -> int:
    return len({host for edge in edges for host in (edge["source"], edge["host"])})


# NET-005.


def _packets(world: World, edges: Sequence[Edge]) -> list[Finding]:
    known = [edge for edge in edges if "passes" in edge]
    if not known:
        return _unchecked(world, "NET-005", "packet size between nodes not checked", _why(edges))
    bad = [edge for edge in known if edge["passes"] < edge["mtu"]]
    if bad:
        return [_lossy(host, touched) for host, touched in _blamed(bad)]
    sizes = ", ".join(str(size) for size in sorted({edge["mtu"] for edge in known}))
    return [tell("NET-005", "good", sizes=sizes, nodes=_nodes(known))]


def _blamed(bad: Sequence[Edge]) -> list[tuple[str, list[Edge]]]:
    """Hosts that explain all bad edges, those with most first; a lone edge is told as a link."""
    left, found = list(bad), []
    while left:
        counts = Counter(host for edge in left for host in (edge["source"], edge["host"]))
        (host, most), *others = counts.most_common(2)
        touched = [edge for edge in left if host in (edge["source"], edge["host"])]
        alone = most == 1 or (others and others[0][1] == most and len(counts) == 2)
        link = " <-> ".join(sorted((touched[0]["source"], touched[0]["host"])))
        found.append((link if alone else host, touched))
        left = [edge for edge in left if edge not in touched]
    return found


def _lossy(name: str, edges: Sequence[Edge]) -> Finding:
    worst = min(edges, key=lambda one: one["passes"])
    return tell(
        "NET-005",
        "lossy",
        subject=Subject("link" if " <-> " in name else "node", name),
        evidence=(f"{_path(one)}: {one['passes']} of {one['mtu']} bytes" for one in edges),
        name=name,
        worst=worst,
        path=_path(worst),
        more=f" (and so on {len(edges) - 1} more path(s))" if len(edges) > 1 else "",
        payload=worst["mtu"] - 28,
    )


# NET-006.


def _clocks(world: World, edges: Sequence[Edge]) -> list[Finding]:
    known = [edge for edge in edges if "clock_offset_s" in edge]
    # The node at whose clock most others looked, which is one for all (`wirespeed.rank.echo_server`).
    seen = Counter(edge["host"] for edge in known)
    first = max(seen, key=lambda host: (seen[host], host == world.nodes[0].host), default="")
    ahead = {
        edge["source"]: (-edge["clock_offset_s"], edge["clock_error_s"])
        for edge in known
        if edge["host"] == first
    }
    if not ahead:
        return _unchecked(world, "NET-006", "clocks of the nodes not compared", _why(edges))
    ahead[first] = 0.0, 0.0
    middle, doubt = sorted(ahead.values())[(len(ahead) - 1) // 2]
    found = [
        _wrong_clock(host, offset - middle, error + doubt, len(ahead))
        for host, (offset, error) in ahead.items()
        if abs(offset - middle) - error - doubt > CLOCK_LIMIT_S
    ]
    most = max(abs(offset - middle) + error + doubt for offset, error in ahead.values())
    return found or [tell("NET-006", "good", nodes=len(ahead), most=format_duration(most))]


def _wrong_clock(host: str, offset: float, error: float, nodes: int) -> Finding:
    return tell(
        "NET-006",
        "apart",
        subject=Subject("node", host),
        host=host,
        offset=format_duration(abs(offset)),
        way="ahead of" if offset > 0 else "behind",
        nodes=nodes,
        error=format_duration(error),
        limit=format_duration(CLOCK_LIMIT_S),
        which="; of two clocks either may be the wrong one" if nodes == 2 else "",
    )


# NET-007.


def _names(world: World, edges: Sequence[Edge]) -> list[Finding]:
    asked = [edge for edge in edges if "resolves" in edge]
    if not asked:
        return _unchecked(world, "NET-007", "names of other nodes not looked up")
    lost = [edge for edge in asked if not edge["resolves"]]
    if lost == asked:
        why = "no node can look up another by name, so names are not used here"
        return _unchecked(world, "NET-007", "names of other nodes not checked", why)
    bad = lost + [edge for edge in asked if edge["resolves"] and _elsewhere(edge)]
    if bad:
        hosts = dict.fromkeys(edge["source"] for edge in bad)
        return [_bad_names(host, [one for one in bad if one["source"] == host]) for host in hosts]
    return [tell("NET-007", "good", nodes=len({edge["source"] for edge in asked}))]


def _elsewhere(edge: Edge) -> bool:
    """The name leads to the loopback, and so to the node that asks, where the other is elsewhere."""
    if str(edge.get("address", "")).startswith("127."):
        return False  # two of a launcher's nodes on one machine
    return all(str(address).startswith("127.") for address in edge["resolves"])


def _bad_names(host: str, edges: Sequence[Edge]) -> Finding:
    said = [
        f"{edge['host']} -> "
        + (", ".join(edge["resolves"]) or str(edge.get("resolve_error") or "nothing"))
        for edge in edges
    ]
    return tell(
        "NET-007",
        "lost",
        subject=Subject("node", host),
        evidence=said,
        host=host,
        first=edges[0],
        more=f" and {len(edges) - 1} more node(s)" if len(edges) > 1 else "",
        saw="; ".join(said[:_SHOWN]),
    )
