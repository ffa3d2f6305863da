"""From records to findings and a verdict. Pure: the same records always give the same verdict."""

from collections.abc import Sequence

from wirespeed.checks.correctness import correctness_findings
from wirespeed.checks.counting import count_findings
from wirespeed.checks.cpu_health import SHARED, beside_others, cpu_findings
from wirespeed.checks.gpu_faults import gpu_cuda_findings, gpu_fault_findings
from wirespeed.checks.gpu_health import gpu_state_findings
from wirespeed.checks.interfaces import interface_findings
from wirespeed.checks.links import link_findings, peer_findings
from wirespeed.checks.node_differences import difference_findings
from wirespeed.checks.node_health import health_findings
from wirespeed.checks.placement import placement_findings, placement_of
from wirespeed.checks.reach import reach_findings
from wirespeed.checks.registry import CHECKS
from wirespeed.checks.settings import settings_findings
from wirespeed.checks.speed import speed_findings
from wirespeed.model.records import Finding, Measurement, Verdict, Verification, World
from wirespeed.reference import Reference


def judge(
    command: str,
    world: World,
    measurements: Sequence[Measurement],
    verifications: Sequence[Verification],
    reference: Reference,
    only: frozenset[str] = frozenset(),
) -> list[Finding]:
    """All findings of a run that came to its end; `only` keeps those ids (empty: all).

    `bench` reports figures, not grades: its data are judged, its speed is not.
    """
    findings = [_joined(world)] if world.size else []
    findings += node_findings(world)
    findings += hardware_findings(world) + settings_findings(world, only)
    findings += interface_findings(world) + reach_findings(world)
    placed = [(node.host, placement_of(node)) for node in world.nodes]
    findings += placement_findings(placed, asserted="PLACE-001" in only)
    findings += count_findings(world)
    findings += correctness_findings(verifications)
    findings = [finding for finding in findings if not only or finding.id in only]
    speed = speed_findings(world, measurements, reference) if command == "check" else []
    speed = [finding for finding in speed if not only or finding.id in only]
    judged, shared = beside_others(world, speed, asked=not only or SHARED in only)
    return [*findings, *shared, *judged]


def _joined(world: World) -> Finding:
    ranks = f"{world.size} rank" + ("s" if world.size > 1 else "")
    nodes = f"{len(world.nodes)} node" + ("s" if len(world.nodes) != 1 else "")
    return Finding(
        id="WORLD-001",
        status="pass",
        title=f"{ranks} on {nodes} joined one world over {world.backend}",
    )


def verdict_of(findings: Sequence[Finding], measured: int) -> tuple[Verdict, int]:
    """READY needs something measured or checked, and nothing failed; unknown is never a pass.

    Nor is it said of nodes whose speed was to be judged and was not, as others measured there.
    measured: measurements and data checks that gave a result.
    """
    if any(finding.status == "fail" for finding in findings):
        return "NOT READY", 1
    shared = any(one.id == SHARED and one.status == "not_checked" for one in findings)
    if shared or not measured:
        return "UNKNOWN", 3
    return "READY", 0


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
