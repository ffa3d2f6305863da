"""NET-001 to NET-003: the interfaces that gloo and NCCL choose, and the settings that choose them.

They read the facts that `wirespeed.node.network.selection` notes.
"""

from collections.abc import Sequence
from typing import Literal

from wirespeed.checks.interface_kinds import announces_loopback, choice_findings
from wirespeed.checks.per_node import absent, worse
from wirespeed.model.node_facts import Facts, InterfaceSetting
from wirespeed.model.records import Finding, NodeFacts, World

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


# NET-001: names.


def _names(world: World, many: bool) -> list[Finding]:
    if not many:
        title = "what the host name leads to not checked"
        return [absent("NET-001", title, "one node: nothing has to reach it from outside")]
    found = [_named(node) for node in world.nodes]
    worse = [finding for finding in found if finding is not None]
    title = f"the name of each node leads to an address that others can reach ({len(found)} nodes)"
    return worse or [Finding(id="NET-001", status="pass", title=title)]


def _named(node: NodeFacts) -> Finding | None:
    """What is wrong with the address that gloo tells others; None: nothing."""
    facts = node.facts
    if facts.net_name is None or facts.net_gloo_address is None:
        why = node.unknown.get("net.interfaces", "not reported")
        return absent("NET-001", f"{node.host}: own name not checked", why)
    if _is_set(facts, "GLOO_SOCKET_IFNAME"):
        return None  # the name does not matter; NET-002 and NET-003 judge the setting
    addresses = ", ".join(facts.net_name_addresses or ())
    if announces_loopback(node):
        return _loopback(node, addresses)
    if facts.net_name_usable:
        return None
    return _lost(node, addresses)


def _is_set(facts: Facts, name: str) -> bool:
    return any(setting["name"] == name for setting in (facts.net_settings or ()))


def _loopback(node: NodeFacts, addresses: str) -> Finding:
    address = node.facts.net_gloo_address
    return worse(
        "NET-001",
        "fail",
        node,
        f"its own name leads to {address}, which no other node can reach",
        saw=f"{node.facts.net_name} resolves to {addresses}",
        expected="an address of an interface that other nodes reach (torch's ProcessGroupGloo "
        "listens on what the host name resolves to)",
        costs=f"gloo over several nodes ends with `Connection refused, remote=[{address}]` or "
        "`Connect timeout`; it works only where this node happens to be the one that connects "
        "(of two, the one with the higher address)",
        fix=f"map {node.facts.net_name} to the node's address in /etc/hosts, or set "
        f"GLOO_SOCKET_IFNAME={_usual(node)}",
    )


def _lost(node: NodeFacts, addresses: str) -> Finding:
    name = node.facts.net_name
    if addresses:
        title = f"its own name leads to {addresses}, which is on none of its interfaces"
        because = "DNS or /etc/hosts has an old address, or one of another network namespace"
    else:
        title = "its own name does not resolve"
        because = node.unknown.get("net.name.addresses", "the resolver gave no address")
    return worse(
        "NET-001",
        "warn",
        node,
        title,
        saw=f"{name}: {addresses or 'no address'}",
        expected="an address of one of its interfaces (torch's ProcessGroupGloo listens there)",
        because=because,
        fix=f"map {name} to the node's address in /etc/hosts or DNS, or set "
        f"GLOO_SOCKET_IFNAME={_usual(node)}",
    )


def _usual(node: NodeFacts) -> str:
    """The interface that NCCL would take, as a proposal."""
    chosen = [name for name in (node.facts.net_nccl_interfaces or ()) if name != "lo"]
    return str(chosen[0]) if chosen else "NAME"


# NET-002: settings.


def _settings(world: World) -> list[Finding]:
    known = [node for node in world.nodes if node.facts.net_settings is not None]
    blind = [node for node in world.nodes if node.facts.net_settings is None]
    found = [
        finding
        for node in known
        for setting in node.facts.net_settings or ()
        if (finding := _unmatched(node, setting)) is not None
    ]
    found += _differing(known)
    for node in blind:
        why = node.unknown.get("net.interfaces", "not reported")
        title = f"{node.host}: settings that choose interfaces not checked"
        found.append(absent("NET-002", title, why))
    return found or [_all_match(known)]


def _all_match(nodes: Sequence[NodeFacts]) -> Finding:
    names = sorted({setting["name"] for node in nodes for setting in node.facts.net_settings or ()})
    verb = "matches" if len(names) == 1 else "match"
    title = f"{', '.join(names)} {verb} interfaces on every node ({len(nodes)})"
    none = f"no setting chooses interfaces on {len(nodes)} node" + ("s" if len(nodes) > 1 else "")
    return Finding(id="NET-002", status="pass", title=title if names else none)


def _unmatched(node: NodeFacts, setting: InterfaceSetting) -> Finding | None:
    name, entries = setting["name"], [*setting["missing"], *setting["bare"]]
    dead = not setting["chosen"]
    if not entries and not dead:
        return None
    if name == "NCCL_SOCKET_IFNAME" and not dead:
        return None  # prefixes are alternatives there
    entry = entries[0] if entries else setting["value"]
    return worse(
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


def _said(name: str, setting: InterfaceSetting) -> str:
    said = [f"nothing is called {entry!r}" for entry in setting["missing"]]
    what = "is down or has no address" if name.startswith("NCCL") else "has no address"
    said += [f"{entry} {what}" for entry in setting["bare"]]
    return ", ".join(said) or "nothing is left"


def _listed(node: NodeFacts) -> str:
    names = [one["name"] for one in (node.facts.net_interfaces or ())]
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
            for setting in node.facts.net_settings or ()
            if setting["name"] == name and setting["chosen"]
        ]
        for node, setting in chosen[1:]:
            if setting["value"] == chosen[0][1]["value"] and _apart(chosen[0], (node, setting)):
                found.append(_other_network(node, setting, *chosen[0]))
    return found


Chosen = tuple[NodeFacts, InterfaceSetting]


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
        for one in (node.facts.net_interfaces or ())
        if one["name"] == name
        for network in one["networks"]
    }


def _all_networks(node: NodeFacts) -> set[str]:
    return {network for one in (node.facts.net_interfaces or ()) for network in one["networks"]}


def _other_network(
    node: NodeFacts, setting: InterfaceSetting, first: NodeFacts, before: InterfaceSetting
) -> Finding:
    def shown(at: NodeFacts, found: InterfaceSetting) -> str:
        name = found["chosen"][0]
        return f"{name} ({', '.join(sorted(_networks(at, name)))})"

    return worse(
        "NET-002",
        "warn",
        node,
        f"{setting['name']}={setting['value']} picks {setting['chosen'][0]} on another network "
        f"than {before['chosen'][0]} of {first.host}",
        saw=f"{shown(node, setting)} here, {shown(first, before)} on {first.host}",
        expected="interfaces of one network on all nodes",
        because="interfaces are named or cabled in another order on this node",
    )
