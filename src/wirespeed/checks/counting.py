"""Error counters that grew during our traffic, as each node told them: COUNT-001 to COUNT-008.

Which counters tell of a fault, from how much on, and what it means is findings.yaml.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wirespeed.checks.registry import CHECKS, EXPLAINED, CounterRule, absent, not_applicable, worse
from wirespeed.model.records import Finding, NodeFacts, Subject, World
from wirespeed.model.units import counted, format_duration

FAMILIES = {id: check.counters for id, check in CHECKS.items() if check.counters}
"""Rules by the id of their finding."""
ALWAYS_COUNTED = frozenset(
    id for id, rules in FAMILIES.items() if {rule.kind for rule in rules} & {"interface", "TCP"}
)
"""Ids of counters that any machine with a network has."""


_PACKETS = (
    ("rx_packets_phy", "tx_packets_phy"),
    ("port_rcv_packets", "port_xmit_packets"),
    ("rx_pkts", "tx_pkts"),
    ("rx_packets", "tx_packets"),
    ("OutSegs",),
)
"""Who counts packets; the first of them that does."""
_SMALL = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
"""Counters of four bits, which stand at their end on healthy nodes, too."""
_SHOWN = 8
_OF_PATHS = "COUNT-008"
"""Both ends of a bad path count: several nodes are one finding, that accuses only who stands out."""
_STANDS_OUT = 3.0
"""Times the rate of the next: who loses a share of all paths is met by each other node on one path."""
_RESET = "perfquery -R"
_NONE = "no device here has such counters"


@dataclass(frozen=True, slots=True)
class _Grown:
    """One counter of one device that grew, and how bad that is."""

    device: str
    text: str
    """`symbol_error +12 (0.5/s)`."""
    status: Literal["pass", "warn", "fail"]
    rate: float
    """Of what the rule asks for."""


def count_findings(world: World) -> list[Finding]:
    """For each id what grew on which device, a pass, or why it is not known; pure.

    None at all for a run whose nodes read no counters (`bench`, older runs).
    """
    told = [node for node in world.nodes if node.counters]
    if not told:
        return []
    silent = [node.host for node in world.nodes if not node.counters]
    return [finding for id in FAMILIES for finding in _of_id(id, told, silent)]


def _of_id(id: str, nodes: Sequence[NodeFacts], silent: Sequence[str]) -> list[Finding]:
    grown = [(node, one) for node in nodes for one in _grown(id, node)]
    bad = [(node, one) for node, one in grown if one.status != "pass"]
    pairs = dict.fromkeys((node.host, one.device) for node, one in bad)
    found = []
    for host, device in pairs:
        own = [(node, one) for node, one in bad if (node.host, one.device) == (host, device)]
        found.append(_bad(id, own[0][0], device, [one for _, one in own]))
    if id == _OF_PATHS and len(found) > 1:
        found = [_joint(found, len(nodes), _worst_node(bad))]
    about = EXPLAINED[id].about
    blind = [*(f"{host}: not told" for host in silent), *_blind(id, nodes)]
    if blind:
        shown = "; ".join(blind[:_SHOWN])
        title = f"{about} not checked on every device"
        found.append(replace(absent(id, title, shown), next=_RESET if "its end" in shown else ""))
    if found:
        return found
    watched = [name for node in nodes for name in node.counters["watched"] if _applies(id, name)]
    if not watched:
        return [not_applicable(id, about, _NONE)]
    longest = max(node.counters["seconds"] for node in nodes)
    little = [f"{node.host} {one.device}: {one.text}" for node, one in grown]
    title = f"{about} ({counted(len(watched), 'device')}, {format_duration(longest)})"
    saw, expected = "; ".join(little[:_SHOWN]), EXPLAINED[id].expected
    return [Finding(id=id, status="pass", title=title, saw=saw, expected=expected)]


def _names(rule: CounterRule, counter: str) -> bool:
    return any(re.fullmatch(name, counter) for name in rule.names)


def _applies(id: str, device: str) -> bool:
    kind = device.split()[0]
    return any(rule.kind == kind for rule in FAMILIES[id])


def _grown(id: str, node: NodeFacts) -> Iterator[_Grown]:
    for device, counts in node.counters["grown"].items():
        for rule in FAMILIES[id]:
            if rule.kind == device.split()[0]:
                yield from _judged(rule, device, counts, node.counters["seconds"])


def _judged(
    rule: CounterRule, device: str, counts: Mapping[str, int], seconds: float
) -> Iterator[_Grown]:
    packets = _packets(counts)
    for name, count in counts.items():
        if not _names(rule, name) or (count := count - counts.get(rule.less, 0)) <= 0:
            continue
        rate, text = _rate(rule, count, packets, max(seconds, 1e-3))
        status: Literal["pass", "warn", "fail"] = "pass"
        if rule.warn and count >= rule.warn.count and rate >= rule.warn.rate:
            status = "warn"
        if rule.fail and count >= rule.fail.count and rate >= rule.fail.rate:
            status = "fail" if packets >= rule.busy else "warn"
        yield _Grown(device, f"{name} +{count:,} ({text})", status, rate)


def _packets(counts: Mapping[str, int]) -> int:
    sums = (sum(counts.get(name, 0) for name in names) for names in _PACKETS)
    return next(filter(None, sums), 0)


def _rate(rule: CounterRule, count: int, packets: int, seconds: float) -> tuple[float, str]:
    """By what the rule asks for, and as text. Where no packet was counted, the number alone warns."""
    if rule.per == "time":
        share = count / 1e6 / seconds
        return share, f"{share:.0%} of the time"
    if rule.per == "packet" and not packets:
        return rule.warn.rate if rule.warn else 0.0, "packets are not counted"
    if rule.per == "packet":
        packets = max(packets, count)
        return count / packets, f"{count / packets:.1e} of {packets:,} packets"
    return count / seconds, f"{count / seconds:.3g}/s"


def _bad(id: str, node: NodeFacts, device: str, grown: Sequence[_Grown]) -> Finding:
    failed = any(one.status == "fail" for one in grown)
    took = format_duration(node.counters["seconds"])
    what = grown[0].text.partition(" (")[0]
    more = f" and {len(grown) - 1} more" if len(grown) > 1 else ""
    return worse(
        id,
        "fail" if failed else "warn",
        node,
        f"{device}: {what}{more} in {took} of our traffic",
        saw="; ".join(one.text for one in grown[:_SHOWN]),
        evidence=tuple(_about(node, device)),
    )


def _worst_node(bad: Sequence[tuple[NodeFacts, _Grown]]) -> str:
    """Whose rate fails and stands out of at least two others'; empty: nobody's."""
    worst = sorted(bad, key=lambda one: -one[1].rate)
    if len(worst) < 3 or worst[0][1].status != "fail":
        return ""
    return worst[0][0].host if worst[0][1].rate >= _STANDS_OUT * worst[1][1].rate else ""


def _joint(found: Sequence[Finding], nodes: int, worst: str) -> Finding:
    """One finding for what several nodes saw of the same paths. worst: the node to accuse, if any."""
    failed = [one for one in found if one.status == "fail"]
    first = (failed or list(found))[0]
    most = f", most of all on {worst}" if worst else ""
    return replace(
        first,
        title=f"TCP had to send again on {len(found)} of {nodes} nodes{most}",
        subject=Subject("node", worst) if worst else Subject("job", "job"),
        saw="; ".join(f"{one.subject.name}: {one.saw}" for one in found[:_SHOWN]),
        evidence=tuple(one.title for one in found),
    )


def _about(node: NodeFacts, device: str) -> Iterator[str]:
    """What else is known of the device: where it is, and that it came or went meanwhile."""
    kind, name, *_ = [*device.split(), ""]
    told: list[dict[str, Any]] = []
    if kind in ("GPU", "NVLink"):
        told = [gpu for gpu in node.gpus if str(gpu["index"]) == device.split()[-1]]
    elif kind == "RDMA":
        told = [port for port in node.rdma if port["device"] == name]
    elif kind == "interface":
        told = [nic for nic in node.nics if nic["name"] == name]
    for one in told[:1]:
        known = [f"{key} {one[key]}" for key in ("name", "uuid", "pci", "rate") if key in one]
        yield f"{device}: {', '.join(known)}"


def _blind(id: str, nodes: Sequence[NodeFacts]) -> Iterator[str]:
    """Why something of this id is not known; resets and devices that came or went are no fault."""
    for node in nodes:
        told = node.counters
        for what, why in told["unread"].items():
            if _applies(id, what):
                yield f"{node.host}: {what}: {why}"
        for what in (*told["gone"], *told["came"]):
            if _applies(id, what):
                yield f"{node.host}: {what} was not there at both readings"
        for full in told["full"]:
            if _counts(id, full) and full.split()[-1] not in _SMALL:
                yield f"{node.host}: {full} stands at its end and cannot count on"
        for reset in told["reset"]:
            if _counts(id, reset):
                yield f"{node.host}: {reset} was reset meanwhile"


def _counts(id: str, counter: str) -> bool:
    """Whether an id looks at a counter, which is named with its device."""
    kind, name = counter.split()[0], counter.split(": ")[-1]
    return any(rule.kind == kind and _names(rule, name) for rule in FAMILIES[id])


def with_counters(findings: Sequence[Finding], world: World) -> list[Finding]:
    """What counters of a culprit's own nodes say, as evidence of that culprit: before its many pairs."""
    counts = [
        one for one in findings if one.id.startswith("COUNT") and one.status in ("warn", "fail")
    ]
    return [
        replace(one, evidence=(*_evidence(one, counts, world), *one.evidence))
        if one.id.startswith("LOC-") and one.status == "fail"
        else one
        for one in findings
    ]


def _evidence(culprit: Finding, counts: Sequence[Finding], world: World) -> Iterator[str]:
    words = set(culprit.subject.name.replace(",", " ").split())
    for node in world.nodes:
        ranks = any(f"rank {rank}" == culprit.subject.name for rank in node.ranks)
        if node.host in words or ranks:
            for one in counts:
                for text in (one.title, *one.evidence):
                    if text.startswith(f"{node.host}: "):
                        yield f"{text} ({one.id})"
