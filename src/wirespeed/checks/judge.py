"""From records to findings and a verdict. Pure: the same records always give the same verdict."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from wirespeed.checks.correctness import correctness_findings
from wirespeed.checks.counting import ALWAYS_COUNTED, count_findings
from wirespeed.checks.gpu_faults import gpu_cuda_findings, gpu_fault_findings
from wirespeed.checks.gpu_health import gpu_state_findings
from wirespeed.checks.interfaces import interface_findings
from wirespeed.checks.links import link_findings, peer_findings
from wirespeed.checks.node_differences import difference_findings
from wirespeed.checks.node_health import cpu_findings, health_findings
from wirespeed.checks.placement import placement_findings, placement_of
from wirespeed.checks.reach import reach_findings
from wirespeed.checks.registry import CHECKS, check_id, tell
from wirespeed.checks.settings import settings_findings
from wirespeed.checks.speed import baseline_findings, speed_findings
from wirespeed.checks.verdicts import SHARED
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.compute_records import Compute
from wirespeed.model.records import (
    Finding,
    Measurement,
    Status,
    Subject,
    Verification,
    World,
)
from wirespeed.model.storage_records import Storage
from wirespeed.model.training_records import Training
from wirespeed.model.units import counted
from wirespeed.reference import NoReference, Reference
from wirespeed.reference.known import Past


def judge(
    command: str,
    world: World,
    measurements: Sequence[Measurement],
    verifications: Sequence[Verification],
    reference: Reference,
    only: frozenset[str] = frozenset(),
    *,
    compute: Compute | None = None,
    past: Past = tuple,
    storage: Storage | None = None,
    training: Sequence[Training] = (),
) -> list[Finding]:
    """All findings of a run that came to its end; `only` keeps those ids (empty: all).

    The speed of `bench` and `train` is judged against baselines of the user alone. past: earlier runs,
    whose devices those of `compute` are compared with.
    """
    findings = [_joined(world)] if world.size else []
    if command == "check" and measurements and world.size == 1:
        findings.append(alone_finding(world))
    findings += node_findings(world)
    findings += hardware_findings(world) + settings_findings(world, only)
    findings += interface_findings(world) + reach_findings(world)
    placed = [(node.host, placement_of(node)) for node in world.nodes]
    findings += placement_findings(placed, asserted="PLACE-001" in only)
    findings += count_findings(world)
    findings += correctness_findings(verifications)
    speed = _speed(command, world, measurements, reference)
    if compute is not None:  # imported where they were measured
        from wirespeed.checks.compute import right_findings
        from wirespeed.checks.compute_rates import fast_findings

        findings += right_findings(compute)
        speed += fast_findings(compute, past) if command == "check" else []
    if training:
        from wirespeed.checks.training_speed import step_findings

        speed += step_findings(world, training, reference)
    if storage is not None:
        from wirespeed.checks.storage import storage_findings

        findings += storage_findings(storage)
    kept = only and only | {_BROKEN}  # whatever is asked of devices, one that broke did not give it
    findings = [finding for finding in findings if not only or finding.id in kept]
    speed = [finding for finding in speed if not only or finding.id in only]
    judged, shared = _beside_others(world, speed, asked=not only or SHARED in only)
    return [*findings, *shared, *judged]


def alone_finding(world: World) -> Finding:
    """Return what one rank alone leaves out: data and speed between ranks."""
    gpus = any(node.gpus for node in world.nodes)
    command = "wirespeed check --only compute" if gpus else "wirespeed check --ranks 2"
    return tell("WORLD-005", "one rank", next=command)


def _speed(
    command: str, world: World, measurements: Sequence[Measurement], reference: Reference
) -> list[Finding]:
    if command == "check":
        return speed_findings(world, measurements, reference)
    return baseline_findings(world, measurements, reference) if command == "bench" else []


def _joined(world: World) -> Finding:
    who = f"{counted(world.size, 'rank')} on {counted(len(world.nodes), 'node')}"
    title = f"{who} joined one world over {world.backend}"
    return Finding(id="WORLD-001", status="pass", title=title)


def count_listed(world: World) -> int:
    """Return how many checks a full check of this world lists; what cannot exist here is left out."""
    facts = judge("check", world, (), (), NoReference())
    ids = {finding.id for finding in facts if finding.status != "not_applicable"}
    for op, collective in CATALOGUE.items():
        ids |= {check_id("COL", op), check_id("LAT", op)}
        if collective.has_data:
            ids.add(check_id("BW", op))
    return len((ids | ALWAYS_COUNTED) & CHECKS.keys())


def node_findings(world: World) -> list[Finding]:
    """Every finding about the nodes of `world`, by id; pure. A world without nodes has none."""
    if not world.nodes:
        return []
    findings = difference_findings(world) + health_findings(world)
    order = list(CHECKS)
    return sorted(findings, key=lambda finding: order.index(finding.id))


def hardware_findings(world: World) -> list[Finding]:
    """NODE-010 to NODE-016 and GPU-005 to GPU-013, in the order of their ids."""
    return [
        *link_findings(world),
        *peer_findings(world),
        *cpu_findings(world),
        *gpu_fault_findings(world),
        *gpu_state_findings(world),
        *gpu_cuda_findings(world),
    ]


# Other runs on the same nodes.

_BROKEN = "COMP-007"
_SKEW = "SKEW-001"


def _beside_others(
    world: World, speed: Sequence[Finding], *, asked: bool
) -> tuple[list[Finding], list[Finding]]:
    """The findings about speed as they stand with other runs beside this one, and who those were.

    asked: tell of them also where nothing was judged by its speed: figures are shown.
    """
    crowded = {node.host: told for node in world.nodes if (told := node.facts.neighbours)}
    judged = any(map(_was_timed, speed))
    if not crowded or not (judged or asked):
        return list(speed), []
    host = max(crowded, key=lambda one: len(crowded[one]))
    others, more = crowded[host], len(crowded) - 1
    since = _clock(min(one["since"] for one in others))
    nodes = f" and on {counted(more, 'more node')}" if more else ""
    runs = counted(len(others), "other wirespeed run")
    reason = f"{runs} measured on {host}{nodes} meanwhile, since {since}"
    lines = (
        f"{one['command']} of pid {one['pid']}, since {_clock(one['since'])}" for one in others[:4]
    )
    shared = tell(
        SHARED,
        "not judged" if judged else "shared",
        subject=Subject("node", host),
        saw="; ".join(lines),
        what=reason,
    )
    held_back = [_held_back(one, reason) if _was_timed(one) else one for one in speed]
    return held_back, [shared]


def _was_timed(one: Finding) -> bool:
    """What is too noisy to be judged is so because of the others, too."""
    return one.id != _SKEW or one.status != "not_checked"


def _held_back(one: Finding, reason: str) -> Finding:
    """What was seen stays; nobody is accused by it."""
    return replace(
        one,
        status="not_checked",
        title="stragglers not checked" if one.id == _SKEW else one.title,
        subject=Subject("job", "job"),
        because=reason,
        costs="",
        fix="",
        next="",
    )


def _clock(since: int) -> str:
    return datetime.fromtimestamp(since, UTC).strftime("%H:%M:%S UTC")


# Worlds that ended badly: the cause comes first.

_PREVENTS_JOINING = ("NET-001", "NET-002", "NET-004", "NET-005")
"""Findings that, where they fail, keep a world of several nodes from being joined at all."""
_STALLS = ("NET-005",)
"""Findings that, where they fail, make ranks hang in a collective."""
_BREAKS = ("COUNT-001",)
"""Findings that, where they fail, make ranks raise in a collective."""


def cause_first(
    ended: Sequence[Finding], proven: Sequence[Finding], *, joined: bool
) -> list[Finding]:
    """Findings of a run that ended badly; `ended`: the watchdog's, `proven`: what the facts show.

    The watchdog sees who raised, hung or never came. Where a failing fact of a node or the network
    says why, what the watchdog saw becomes its consequence: a warning.
    """
    hung = any(one.id.startswith("HANG-") for one in ended)
    raised = any(one.id.startswith("RAISED-") for one in ended)
    explains = _PREVENTS_JOINING if not joined else _STALLS if hung else _BREAKS if raised else ()
    causes = [one for one in proven if one.status == "fail" and one.id in explains]
    if not causes:
        return [*ended, *proven]
    rest = [one for one in proven if one not in causes]
    return [*causes, *(_consequence(one, causes) for one in ended), *rest]


def _consequence(seen: Finding, causes: Sequence[Finding]) -> Finding:
    """A warning that says whose consequence it is."""
    names = ", ".join(dict.fromkeys(f"{one.id} on {one.subject.name}" for one in causes))
    status: Status = "warn" if seen.status == "fail" else seen.status
    because, fix, next = f"a consequence of {names}", causes[0].fix, causes[0].next
    return replace(seen, status=status, because=because, fix=fix, next=next)
