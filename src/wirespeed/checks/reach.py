"""What nodes saw when they knocked at each other: shut ports, lost large packets, clocks apart.

Each node looks at a few others (`wirespeed.rank.echo_server`), so that the cost does not grow with the
world; a fault of one pair that did not look at each other is found by `wirespeed locate`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.checks.per_node import worded
from wirespeed.model.records import Finding, Subject, World
from wirespeed.model.units import format_duration

CLOCK_LIMIT_S = 0.1
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class _Edge:
    """What `source` saw of another node."""

    source: str
    peer: dict[str, Any]

    @property
    def target(self) -> str:
        return str(self.peer["host"])

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target


Bad = Callable[[_Edge], bool]


def reach_findings(world: World) -> list[Finding]:
    """NET-004 to NET-007; pure. Nothing for a world without nodes."""
    if not world.nodes:
        return []
    edges = [_Edge(node.host, peer) for node in world.nodes for peer in node.peers]
    return [
        *_reach(world, edges),
        *_packets(world, edges),
        *_clocks(world, edges),
        *_names(world, edges),
    ]


def _unchecked(world: World, id: str, title: str, why: str = "") -> Finding:
    because = why or ("one node" if len(world.nodes) == 1 else "no node knocked at another")
    return Finding(id=id, status="not_checked", title=title, because=because)


# NET-004.


def _reach(world: World, edges: Sequence[_Edge]) -> list[Finding]:
    # A node that announces its loopback address is another finding's (NET-001).
    asked = [edge for edge in edges if not edge.peer["address"].startswith("127.")]
    shut = [edge for edge in asked if edge.peer["tcp"]]
    if not asked:
        return [_unchecked(world, "NET-004", "ports between nodes not checked")]
    if not shut:
        return [
            Finding(
                id="NET-004",
                status="pass",
                title=f"{_nodes(asked)} nodes can connect to each other ({len(asked)} connections, "
                "at free ports)",
            )
        ]
    found = []
    inward = _all_bad(asked, shut, lambda edge: edge.target)
    for host in inward:
        found.append(_shut_in(host, [edge for edge in shut if edge.target == host]))
    rest = [edge for edge in shut if edge.target not in inward]
    outward = _all_bad(asked, rest, lambda edge: edge.source)
    for host in outward:
        found.append(_shut_out(host, [edge for edge in rest if edge.source == host]))
    found += [_shut_between(edge) for edge in rest if edge.source not in outward]
    return found


def _all_bad(
    asked: Iterable[_Edge], bad: Iterable[_Edge], end: Callable[[_Edge], str]
) -> list[str]:
    """Hosts of which every connection at that end is bad."""
    total, wrong = Counter(map(end, asked)), Counter(map(end, bad))
    return sorted(host for host in wrong if wrong[host] == total[host])


_OPEN = "allow all TCP ports between the nodes (security group, firewalld, nftables, NetworkPolicy)"
_JOIN = "the world cannot be joined: gloo waits 50 s for its connections, then every rank raises"


def _shut_in(host: str, edges: Sequence[_Edge]) -> Finding:
    peer = edges[0].peer
    return worded(
        id="NET-004",
        status="fail",
        title=f"{host}: other nodes cannot connect to its ports",
        subject=Subject("node", host),
        saw=f"{_sources(edges)} -> {host} at {peer['address']}:{peer['port']}: {peer['tcp']}",
        expected="an answer: the node listens there on all its addresses",
        because=_why_shut(peer["tcp"]),
        costs=_JOIN,
        fix=_OPEN,
        next=f"on {host}: nft list ruleset; iptables -S",
        evidence=tuple(_told(edge) for edge in edges),
    )


def _shut_out(host: str, edges: Sequence[_Edge]) -> Finding:
    targets = ", ".join(edge.target for edge in edges[:_SHOWN])
    return worded(
        id="NET-004",
        status="fail",
        title=f"{host}: it cannot connect to other nodes' ports",
        subject=Subject("node", host),
        saw=f"{host} -> {targets}: {edges[0].peer['tcp']}; other nodes can connect to them",
        expected="an answer: those nodes listen there on all their addresses",
        because="a firewall lets only some ports out of this node",
        costs=_JOIN,
        fix=_OPEN,
        next=f"on {host}: nft list ruleset; iptables -S",
        evidence=tuple(_told(edge) for edge in edges),
    )


def _shut_between(edge: _Edge) -> Finding:
    return worded(
        id="NET-004",
        status="fail",
        title=f"{edge.source} cannot connect to {edge.target}, which others reach",
        subject=Subject("link", f"{edge.source} -> {edge.target}"),
        saw=_told(edge),
        expected="an answer, as other nodes get one",
        because="a rule or a route for this pair of nodes",
        costs=_JOIN,
        fix=_OPEN,
        next=f"on {edge.source}: ip route get {edge.peer['address']}",
    )


def _why_shut(said: str) -> str:
    if "refused" in said:
        return "a firewall rejects the port, or that address leads to another machine"
    if "another" in said:
        return "that address leads to another machine"
    return "a firewall or security group drops what comes to other ports than the master's"


def _told(edge: _Edge) -> str:
    peer = edge.peer
    return f"{edge.source} -> {edge.target} ({peer['address']}:{peer['port']}): {peer['tcp']}"


def _sources(edges: Sequence[_Edge]) -> str:
    more = len(edges) - _SHOWN
    text = ", ".join(edge.source for edge in edges[:_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _nodes(edges: Iterable[_Edge]) -> int:
    return len({host for edge in edges for host in edge.ends})


# NET-005.


def _packets(world: World, edges: Sequence[_Edge]) -> list[Finding]:
    known = [edge for edge in edges if "passes" in edge.peer]
    if not known:
        why = next((edge.peer["why"] for edge in edges if "why" in edge.peer), "")
        return [_unchecked(world, "NET-005", "packet size between nodes not checked", why)]
    bad = [edge for edge in known if edge.peer["passes"] < edge.peer["mtu"]]
    if bad:
        return [_lossy(host, touched) for host, touched in _blamed(bad)]
    sizes = sorted({edge.peer["mtu"] for edge in known})
    return [
        Finding(
            id="NET-005",
            status="pass",
            title=f"packets of full size ({', '.join(map(str, sizes))} bytes) pass between "
            f"{_nodes(known)} nodes",
        )
    ]


def _blamed(bad: Sequence[_Edge]) -> list[tuple[str, list[_Edge]]]:
    """Hosts that explain all bad edges, those with most first; a lone edge is told as a link."""
    left, found = list(bad), []
    while left:
        counts = Counter(host for edge in left for host in edge.ends)
        (host, most), *others = counts.most_common(2)
        touched = [edge for edge in left if host in edge.ends]
        alone = most == 1 or (others and others[0][1] == most and len(counts) == 2)
        found.append((" <-> ".join(sorted(touched[0].ends)) if alone else host, touched))
        left = [edge for edge in left if edge not in touched]
    return found


def _lossy(name: str, edges: Sequence[_Edge]) -> Finding:
    edge = min(edges, key=lambda one: one.peer["passes"])
    peer, link = edge.peer, " <-> " in name
    size = peer["passes"]
    return worded(
        id="NET-005",
        status="fail",
        title=f"{name}: packets of more than {size} bytes do not arrive",
        subject=Subject("link" if link else "node", name),
        saw=f"{_pair(edge)}: {size} bytes pass, {peer['mtu']} do not"
        + (f" (and so on {len(edges) - 1} more path(s))" if len(edges) > 1 else ""),
        expected=f"{peer['mtu']} bytes, the MTU of {edge.source}'s interface",
        fix=f"set one MTU everywhere on the way, or {size} on all hosts: ip link set DEV mtu {size}",
        next=f"on {edge.source}: ping -M do -s {peer['mtu'] - 28} {peer['address']}",
        evidence=tuple(
            f"{_pair(one)}: {one.peer['passes']} of {one.peer['mtu']} bytes" for one in edges
        ),
    )


def _pair(edge: _Edge) -> str:
    return f"{edge.source} -> {edge.target}"


# NET-006.


def _clocks(world: World, edges: Sequence[_Edge]) -> list[Finding]:
    known = [edge for edge in edges if "clock_offset_s" in edge.peer]
    # The node at whose clock most others looked, which is one for all (`wirespeed.rank.echo_server`).
    seen = Counter(edge.target for edge in known)
    first = max(seen, key=lambda host: (seen[host], host == world.nodes[0].host), default="")
    ahead = {
        edge.source: (-edge.peer["clock_offset_s"], edge.peer["clock_error_s"])
        for edge in known
        if edge.target == first
    }
    if not ahead:
        why = next((edge.peer["why"] for edge in edges if "why" in edge.peer), "")
        return [_unchecked(world, "NET-006", "clocks of the nodes not compared", why)]
    ahead[first] = 0.0, 0.0
    middle, doubt = sorted(ahead.values())[(len(ahead) - 1) // 2]
    found = [
        _wrong_clock(host, offset - middle, error + doubt, len(ahead))
        for host, (offset, error) in ahead.items()
        if abs(offset - middle) - error - doubt > CLOCK_LIMIT_S
    ]
    if found:
        return found
    most = max(abs(offset - middle) + error + doubt for offset, error in ahead.values())
    title = f"clocks of {len(ahead)} nodes agree within {format_duration(most)}"
    return [Finding(id="NET-006", status="pass", title=title)]


def _wrong_clock(host: str, offset: float, error: float, nodes: int) -> Finding:
    way = "ahead of" if offset > 0 else "behind"
    return worded(
        id="NET-006",
        status="warn",
        title=f"{host}: its clock is {format_duration(abs(offset))} {way} the others",
        subject=Subject("node", host),
        saw=f"{format_duration(abs(offset))} {way} the middle of {nodes} nodes, "
        f"known within {format_duration(error)}",
        expected=f"at most {format_duration(CLOCK_LIMIT_S)} apart"
        + ("; of two clocks either may be the wrong one" if nodes == 2 else ""),
        next=f"on {host}: timedatectl; chronyc tracking",
    )


# NET-007.


def _names(world: World, edges: Sequence[_Edge]) -> list[Finding]:
    asked = [edge for edge in edges if "resolves" in edge.peer]
    if not asked:
        return [_unchecked(world, "NET-007", "names of other nodes not looked up")]
    lost = [edge for edge in asked if not edge.peer["resolves"]]
    if lost == asked:
        why = "no node can look up another by name, so names are not used here"
        return [_unchecked(world, "NET-007", "names of other nodes not checked", why)]
    wrong = [edge for edge in asked if edge.peer["resolves"] and _elsewhere(edge.peer)]
    if lost or wrong:
        hosts = dict.fromkeys(edge.source for edge in (*lost, *wrong))
        return [
            _bad_names(host, [e for e in (*lost, *wrong) if e.source == host]) for host in hosts
        ]
    title = f"names of other nodes lead to them on {len({e.source for e in asked})} nodes"
    return [Finding(id="NET-007", status="pass", title=title)]


def _elsewhere(peer: dict[str, Any]) -> bool:
    """The name leads to the loopback, and so to the node that asks, where the other is elsewhere."""
    if str(peer.get("address", "")).startswith("127."):
        return False  # two of a launcher's nodes on one machine
    return all(str(address).startswith("127.") for address in peer["resolves"])


def _found(peer: dict[str, Any]) -> str:
    return ", ".join(peer["resolves"]) or str(peer.get("resolve_error") or "nothing")


def _bad_names(host: str, edges: Sequence[_Edge]) -> Finding:
    said = [f"{edge.target} -> {_found(edge.peer)}" for edge in edges]
    return worded(
        id="NET-007",
        status="warn",
        title=f"{host}: cannot look up {edges[0].target}"
        + (f" and {len(edges) - 1} more node(s)" if len(edges) > 1 else ""),
        subject=Subject("node", host),
        saw="; ".join(said[:_SHOWN]),
        expected=f"{edges[0].target} -> {edges[0].peer['address']}",
        next=f"on {host}: getent hosts {edges[0].target}",
        evidence=tuple(said),
    )
