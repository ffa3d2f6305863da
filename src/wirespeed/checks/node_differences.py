"""What should be the same on every node, and which node is the odd one out.

What is compared is findings.yaml. The value of most nodes is what is expected of the others;
two nodes that differ have no majority, and the finding says so.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.checks.gpu_health import NO_GPU, has_no_gpu
from wirespeed.checks.registry import CHECKS, Check, Fact, absent, not_applicable, without_rdma
from wirespeed.model.node_facts import FACT_NAMES
from wirespeed.model.records import Finding, NodeFacts, Subject, World
from wirespeed.model.units import format_size

_PORTS = ("ports", "active ports")


@dataclass(frozen=True, slots=True)
class _Compared:
    """One fact over all nodes: the nodes of each value, most nodes first."""

    fact: Fact
    groups: list[tuple[Any, list[NodeFacts]]]
    unknown: list[NodeFacts]


def difference_findings(world: World) -> list[Finding]:
    """NODE-001 to NODE-005 and NODE-008: a finding a node and fact that differ, else one an id."""
    alike = [(check, check.facts) for check in CHECKS.values() if check.facts]
    families = [*alike, (CHECKS["NODE-008"], _environment(world.nodes))]
    return [one for check, facts in families for one in _of_family(check, facts, world.nodes)]


def _of_family(check: Check, facts: Sequence[Fact], nodes: Sequence[NodeFacts]) -> list[Finding]:
    unchecked = f"{check.about} not compared between nodes"
    if len(nodes) < 2:
        return [not_applicable(check.id, f"{check.about} between nodes", "one node")]
    if facts and all(fact.of == "gpus" for fact in facts) and all(map(has_no_gpu, nodes)):
        return [not_applicable(check.id, f"{check.about} between nodes", NO_GPU)]
    if facts and all(fact.of in _PORTS for fact in facts) and not any(node.rdma for node in nodes):
        return [without_rdma(check.id, f"{check.about} between nodes", nodes)]
    compared = [_compare(fact, nodes) for fact in facts]
    known = [one for one in compared if sum(len(hosts) for _, hosts in one.groups) > 1]
    odd = [finding for one in known for finding in _odd_nodes(check, one)]
    odd += [finding for one in compared if one.groups for finding in _blind_nodes(check.id, one)]
    if odd:
        return odd
    if facts and not known:
        # Why all of it is unknown, in as few words as it takes.
        reasons = sorted({_why_unknown(node, fact.key) for fact in facts for node in nodes})
        return [absent(check.id, unchecked, "; ".join(reasons[:3]))]
    return [_alike(check, known, len(nodes))]


def _compare(fact: Fact, nodes: Sequence[NodeFacts]) -> _Compared:
    values = [(node, _read(fact, node)) for node in nodes]
    known = [(node, value) for node, value in values if value is not None]
    groups = _close(known, fact.tolerance) if fact.tolerance else _equal(known)
    # max() and sort keep the first of equals: in a tie the group of the first node leads.
    ordered = sorted(groups, key=lambda group: -len(group[1]))
    return _Compared(fact, ordered, [node for node, value in values if value is None])


def _equal(known: Iterable[tuple[NodeFacts, Hashable]]) -> list[tuple[Any, list[NodeFacts]]]:
    groups: dict[Hashable, list[NodeFacts]] = defaultdict(list)
    for node, value in known:
        groups[value].append(node)
    return list(groups.items())


def _close(
    known: Sequence[tuple[NodeFacts, float]], tolerance: float
) -> list[tuple[Any, list[NodeFacts]]]:
    """Groups of numbers of which each is at most `tolerance` above the next smaller one."""
    groups: list[tuple[float, list[NodeFacts]]] = []
    last = 0.0
    for node, value in sorted(known, key=lambda pair: pair[1]):
        if groups and value <= last * (1 + tolerance):
            groups[-1][1].append(node)
        else:
            groups.append((value, [node]))
        last = value
    first = known[0][0] if known else None
    return sorted(groups, key=lambda group: first not in group[1])


def _odd_nodes(check: Check, compared: _Compared) -> list[Finding]:
    if len(compared.groups) < 2:
        return []
    fact = compared.fact
    expected, most = compared.groups[0]
    total = sum(len(nodes) for _, nodes in compared.groups)
    split = len(compared.groups[1][1]) == len(most)
    others = most[0].host if total == 2 else f"{len(most)} of {total} nodes"
    return [
        Finding(
            id=check.id,
            status=fact.status,
            title=f"{node.host} has another {fact.name} than {others}",
            subject=Subject("node", node.host),
            saw=f"{fact.name}: {_shown(fact, value)}",
            expected=_expected(fact, expected, most, total, split),
            because=check.because,
            costs=fact.costs or check.costs,
            fix=(fact.fix or check.fix).format(name=fact.name),
            next=f"wirespeed check --only {check.id}",
        )
        for value, nodes in compared.groups[1:]
        for node in nodes
    ]


def _expected(fact: Fact, value: Any, most: Sequence[NodeFacts], total: int, split: bool) -> str:
    if split:
        return (
            f"{_shown(fact, value)}, as on {most[0].host}; without a majority among {total} nodes "
            "either may be the one to change"
        )
    return f"{_shown(fact, value)}, as on {len(most)} of {total} nodes ({most[0].host}, …)"


def _blind_nodes(id: str, compared: _Compared) -> list[Finding]:
    """Nodes on which something could not be read that others tell: unknown is not alike."""
    fact = compared.fact
    return [
        Finding(
            id=id,
            status="not_checked",
            title=f"{node.host}: {fact.name} not compared",
            subject=Subject("node", node.host),
            expected=f"{_shown(fact, compared.groups[0][0])}, as on {compared.groups[0][1][0].host}",
            because=_why_unknown(node, fact.key),
        )
        for node in compared.unknown
    ]


def _why_unknown(node: NodeFacts, key: str) -> str:
    return node.unknown.get(key) or node.unknown.get(key.partition(".")[0] + "s") or "not reported"


def _alike(check: Check, known: Sequence[_Compared], nodes: int) -> Finding:
    values = [f"{one.fact.name} {_shown(one.fact, one.groups[0][0])}" for one in known]
    return Finding(
        id=check.id,
        status="pass",
        title=f"{check.about} identical on {nodes} nodes",
        saw=", ".join(values) or "none set",
        expected="the same on every node",
    )


def _read(fact: Fact, node: NodeFacts) -> Any:
    """Its value on a node: hashable, None where not known; of devices the values of all of them."""
    name = fact.key.rpartition(".")[2]
    active = [port for port in node.rdma if port.get("state") == "ACTIVE"]
    match fact.of:
        case "gpus":
            return tuple(sorted({gpu[name] for gpu in node.gpus if name in gpu})) or None
        case "nics":
            return tuple(sorted(nic[name] for nic in _used_nics(node) if name in nic)) or None
        case "active ports":
            return tuple(sorted({port[name] for port in active if name in port})) or None
        case "ports":
            return None if "rdma" in node.unknown else len(node.rdma)
        case "environment":
            return node.environment.get(fact.name, "(not set)")
        case _:
            return getattr(node.facts, FACT_NAMES[fact.key])


def _used_nics(node: NodeFacts) -> list[dict[str, Any]]:
    """Interfaces that can carry training: with an address; real ones where there are any."""
    addressed = [nic for nic in node.nics if nic.get("families") and not nic.get("loopback")]
    return [nic for nic in addressed if nic.get("virtual") is False] or addressed


def _shown(fact: Fact, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(
            f"{one:g}" if isinstance(one, float) else _shown(fact, one) for one in value
        )
    if isinstance(value, bool):
        return "on" if value else "off"
    return (
        format_size(value) if fact.key.endswith("_bytes") and isinstance(value, int) else str(value)
    )


_OF_A_NODE = ("CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "OMPI_MCA_orte_", "OMPI_MCA_ess_")
"""Variables that may well differ: chosen by a scheduler or a launcher for each node."""


def _environment(nodes: Sequence[NodeFacts]) -> list[Fact]:
    names = sorted({name for node in nodes for name in node.environment})
    kept = (name for name in names if not name.startswith(_OF_A_NODE))
    return [Fact(name=name, key="", of="environment") for name in kept]
