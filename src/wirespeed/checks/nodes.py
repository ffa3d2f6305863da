"""Findings about the nodes: how they differ, and what is wrong with one by itself."""

from wirespeed.checks.node_differences import difference_findings
from wirespeed.checks.node_health import health_findings
from wirespeed.checks.registry import CHECKS
from wirespeed.model.records import Finding, World

__all__ = ["node_findings"]


def node_findings(world: World) -> list[Finding]:
    """Every finding about the nodes of `world`, by id; pure. A world without nodes has none."""
    if not world.nodes:
        return []
    findings = difference_findings(world) + health_findings(world)
    order = list(CHECKS)
    return sorted(findings, key=lambda finding: order.index(finding.id))
