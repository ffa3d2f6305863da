"""NET-001 to NET-003: the interfaces that gloo and NCCL choose, and the settings that choose them.

They read the facts that `wirespeed.world.network.gather` notes.
"""

from collections.abc import Sequence
from typing import Any, Literal

from wirespeed.checks.interface_kinds import announces_loopback, choice_findings
from wirespeed.records import Finding, NodeFacts, Subject, World

__all__ = ["EXPLANATIONS", "interface_findings"]

EXPLANATIONS: dict[str, str] = {
    "NET-001": "Each node's own name leads to an address that other nodes can reach. Without "
    "GLOO_SOCKET_IFNAME, gloo tells the others the address that the host name resolves to. Debian "
    "and Ubuntu write 127.0.1.1 for it into /etc/hosts, and then the others connect to themselves: "
    "`Connection refused, remote=[127.0.1.1]`. Map the name to the node's address in /etc/hosts or "
    "DNS, or set GLOO_SOCKET_IFNAME.",
    "NET-002": "Settings that choose interfaces match something on every node. GLOO_SOCKET_IFNAME, "
    "NCCL_SOCKET_IFNAME, NCCL_IB_HCA, UCX_NET_DEVICES, TP_SOCKET_IFNAME and "
    "OMPI_MCA_btl_tcp_if_include are compared with the interfaces and RDMA devices of each node. "
    "gloo and NCCL end with an error where a name leads nowhere; other libraries lose a path. It "
    "warns where one value picks interfaces on different networks.",
    "NET-003": "The interface that carries training is a real one. A docker or libvirt bridge leads "
    "to no other node; a veth, a tunnel, a bond's member or a slow interface beside a fast one "
    "costs speed. In a container whose only interface is a veth, that is normal. Choose the right "
    "one with GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
}
"""What `--explain ID` says; the first sentence is the title of the check."""

_BREAKS = {
    "GLOO_SOCKET_IFNAME": "gloo ends with `Unable to find address for: {entry}`",
    "NCCL_SOCKET_IFNAME": "NCCL ends with `Bootstrap : no socket interface found`",
    "NCCL_IB_HCA": "NCCL uses sockets instead of RDMA: often ten times slower",
    "UCX_NET_DEVICES": "UCX goes without this device, or finds no transport at all",
    "TP_SOCKET_IFNAME": "torch.distributed.rpc cannot find its address; collectives do not use it",
    "OMPI_MCA_btl_tcp_if_include": "Open MPI ignores the entry, and its TCP may find no path",
}
"""What an entry that names nothing leads to."""


def interface_findings(world: World) -> list[Finding]:
    """NET-001 to NET-003; pure. A world without nodes has none."""
    if not world.nodes:
        return []
    many = len(world.nodes) > 1 or world.size > len(world.nodes[0].ranks)
    return [*_names(world, many), *_settings(world), *choice_findings(world, many)]


def _worse(
    id: str, status: Literal["warn", "fail"], node: NodeFacts, title: str, **said: Any
) -> Finding:
    return Finding(
        id=id,
        status=status,
        title=f"{node.host}: {title}",
        subject=Subject("node", node.host),
        next=f"wirespeed check --only {id}",
        **said,
    )


def _unchecked(id: str, title: str, because: str) -> Finding:
    return Finding(id=id, status="not_checked", title=title, because=because)


# NET-001: names.


def _names(world: World, many: bool) -> list[Finding]:
    if not many:
        title = "what the host name leads to not checked"
        return [_unchecked("NET-001", title, "one node: nothing has to reach it from outside")]
    found = [_named(node) for node in world.nodes]
    worse = [finding for finding in found if finding is not None]
    title = f"the name of each node leads to an address that others can reach ({len(found)} nodes)"
    return worse or [Finding(id="NET-001", status="pass", title=title)]


def _named(node: NodeFacts) -> Finding | None:
    """What is wrong with the address that gloo tells others; None: nothing."""
    facts = node.facts
    if "net.name" not in facts or "net.gloo.address" not in facts:
        why = node.unknown.get("net.interfaces", "not reported")
        return _unchecked("NET-001", f"{node.host}: own name not checked", why)
    if _is_set(facts, "GLOO_SOCKET_IFNAME"):
        return None  # the name does not matter; NET-002 and NET-003 judge the setting
    addresses = ", ".join(facts.get("net.name.addresses", ()))
    if announces_loopback(node):
        return _loopback(node, addresses)
    if facts.get("net.name.usable"):
        return None
    return _lost(node, addresses)


def _is_set(facts: dict[str, Any], name: str) -> bool:
    return any(setting["name"] == name for setting in facts.get("net.settings", ()))


def _loopback(node: NodeFacts, addresses: str) -> Finding:
    address = node.facts["net.gloo.address"]
    return _worse(
        "NET-001",
        "fail",
        node,
        f"its own name leads to {address}, which no other node can reach",
        saw=f"{node.facts['net.name']} resolves to {addresses}",
        expected="an address of an interface that other nodes reach (torch's ProcessGroupGloo "
        "listens on what the host name resolves to)",
        because="/etc/hosts maps the host name to loopback, as Debian's installer writes it",
        costs=f"gloo over several nodes ends with `Connection refused, remote=[{address}]` or "
        "`Connect timeout`; it works only where this node happens to be the one that connects "
        "(of two, the one with the higher address)",
        fix=f"map {node.facts['net.name']} to the node's address in /etc/hosts, or set "
        f"GLOO_SOCKET_IFNAME={_usual(node)}",
    )


def _lost(node: NodeFacts, addresses: str) -> Finding:
    name = node.facts["net.name"]
    if addresses:
        title = f"its own name leads to {addresses}, which is on none of its interfaces"
        because = "DNS or /etc/hosts has an old address, or one of another network namespace"
    else:
        title = "its own name does not resolve"
        because = node.unknown.get("net.name.addresses", "the resolver gave no address")
    return _worse(
        "NET-001",
        "warn",
        node,
        title,
        saw=f"{name}: {addresses or 'no address'}",
        expected="an address of one of its interfaces (torch's ProcessGroupGloo listens there)",
        because=because,
        costs="gloo warns `Unable to resolve hostname to a (local) address` and listens on "
        "127.0.0.1, where other nodes cannot connect",
        fix=f"map {name} to the node's address in /etc/hosts or DNS, or set "
        f"GLOO_SOCKET_IFNAME={_usual(node)}",
    )


def _usual(node: NodeFacts) -> str:
    """The interface that NCCL would take, as a proposal."""
    chosen = [name for name in node.facts.get("net.nccl.interfaces", ()) if name != "lo"]
    return str(chosen[0]) if chosen else "NAME"


# NET-002: settings.


def _settings(world: World) -> list[Finding]:
    known = [node for node in world.nodes if "net.settings" in node.facts]
    blind = [node for node in world.nodes if "net.settings" not in node.facts]
    found = [
        finding
        for node in known
        for setting in node.facts["net.settings"]
        if (finding := _unmatched(node, setting)) is not None
    ]
    found += _differing(known)
    for node in blind:
        why = node.unknown.get("net.interfaces", "not reported")
        title = f"{node.host}: settings that choose interfaces not checked"
        found.append(_unchecked("NET-002", title, why))
    return found or [_all_match(known)]


def _all_match(nodes: Sequence[NodeFacts]) -> Finding:
    names = sorted({setting["name"] for node in nodes for setting in node.facts["net.settings"]})
    verb = "matches" if len(names) == 1 else "match"
    title = f"{', '.join(names)} {verb} interfaces on every node ({len(nodes)})"
    none = f"no setting chooses interfaces on {len(nodes)} node" + ("s" if len(nodes) > 1 else "")
    return Finding(id="NET-002", status="pass", title=title if names else none)


def _unmatched(node: NodeFacts, setting: dict[str, Any]) -> Finding | None:
    name, entries = setting["name"], [*setting["missing"], *setting["bare"]]
    dead = not setting["chosen"]
    if not entries and not dead:
        return None
    if name == "NCCL_SOCKET_IFNAME" and not dead:
        return None  # prefixes are alternatives there
    entry = entries[0] if entries else setting["value"]
    return _worse(
        "NET-002",
        _gravity(node, name, dead),
        node,
        f"{name}={setting['value']}: {_said(name, setting)}",
        saw=f"interfaces: {_listed(node)}" + _ports(node, name),
        expected="every name that is set leads to an interface or device of the node",
        because="another node's name, a typing error, or an interface that is down",
        costs=_BREAKS[name].format(entry=entry),
        fix=f"set {name} to a name of this node, or unset it"
        + ("; gloo knows no ^, = or prefixes" if name == "GLOO_SOCKET_IFNAME" else ""),
    )


def _gravity(node: NodeFacts, name: str, dead: bool) -> Literal["warn", "fail"]:
    """Fail for what ends the job, and for RDMA that is there and left out altogether."""
    if name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        return "fail"
    return "fail" if name == "NCCL_IB_HCA" and dead and node.rdma else "warn"


def _said(name: str, setting: dict[str, Any]) -> str:
    said = [f"nothing is called {entry!r}" for entry in setting["missing"]]
    what = "is down or has no address" if name.startswith("NCCL") else "has no address"
    said += [f"{entry} {what}" for entry in setting["bare"]]
    return ", ".join(said) or "nothing is left"


def _listed(node: NodeFacts) -> str:
    names = [one["name"] for one in node.facts.get("net.interfaces", ())]
    return ", ".join(names) or "none with an address"


def _ports(node: NodeFacts, name: str) -> str:
    if name not in ("NCCL_IB_HCA", "UCX_NET_DEVICES"):
        return ""
    ports = ", ".join(f"{port['device']}:{port['port']}" for port in node.rdma)
    return f"; RDMA ports: {ports or 'none'}"


def _differing(nodes: Sequence[NodeFacts]) -> list[Finding]:
    """One finding a variable whose one value leads to other networks on another node."""
    found = []
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        chosen = [
            (node, setting)
            for node in nodes
            for setting in node.facts["net.settings"]
            if setting["name"] == name and setting["chosen"]
        ]
        for node, setting in chosen[1:]:
            if setting["value"] == chosen[0][1]["value"] and _apart(chosen[0], (node, setting)):
                found.append(_other_network(node, setting, *chosen[0]))
    return found


Chosen = tuple[NodeFacts, dict[str, Any]]


def _apart(first: Chosen, other: Chosen) -> bool:
    """Whether bootstrap's interfaces are on different networks though they need not be.

    Racks with a network each are normal: then the name is the same, and no node has both.
    """
    (a, one), (b, two) = first, other
    here, there = _networks(a, one["chosen"][0]), _networks(b, two["chosen"][0])
    if not here or not there or here & there:
        return False
    crossed = here & _all_networks(b) or there & _all_networks(a)
    return bool(crossed) or one["chosen"][0] != two["chosen"][0]


def _networks(node: NodeFacts, name: str) -> set[str]:
    return {
        network
        for one in node.facts.get("net.interfaces", ())
        if one["name"] == name
        for network in one["networks"]
    }


def _all_networks(node: NodeFacts) -> set[str]:
    return {network for one in node.facts.get("net.interfaces", ()) for network in one["networks"]}


def _other_network(
    node: NodeFacts, setting: dict[str, Any], first: NodeFacts, before: dict[str, Any]
) -> Finding:
    def shown(at: NodeFacts, found: dict[str, Any]) -> str:
        name = found["chosen"][0]
        return f"{name} ({', '.join(sorted(_networks(at, name)))})"

    return _worse(
        "NET-002",
        "warn",
        node,
        f"{setting['name']}={setting['value']} picks {setting['chosen'][0]} on another network "
        f"than {before['chosen'][0]} of {first.host}",
        saw=f"{shown(node, setting)} here, {shown(first, before)} on {first.host}",
        expected="interfaces of one network on all nodes",
        because="interfaces are named or cabled in another order on this node",
        costs="nodes cannot connect, or go over a router or the management network",
        fix="name each node's interface exactly, or give the interfaces one name by their "
        "hardware address (systemd.link)",
    )
