"""What a gate sees of its own node: the health checks of `check`, and what links did meanwhile.

No torch, no traffic, and nothing that asks another machine: the facts of `check` without names,
placement and copies of memory, and NVML without CUDA.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wirespeed.checks.counting import count_findings
from wirespeed.checks.gpu_faults import gpu_fault_findings
from wirespeed.checks.gpu_health import gpu_state_findings
from wirespeed.checks.node_health import cpu_findings, health_findings
from wirespeed.checks.registry import tell
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Subject, World
from wirespeed.node.counters import Found, Values, own_addresses, read_interfaces, read_ports
from wirespeed.node.gpu_reader import WITHOUT_CUDA
from wirespeed.node.gpus import READER, TIMEOUT, gather_gpus
from wirespeed.node.limits import gather_cpus, gather_limits
from wirespeed.node.machine import note_hardware
from wirespeed.node.nics import gather_nics, gather_rdma
from wirespeed.node.reading import Notes
from wirespeed.node.redact import allowed_environment

_ROOT = Path("/")
_OF_LINKS = ("COUNT-001", "COUNT-002")
"""What only a node's own links count; retransmissions and full queues may be others' doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Error counters of links at one look."""

    at: float
    """Seconds since 1970."""
    boot: str
    """The kernel's boot id: counters begin anew."""
    values: Values


def read_node(host: str, quiet_s: float, *, root: Path = _ROOT, nvml: Any = None) -> NodeFacts:
    """Facts about the node's health; nothing raises. quiet_s: NVML without a line for so long hangs."""
    notes = Notes(root)
    gather_cpus(notes)
    gather_limits(notes)
    note_hardware(notes)
    nics, rdma = gather_nics(notes), gather_rdma(notes)
    reader = (*READER, WITHOUT_CUDA)
    return NodeFacts(
        host=host,
        ranks=(0,),
        gpus=gather_gpus(notes, nvml, reader=reader, quiet_s=quiet_s),
        nics=nics,
        rdma=rdma,
        environment=allowed_environment(os.environ),
        facts=notes.facts,
        unknown=notes.unknown,
    )


def unread(host: str) -> NodeFacts:
    """Of a node that could not be looked at."""
    return NodeFacts(host=host, ranks=(0,), facts=Facts())


def node_findings(node: NodeFacts) -> list[Finding]:
    """Return the findings about a node by its facts alone; pure."""
    world = World(size=1, nodes=(node,), backend="", launcher="")
    found = [*health_findings(world), *cpu_findings(world)]
    return [*found, *gpu_fault_findings(world), *gpu_state_findings(world)]


def node_problems(node: NodeFacts) -> list[Finding]:
    """Return what is wrong with the node, by its facts alone; pure."""
    return problems(node_findings(node))


def problems(found: Sequence[Finding]) -> list[Finding]:
    return [one for one in found if one.status in ("warn", "fail")]


def silent_gpus(node: NodeFacts) -> str:
    """That NVML did not answer us in time; empty: it did, or told an error of its own."""
    told = [error for gpu in node.gpus for error in gpu.get("errors", ())]
    told += [failed] if (failed := node.facts.gpu_nvml_failed) else []
    ours = [error["text"] for error in told if (error["call"], error["code"]) == ("nvml", TIMEOUT)]
    return f"NVML: {ours[0]}" if ours and len(ours) == len(told) else ""


def blind_spots(node: NodeFacts) -> list[str]:
    """What is on the node and could not be looked at; pure."""
    if silent := silent_gpus(node):
        return [silent]
    why = node.unknown.get("gpus")
    if why and node.facts.gpu_on_bus and not node.facts.gpu_nvml_failed:
        return [f"{len(node.facts.gpu_on_bus)} GPUs on the bus: {why}"]
    return []


# Links since the last look.


def read_links(at: float, boot: str, root: Path = _ROOT) -> Counters:
    found = Found()
    read_ports(found, root)
    read_interfaces(found, root, own_addresses())
    values, _ = found.copy()
    return Counters(at=at, boot=boot, values=values)


def link_problems(node: NodeFacts, before: Counters | None, now: Counters) -> list[Finding]:
    """Links that went down or took wrong bits between two looks; pure."""
    from wirespeed.node.counters import Snapshot, growth

    if before is None or before.boot != now.boot or before.at >= now.at:
        return []
    told = growth(Snapshot(before.at, before.values, {}), Snapshot(now.at, now.values, {}))
    world = World(size=1, nodes=(replace(node, counters=told),), backend="", launcher="")
    return [
        replace(one, title=one.title.replace("of our traffic", "since the last look"))
        for one in problems(count_findings(world))
        if one.id in _OF_LINKS
    ]


def blamed(host: str, run: str, said: str, at: str) -> Finding:
    """GATE-008: what the last check of the node says of it."""
    who = Subject("node", host)
    return tell("GATE-008", "blamed", subject=who, host=host, run=run, said=said, at=at)
