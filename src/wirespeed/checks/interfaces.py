"""NET-001 to NET-003: the interfaces that gloo and NCCL choose, and the settings that choose them.

They read the facts that `wirespeed.node.interface_choice` notes.
"""

import re
from collections.abc import Sequence
from typing import Literal

from wirespeed.checks.registry import EXPLAINED, absent, not_applicable, on_node, tell
from wirespeed.model.node_facts import Facts, Interface, InterfaceSetting
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.model.units import counted


def interface_findings(world: World) -> list[Finding]:
    """NET-001 to NET-003; pure. A world without nodes has none."""
    if not world.nodes:
        return []
    many = len(world.nodes) > 1 or world.size > len(world.nodes[0].ranks)
    return [*_names(world, many), *_settings(world), *_choices(world, many)]


# NET-001: names.


def _names(world: World, many: bool) -> list[Finding]:
    if not many:
        return [tell("NET-001", "one node")]
    found = [finding for node in world.nodes if (finding := _named(node)) is not None]
    return found or [tell("NET-001", "good", nodes=len(world.nodes))]


def _named(node: NodeFacts) -> Finding | None:
    """What is wrong with the address that gloo tells others; None: nothing."""
    facts = node.facts
    if facts.net_name is None or facts.net_gloo_address is None:
        why = node.unknown.get("net.interfaces", "not reported")
        return absent("NET-001", f"{node.host}: own name not checked", why)
    if _is_set(facts, "GLOO_SOCKET_IFNAME"):
        return None  # the name does not matter; NET-002 and NET-003 judge the setting
    loopback = _announces_loopback(node)
    if facts.net_name_usable and not loopback:
        return None
    addresses = ", ".join(facts.net_name_addresses or ())
    return on_node(
        "NET-001",
        "loopback" if loopback else "lost" if addresses else "unknown",
        node,
        facts=facts,
        addresses=addresses,
        usual=_usual(node),
        why=node.unknown.get("net.name.addresses", "the resolver gave no address"),
    )


def _is_set(facts: Facts, name: str) -> bool:
    return any(setting["name"] == name for setting in (facts.net_settings or ()))


def _announces_loopback(node: NodeFacts) -> bool:
    """Whether gloo listens on the loopback because the host name leads there: NET-001 tells it."""
    by_name = not _is_set(node.facts, "GLOO_SOCKET_IFNAME")
    return by_name and bool(node.facts.net_name_loopback)


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
    none = f"no setting chooses interfaces on {counted(len(nodes), 'node')}"
    return Finding(id="NET-002", status="pass", title=title if names else none)


def _unmatched(node: NodeFacts, setting: InterfaceSetting) -> Finding | None:
    name, entries = setting["name"], [*setting["missing"], *setting["bare"]]
    dead = not setting["chosen"]
    if not entries and not dead:
        return None
    if name == "NCCL_SOCKET_IFNAME" and not dead:
        return None  # prefixes are alternatives there
    entry = entries[0] if entries else setting["value"]
    interfaces = [one["name"] for one in (node.facts.net_interfaces or ())]
    return on_node(
        "NET-002",
        "unmatched",
        node,
        status=_gravity(node, name, dead),
        name=name,
        value=setting["value"],
        said=_said(name, setting),
        interfaces=", ".join(interfaces) or "none with an address",
        ports=_ports(node, name),
        costs=EXPLAINED["NET-002"].costs_of[name].format(entry=entry),
        forms="; gloo knows no ^, = or prefixes" if name == "GLOO_SOCKET_IFNAME" else "",
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
    crossed = here & _networks(b) or there & _networks(a)
    return bool(crossed) or one["chosen"][0] != two["chosen"][0]


def _networks(node: NodeFacts, name: str = "") -> set[str]:
    """Of that interface; of all, where none is named."""
    known = [one for one in (node.facts.net_interfaces or ()) if name in ("", one["name"])]
    return {network for one in known for network in one["networks"]}


def _other_network(
    node: NodeFacts, setting: InterfaceSetting, first: NodeFacts, before: InterfaceSetting
) -> Finding:
    def shown(at: NodeFacts, found: InterfaceSetting) -> str:
        name = found["chosen"][0]
        return f"{name} ({', '.join(sorted(_networks(at, name)))})"

    return on_node(
        "NET-002",
        "other network",
        node,
        name=setting["name"],
        value=setting["value"],
        picked=setting["chosen"][0],
        picked_there=before["chosen"][0],
        here=shown(node, setting),
        first=shown(first, before),
        there=first.host,
    )


# NET-003: what kind of interface gloo or NCCL chooses, and whether a faster one stands idle.

_NOWHERE = re.compile(r"docker\d+|virbr\d+|br-[0-9a-f]{12}|podman\d+|lxcbr\d+|lxdbr\d+")
"""Bridges that docker, libvirt, podman, LXC make: their addresses are the same on every node."""
_OVERLAY = re.compile(r"cni\d+|cbr\d+|flannel[.\d]*|cali.+|tunl\d+|vxlan.+|weave|cilium_.+|kube-.+")
"""What a node of Kubernetes has for its pods."""
_FASTER = 2
"""An interface that is this many times faster, and stands idle, is worth a word."""
_REAL = ("physical", "bond", "vlan")
_LOCAL = ("loopback", "bridge", "veth", "virtual", "unknown")
"""Kinds whose speed says nothing of a link between nodes."""


def _choices(world: World, many: bool) -> list[Finding]:
    """NET-003 for the library of the world's backend; `many`: there is more than one node."""
    what = "interface that carries training not checked"
    nodes = [node for node in world.nodes if not _announces_loopback(node)]
    if not many:
        return [not_applicable("NET-003", "interface that carries training", "one node")]
    if not nodes:
        return [absent("NET-003", what, "every node announces its loopback address (NET-001)")]
    found = [finding for node in nodes if (finding := _chosen(node, world.backend)) is not None]
    names = sorted({name for node in nodes for name in _carriers(node, world.backend)})
    title = f"{', '.join(names)} carries {_library(world.backend)}'s traffic on {len(nodes)} nodes"
    return found or [Finding(id="NET-003", status="pass", title=title)]


def _library(backend: str) -> str:
    return "NCCL" if "nccl" in backend else "gloo"


def _over_rdma(node: NodeFacts, backend: str) -> bool:
    """Whether NCCL's data go by RDMA, so that its sockets only bring it up."""
    settings = {**(node.facts.net_nccl_conf or {}), **node.environment}
    on = settings.get("NCCL_IB_DISABLE", "0") == "0" and settings.get("NCCL_NET", "") != "Socket"
    active = {f"{p['device']}:{p['port']}" for p in node.rdma if p.get("state") == "ACTIVE"}
    chosen = active if node.facts.net_hca is None else set(node.facts.net_hca)
    return "nccl" in backend and on and bool(active & chosen)


def _carriers(node: NodeFacts, backend: str) -> list[str]:
    if "nccl" not in backend:
        return [name for name in (node.facts.net_gloo_interface or "").split(",") if name]
    chosen = list(node.facts.net_nccl_interfaces or ())
    return chosen[:1] if _over_rdma(node, backend) else chosen


def _chosen(node: NodeFacts, backend: str) -> Finding | None:
    """What is wrong with the interfaces chosen on a node; None: nothing."""
    known = {one["name"]: one for one in (node.facts.net_interfaces or ())}
    chosen = [known[name] for name in _carriers(node, backend) if name in known]
    if not chosen:
        unknown = "no interface was chosen, or none is reported"
        title = f"{node.host}: interface that carries training not checked"
        return absent("NET-003", title, node.unknown.get("net.interfaces", unknown))
    every = list(known.values())
    faults = [(one, *fault) for one in chosen if (fault := _fault(one, _without(every, [one])))]
    if not faults and not _over_rdma(node, backend):
        idle = _without(every, chosen)
        faults = [(one, "warn", text) for one in chosen[:1] if (text := _slower(chosen, idle))]
    if not faults:
        return None
    grave = [fault for fault in faults if fault[1] == "fail"]
    one, status, text = (grave or faults)[0]
    others = _without(every, [one])
    library = _library(backend)
    why = node.facts.net_gloo_why if library == "gloo" else node.facts.net_nccl_why
    better = [other["name"] for other in others if other["kind"] in _REAL]
    return on_node(
        "NET-003",
        "no way" if status == "fail" else "chosen",
        node,
        status=status,
        evidence=map(_shown, (one, *others)),
        library=library,
        variable=library.upper(),
        name=one["name"],
        fault=text,
        carriers=", ".join(_carriers(node, backend)),
        why=why,
        because=_because(why, library),
        better=better[0] if better else "NAME",
    )


def _without(every: Sequence[Interface], some: Sequence[Interface]) -> list[Interface]:
    return [one for one in every if one not in some]


def _fault(
    one: Interface, others: Sequence[Interface]
) -> tuple[Literal["warn", "fail"], str] | None:
    """Why an interface is no way to other nodes; None where it is one, or the only one."""
    name, kind = one["name"], one["kind"]
    if kind == "loopback":
        return "fail", "the loopback interface, which leads to no other node"
    if _NOWHERE.fullmatch(name) and not one["wired"]:
        return "fail", "a bridge for containers or virtual machines of this node only"
    if kind == "bond member":
        return "warn", "a member of a bond, not the bond"
    if all(other["kind"] not in _REAL for other in others):
        return None  # in a container the only interface is a veth or an overlay
    if _OVERLAY.fullmatch(name):
        return "warn", "an overlay for the pods of a cluster"
    if kind == "bridge" and not one["wired"]:
        return "warn", "a bridge without a physical port"
    if kind in ("veth", "tunnel", "virtual"):
        what = {"veth": "one end of a veth pair", "tunnel": "a tunnel"}
        return "warn", what.get(kind, "a virtual interface")
    return None


def _slower(chosen: Sequence[Interface], others: Sequence[Interface]) -> str:
    """How much faster an idle interface is than all the chosen ones together, or nothing."""
    speeds = [one.get("speed_Gbitps") for one in chosen]
    known = [speed for speed in speeds if speed]
    rivals = [one for one in others if one.get("speed_Gbitps") and one["kind"] not in _LOCAL]
    if len(known) < len(speeds) or not rivals:
        return ""
    best = max(rivals, key=lambda one: float(one["speed_Gbitps"]))
    if best["speed_Gbitps"] < _FASTER * sum(known):
        return ""
    return (
        f"{sum(known):g} Gbit/s, while {best['name']} with {best['speed_Gbitps']:g} Gbit/s is idle"
    )


def _because(why: str | None, library: str) -> str:
    if why and why.endswith("_SOCKET_IFNAME"):
        return f"{why} is set so"
    if library == "gloo":
        return "torch's gloo takes the address that the host name resolves to"
    return "NCCL takes every interface that runs but docker*, lo* and virbr*, those of ib* first"


def _shown(one: Interface) -> str:
    speed = f", {one['speed_Gbitps']:g} Gbit/s" if one.get("speed_Gbitps") else ""
    return f"{one['name']}: {one['kind']}{speed}, {', '.join(one['networks']) or 'link-local only'}"
