"""Whether the nodes stand close together: regions, zones, placement groups, racks, machines.

A node whose place is not known is never taken for one that stands with the others.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from wirespeed.checks.per_node import worded
from wirespeed.model.records import Finding, NodeFacts
from wirespeed.node.placement.located import Placement

_IDS = ("PLACE-001", "PLACE-002")

_SHOWN = 4
"""Places in a title, and hosts of one place; the evidence has them all."""
Placed = Sequence[tuple[str, Placement]]


@dataclass(frozen=True, slots=True)
class _Spread:
    """Hosts by where they are, most hosts first, and those of which it is not known, with why."""

    hosts: dict[str, list[str]]
    unknown: list[tuple[str, str]]


def placement_of(node: NodeFacts) -> Placement:
    """The placement that was noted among a node's facts."""
    told = {
        field.name: getattr(node.facts, f"placement_{field.name}", None)
        for field in fields(Placement)
    }
    known = {name: value for name, value in told.items() if value is not None}
    silent = "" if "zone" in known or "zone_id" in known else "not reported"
    return Placement(reason=node.unknown.get("placement", silent), **known)


def placement_findings(placed: Placed, *, asserted: bool = False) -> list[Finding]:
    """PLACE-001 and PLACE-002 about nodes by host name; pure. No nodes, no findings.

    asserted: one zone was asked for by name (`check --only placement`): several zones fail then.
    """
    if not placed:
        return []
    if len(placed) == 1:
        return [_unchecked(id, {}, [], because="one node") for id in _IDS]
    zones = _zones(placed, "fail" if asserted else "warn")
    if zones.status in ("warn", "fail"):
        because = "the nodes are not even in one zone (PLACE-001)"
        return [zones, _unchecked("PLACE-002", {}, [], because=because)]
    return [zones, *_nearness(placed)]


# Zones and regions.


def _zones(placed: Placed, several: Literal["warn", "fail"]) -> Finding:
    regions = _spread(placed, {host: one.region for host, one in placed})
    if len(regions.hosts) > 1:
        return _apart("fail", "regions", regions, placed)
    zones = _spread(placed, _zone_labels(placed))
    if len(zones.hosts) > 1:
        return _apart(several, "availability zones", zones, placed)
    if zones.unknown:
        seen = zones.hosts or {f"region {name}": hosts for name, hosts in regions.hosts.items()}
        return _unchecked("PLACE-001", seen, zones.unknown)
    (zone,) = zones.hosts
    names = ", ".join(sorted({one.zone for _, one in placed if one.zone}))
    return Finding(
        id="PLACE-001",
        status="pass",
        title=f"all {len(placed)} nodes are in one availability zone, {zone}",
        saw=f"{names or zone}, told by {_sources(placed)}",
        expected="one zone for all nodes",
    )


def _zone_labels(placed: Placed) -> dict[str, str]:
    """By host what its zone is called: the ID where one is known, also by other nodes' pairs."""
    ids: dict[str, set[str]] = defaultdict(set)
    for _, one in placed:
        if one.zone and one.zone_id:
            ids[one.zone].add(one.zone_id)
    # Where an ID has no name, a name without ID may be the same zone or another.
    nameless = {one.zone_id for _, one in placed if not one.zone} - {
        "",
        *set().union(*ids.values()),
    }
    labels = {}
    for host, one in placed:
        meant = {one.zone_id} if one.zone_id else ids.get(one.zone, set())
        unclear = len(meant) > 1 or (not meant and nameless)
        labels[host] = "" if unclear else next(iter(meant), one.zone)
    return labels


_COSTS = {
    "aws": "longer paths for every collective; AWS bills traffic between zones in both directions, "
    "and EFA cannot cross zones, so that NCCL is left with TCP",
    "azure": "longer paths for every collective; InfiniBand connects only VMs of one scale set or "
    "availability set",
    "gcp": "longer paths for every collective; Google Cloud bills traffic between zones, and a "
    "compact placement policy holds within one zone only",
}
_FAR = "longer paths for every collective, which waits for the slowest of them"
_FIXES = {
    "aws": "start all nodes in one subnet, with a cluster placement group",
    "azure": "one scale set with `--zones N` for one N, or a proximity placement group",
    "gcp": "one zone for all VMs, with a compact placement policy",
    "kubernetes": "pod affinity with topologyKey topology.kubernetes.io/zone, or a nodeSelector",
    "slurm": "sbatch --switches=1, or a partition of nodes that stand together",
}
_NEAR = "choose nodes that stand together"


def _apart(status: Literal["warn", "fail"], what: str, spread: _Spread, placed: Placed) -> Finding:
    return worded(
        id="PLACE-001",
        status=status,
        title=f"the nodes are spread over {len(spread.hosts)} {what}: {_listed(spread.hosts)}",
        saw=f"{what} told by {_sources(placed)}",
        costs=_for_source(_COSTS, placed, _FAR),
        fix=_for_source(_FIXES, placed, _NEAR),
        next="wirespeed locate",
        evidence=_evidence(spread),
    )


# Within a zone.


def _nearness(placed: Placed) -> list[Finding]:
    groups = _spread(placed, {host: one.placement_group for host, one in placed})
    racks = _spread(placed, {host: one.rack for host, one in placed})
    machines = _spread(placed, {host: one.physical_host for host, one in placed})
    found = []
    if len(groups.hosts) > 1:
        found.append(_far("placement groups", groups, placed))
    if _too_many(racks):
        found.append(_far("racks", racks, placed))
    if shared := {name: hosts for name, hosts in machines.hosts.items() if len(hosts) > 1}:
        found.append(_shared(shared))
    return found or [_near({"placement group": groups, "rack": racks, "machine": machines})]


def _too_many(racks: _Spread) -> bool:
    """More racks than these hosts need, by how many of them one rack here holds; or no neighbours."""
    sizes = [len(hosts) for hosts in racks.hosts.values()]
    if len(sizes) < 2:
        return False
    return max(sizes) == 1 or len(sizes) > math.ceil(sum(sizes) / max(sizes))


def _far(what: str, spread: _Spread, placed: Placed) -> Finding:
    return _warn(
        f"the nodes are spread over {len(spread.hosts)} {what}: {_listed(spread.hosts)}",
        saw=f"{what} told by {_sources(placed)}",
        expected="one placement group, and no more racks than the number of nodes needs",
        because="the scheduler or the cloud took the nodes where it found them",
        costs="longer paths through switches that other jobs use as well",
        fix=_for_source(_FIXES, placed, _NEAR),
        evidence=_evidence(spread),
    )


def _shared(machines: Mapping[str, Sequence[str]]) -> Finding:
    return _warn(
        f"nodes share a physical machine: {_listed(machines)}",
        saw=f"{len(machines)} machine(s) with more than one node",
        expected="a machine for each node",
        because="nothing keeps the pods or VMs on machines of their own",
        costs="they share its network card, memory and CPUs, and what is measured between them is "
        "not the network",
        fix="pod anti-affinity with topologyKey kubernetes.io/hostname, or larger instances",
        evidence=tuple(f"{name}: {', '.join(hosts)}" for name, hosts in machines.items()),
    )


def _warn(title: str, **said: Any) -> Finding:
    return worded(id="PLACE-002", status="warn", title=title, next="wirespeed locate", **said)


def _near(aspects: Mapping[str, _Spread]) -> Finding:
    """Nothing is wrong with what is known; a pass only if one aspect of nearness is known of all."""
    known = {name: spread for name, spread in aspects.items() if spread.hosts}
    whole = {name: spread for name, spread in known.items() if not spread.unknown}
    partly = {name: spread for name, spread in known.items() if name not in whole}
    for name, spread in partly.items():
        hosts = ", ".join(host for host, _ in spread.unknown)
        because = f"no {name} is known of {hosts}"
        return _unchecked("PLACE-002", spread.hosts, [], because=because)
    if not {"placement group", "rack"} & set(whole):
        because = "no source tells a placement group or rack"
        return _unchecked("PLACE-002", {}, [], because=because)
    said = [
        f"{len(spread.hosts)} {name}(s): {_listed(spread.hosts)}" for name, spread in whole.items()
    ]
    return Finding(
        id="PLACE-002",
        status="pass",
        title=" and ".join(_counted(name, len(spread.hosts)) for name, spread in whole.items())
        + f" for {sum(len(hosts) for hosts in next(iter(whole.values())).hosts.values())} nodes",
        saw="; ".join(said),
        expected="one placement group, and no more racks than the number of nodes needs",
    )


def _counted(name: str, count: int) -> str:
    return f"{count} {name}{'s' if count > 1 else ''}"


# Words.


def _spread(placed: Placed, labels: Mapping[str, str]) -> _Spread:
    hosts: dict[str, list[str]] = defaultdict(list)
    unknown = []
    for host, one in placed:
        if label := labels[host]:
            hosts[label].append(host)
        else:
            told = one.zone or one.zone_id
            odd = (
                "its zone has no name or ID in common with the others'" if told else "not reported"
            )
            unknown.append((host, one.reason or odd))
    ordered = sorted(hosts.items(), key=lambda item: -len(item[1]))
    return _Spread(dict(ordered), unknown)


def _unchecked(
    id: str,
    seen: Mapping[str, Sequence[str]],
    unknown: Sequence[tuple[str, str]],
    because: str = "",
) -> Finding:
    reasons: dict[str, list[str]] = defaultdict(list)
    for host, reason in unknown:
        reasons[reason].append(host)
    if reasons:
        because = "; ".join(f"{_some(hosts)}: {reason}" for reason, hosts in reasons.items())
    what = "zones of the nodes" if id == "PLACE-001" else "nearness within the zone"
    return Finding(
        id=id,
        status="not_checked",
        title=f"{what} not compared",
        saw=_listed(seen),
        because=because,
        fix="set WIRESPEED_ZONE on each node to where it stands" if unknown else "",
        next="wirespeed check --only PLACE" if unknown else "",
        evidence=tuple(f"{host}: {reason}" for host, reason in unknown),
    )


def _some(hosts: Sequence[str]) -> str:
    more = len(hosts) - _SHOWN
    return ", ".join(hosts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _listed(hosts: Mapping[str, Sequence[str]]) -> str:
    shown = [f"{name} ({_some(found)})" for name, found in list(hosts.items())[:_SHOWN]]
    more = len(hosts) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _evidence(spread: _Spread) -> tuple[str, ...]:
    known = [f"{name}: {', '.join(hosts)}" for name, hosts in spread.hosts.items()]
    return (*known, *(f"{host}: not known, {reason}" for host, reason in spread.unknown))


def _sources(placed: Placed) -> str:
    return ", ".join(dict.fromkeys(one.source for _, one in placed if one.source))


def _for_source(texts: Mapping[str, str], placed: Placed, otherwise: str) -> str:
    sources = _sources(placed).split(", ")
    return next((text for name, text in texts.items() if name in sources), otherwise)
