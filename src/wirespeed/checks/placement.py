"""Whether the nodes stand close together: regions, zones, placement groups, racks, machines.

A node whose place is not known is never taken for one that stands with the others.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from wirespeed.checks.registry import EXPLAINED, by_reason, not_applicable, tell
from wirespeed.model.records import Finding, NodeFacts
from wirespeed.model.units import counted, listed
from wirespeed.node.placement import Placement

_IDS = ("PLACE-001", "PLACE-002")
_LABELS = {"PLACE-001": "zones of the nodes", "PLACE-002": "nearness within the zone"}
"""By id, what is compared."""

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
        return [not_applicable(id, _LABELS[id], "one node") for id in _IDS]
    zones = _zones(placed, "fail" if asserted else "warn")
    if zones.status in ("warn", "fail"):
        because = "the nodes are not even in one zone (PLACE-001)"
        return [zones, _unchecked("PLACE-002", {}, [], because=because)]
    return [zones, *_nearness(placed)]


# Zones and regions.


def _zones(placed: Placed, several: Literal["warn", "fail"]) -> Finding:
    costs = _for_source(EXPLAINED["PLACE-001"].costs_of, placed)
    regions = _spread(placed, {host: one.region for host, one in placed})
    if len(regions.hosts) > 1:
        return _apart("PLACE-001", "regions", regions, placed, status="fail", costs=costs)
    zones = _spread(placed, _zone_labels(placed))
    if len(zones.hosts) > 1:
        return _apart("PLACE-001", "availability zones", zones, placed, status=several, costs=costs)
    if zones.unknown:
        seen = zones.hosts or {f"region {name}": hosts for name, hosts in regions.hosts.items()}
        return _unchecked("PLACE-001", seen, zones.unknown)
    (zone,) = zones.hosts
    names = ", ".join(sorted({one.zone for _, one in placed if one.zone})) or zone
    count, sources = len(placed), _sources(placed)
    return tell("PLACE-001", "one zone", nodes=count, zone=zone, names=names, sources=sources)


def _zone_labels(placed: Placed) -> dict[str, str]:
    """By host what its zone is called: the ID where one is known, also by other nodes' pairs."""
    ids: dict[str, set[str]] = defaultdict(set)
    for _, one in placed:
        if one.zone and one.zone_id:
            ids[one.zone].add(one.zone_id)
    # Where an ID has no name, a name without ID may be the same zone or another.
    nameless = {one.zone_id for _, one in placed if one.zone_id and not one.zone}
    nameless -= set().union(*ids.values())
    labels = {}
    for host, one in placed:
        meant = {one.zone_id} if one.zone_id else ids.get(one.zone, set())
        unclear = len(meant) > 1 or (not meant and nameless)
        labels[host] = "" if unclear else next(iter(meant), one.zone)
    return labels


def _apart(id: str, what: str, spread: _Spread, placed: Placed, **values: Any) -> Finding:
    return tell(
        id,
        "spread",
        evidence=_evidence(spread),
        count=len(spread.hosts),
        what=what,
        listed=_listed(spread.hosts),
        sources=_sources(placed),
        fix=_for_source(EXPLAINED["PLACE-001"].fixes, placed),
        **values,
    )


# Within a zone.


def _nearness(placed: Placed) -> list[Finding]:
    groups = _spread(placed, {host: one.placement_group for host, one in placed})
    racks = _spread(placed, {host: one.rack for host, one in placed})
    machines = _spread(placed, {host: one.physical_host for host, one in placed})
    found = []
    if len(groups.hosts) > 1:
        found.append(_apart("PLACE-002", "placement groups", groups, placed))
    if _too_many(racks):
        found.append(_apart("PLACE-002", "racks", racks, placed))
    if shared := {name: hosts for name, hosts in machines.hosts.items() if len(hosts) > 1}:
        lines = [f"{name}: {', '.join(hosts)}" for name, hosts in shared.items()]
        seen = {"count": len(shared), "listed": _listed(shared)}
        found.append(tell("PLACE-002", "shared", evidence=lines, **seen))
    return found or [_near({"placement group": groups, "rack": racks, "machine": machines})]


def _too_many(racks: _Spread) -> bool:
    """More racks than these hosts need, by how many of them one rack here holds; or no neighbours."""
    sizes = [len(hosts) for hosts in racks.hosts.values()]
    if len(sizes) < 2:
        return False
    return max(sizes) == 1 or len(sizes) > math.ceil(sum(sizes) / max(sizes))


def _near(aspects: Mapping[str, _Spread]) -> Finding:
    """Nothing is wrong with what is known; a pass only if one aspect of nearness is known of all."""
    known = {name: spread for name, spread in aspects.items() if spread.hosts}
    for name, spread in known.items():
        if spread.unknown:
            hosts = ", ".join(host for host, _ in spread.unknown)
            because = f"no {name} is known of {hosts}"
            return _unchecked("PLACE-002", spread.hosts, [], because=because)
    if not {"placement group", "rack"} & set(known):
        because = "no source tells a placement group or rack"
        return _unchecked("PLACE-002", {}, [], because=because)
    first = next(iter(known.values()))
    return tell(
        "PLACE-002",
        "near",
        what=" and ".join(counted(len(spread.hosts), name) for name, spread in known.items()),
        nodes=sum(map(len, first.hosts.values())),
        saw="; ".join(
            f"{len(spread.hosts)} {name}(s): {_listed(spread.hosts)}"
            for name, spread in known.items()
        ),
    )


# Words.


def _spread(placed: Placed, labels: Mapping[str, str]) -> _Spread:
    hosts: dict[str, list[str]] = defaultdict(list)
    unknown = []
    for host, one in placed:
        if label := labels[host]:
            hosts[label].append(host)
        else:
            odd = "its zone has no name or ID in common with the others'"
            odd = odd if one.zone or one.zone_id else "not reported"
            unknown.append((host, one.reason or odd))
    ordered = sorted(hosts.items(), key=lambda item: -len(item[1]))
    return _Spread(dict(ordered), unknown)


def _unchecked(
    id: str,
    seen: Mapping[str, Sequence[str]],
    unknown: Sequence[tuple[str, str]],
    because: str = "",
) -> Finding:
    if reasons := by_reason((reason, host) for host, reason in unknown):
        because = "; ".join(
            f"{listed(hosts, _SHOWN)}: {reason}" for reason, hosts in reasons.items()
        )
    return Finding(
        id=id,
        status="not_checked",
        title=f"{_LABELS[id]} not compared",
        saw=_listed(seen),
        because=because,
        fix="set WIRESPEED_ZONE on each node to where it stands" if unknown else "",
        next="wirespeed check --only PLACE" if unknown else "",
        evidence=tuple(f"{host}: {reason}" for host, reason in unknown),
    )


def _listed(hosts: Mapping[str, Sequence[str]]) -> str:
    return listed([f"{name} ({listed(some, _SHOWN)})" for name, some in hosts.items()], _SHOWN)


def _evidence(spread: _Spread) -> tuple[str, ...]:
    known = [f"{name}: {', '.join(hosts)}" for name, hosts in spread.hosts.items()]
    return (*known, *(f"{host}: not known, {reason}" for host, reason in spread.unknown))


def _sources(placed: Placed) -> str:
    return ", ".join(dict.fromkeys(one.source for _, one in placed if one.source))


def _for_source(texts: Mapping[str, str], placed: Placed) -> str:
    sources = _sources(placed).split(", ")
    return next((text for name, text in texts.items() if name in sources), texts["else"])
