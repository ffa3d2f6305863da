"""NET-003: what kind of interface gloo or NCCL chooses, and whether a faster one stands idle."""

import re
from collections.abc import Sequence
from typing import Literal

from wirespeed.checks.per_node import worded
from wirespeed.model.node_facts import Interface
from wirespeed.model.records import Finding, NodeFacts, Subject, World

_NOWHERE = re.compile(r"docker\d+|virbr\d+|br-[0-9a-f]{12}|podman\d+|lxcbr\d+|lxdbr\d+")
"""Bridges that docker, libvirt, podman, LXC make: their addresses are the same on every node."""
_OVERLAY = re.compile(r"cni\d+|cbr\d+|flannel[.\d]*|cali.+|tunl\d+|vxlan.+|weave|cilium_.+|kube-.+")
"""What a node of Kubernetes has for its pods."""
_FASTER = 2
"""An interface that is this many times faster, and stands idle, is worth a word."""
_LOCAL = ("loopback", "bridge", "veth", "virtual", "unknown")
"""Kinds whose speed says nothing of a link between nodes."""


def choice_findings(world: World, many: bool) -> list[Finding]:
    """NET-003 for the library of the world's backend; `many`: there is more than one node."""
    if not many:
        return [_unchecked("interface that carries training not checked", "one node")]
    nodes = [node for node in world.nodes if not announces_loopback(node)]
    if not nodes:
        why = "every node announces its loopback address (NET-001)"
        return [_unchecked("interface that carries training not checked", why)]
    found = [_judged(node, world.backend) for node in nodes]
    worse = [finding for finding in found if finding is not None]
    names = sorted({name for node in nodes for name in _carriers(node, world.backend)})
    title = f"{', '.join(names)} carries {_library(world.backend)}'s traffic on {len(found)} nodes"
    return worse or [Finding(id="NET-003", status="pass", title=title)]


def announces_loopback(node: NodeFacts) -> bool:
    """Whether gloo listens on the loopback because the host name leads there: NET-001 tells it."""
    settings = node.facts.net_settings or ()
    by_name = all(setting["name"] != "GLOO_SOCKET_IFNAME" for setting in settings)
    return by_name and bool(node.facts.net_name_loopback)


def _unchecked(title: str, because: str) -> Finding:
    return Finding(id="NET-003", status="not_checked", title=title, because=because)


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


def _judged(node: NodeFacts, backend: str) -> Finding | None:
    """What is wrong with the interfaces chosen on a node; None: nothing."""
    known = {one["name"]: one for one in (node.facts.net_interfaces or ())}
    chosen = [known[name] for name in _carriers(node, backend) if name in known]
    if not chosen:
        why = node.unknown.get("net.interfaces", "no interface was chosen, or none is reported")
        return _unchecked(f"{node.host}: interface that carries training not checked", why)
    every = list(known.values())
    faults = [(one, *fault) for one in chosen if (fault := _fault(one, _without(every, [one])))]
    if not faults and not _over_rdma(node, backend):
        idle = _without(every, chosen)
        faults = [(one, "warn", text) for one in chosen[:1] if (text := _slower(chosen, idle))]
    if not faults:
        return None
    grave = [fault for fault in faults if fault[1] == "fail"]
    one, status, text = (grave or faults)[0]
    return _finding(node, backend, one, status, text, _without(every, [one]))


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
    real = any(other["kind"] in ("physical", "bond", "vlan") for other in others)
    if kind == "bond member":
        return "warn", "a member of a bond, not the bond"
    if not real:
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


def _finding(
    node: NodeFacts,
    backend: str,
    one: Interface,
    status: Literal["warn", "fail"],
    fault: str,
    others: Sequence[Interface],
) -> Finding:
    library = _library(backend)
    why = node.facts.net_gloo_why if library == "gloo" else node.facts.net_nccl_why
    better = [other["name"] for other in others if other["kind"] in ("physical", "bond", "vlan")]
    return worded(
        id="NET-003",
        status=status,
        title=f"{node.host}: {library} chooses {one['name']}: {fault}",
        subject=Subject("node", node.host),
        saw=f"{', '.join(_carriers(node, backend))}, because: {why}",
        because=_because(why, library),
        costs="nodes cannot connect, or wait for the timeout"
        if status == "fail"
        else "every collective between nodes goes through this interface",
        fix=f"{library.upper()}_SOCKET_IFNAME={better[0] if better else 'NAME'} on this node",
        next="wirespeed check --only NET-003",
        evidence=tuple(_shown(other) for other in (one, *others)),
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
