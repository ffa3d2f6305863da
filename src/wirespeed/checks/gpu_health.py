"""What should be so on every GPU by itself, as NVML tells it: GPU-001 to GPU-004."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.checks.per_node import absent, worse
from wirespeed.records import Finding, NodeFacts, World

__all__ = ["gpu_findings"]

Gpu = dict[str, Any]

_SLOWED = ("hardware slowdown", "thermal, by software", "thermal, by hardware", "power brake")
"""Reasons that are faults; a power cap is normal for a GPU at full load."""


def gpu_findings(world: World) -> list[Finding]:
    """GPU-001 to GPU-004."""
    return [finding for check in _GPU_CHECKS for finding in _of_gpus(check, world)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuCheck:
    """One thing that can be wrong with a GPU."""

    id: str
    about: str
    good: str
    """What is so when no GPU has the fault."""
    fault: Callable[[Gpu], str]
    """What is wrong with a GPU in a few words, or nothing."""
    needs: tuple[str, ...] = ()
    """Without these a GPU is not checked."""
    status: Literal["warn", "fail"] = "warn"
    expected: str
    because: str
    costs: str
    fix: str


def _of_gpus(check: _GpuCheck, world: World) -> list[Finding]:
    """A finding a node whose GPUs have the fault; else pass, or not checked where none tells."""
    gpus = [gpu for node in world.nodes for gpu in node.gpus]
    blind = [gpu for gpu in gpus if any(need not in gpu for need in check.needs)]
    found = []
    for node in world.nodes:
        faults = [(gpu["index"], text) for gpu in node.gpus if (text := check.fault(gpu))]
        if faults:
            found.append(_faulty(check, node, faults))
    if blind or not gpus:
        share = f" on {len(blind)} of {len(gpus)} GPUs" if gpus else ""
        title = f"{check.about} not checked{share}"
        found.append(absent(check.id, title, _why_blind(world, check.needs)))
    title = f"{check.good} on {len(gpus)} GPU(s)"
    return found or [Finding(id=check.id, status="pass", title=title)]


def _why_blind(world: World, needs: Sequence[str]) -> str:
    """The first reason why a GPU did not tell, or why there is none."""
    for node in world.nodes:
        if "gpus" in node.unknown:
            return node.unknown["gpus"]
        missing = [(gpu["index"], need) for gpu in node.gpus for need in needs if need not in gpu]
        for index, need in missing:
            return node.unknown.get(f"gpu.{index}.{need}", f"{need} not reported")
    return "no GPU on any node"


def _faulty(check: _GpuCheck, node: NodeFacts, faults: Sequence[tuple[int, str]]) -> Finding:
    lines = tuple(f"GPU{index}: {text}" for index, text in faults)
    return worse(
        check.id,
        check.status,
        node,
        lines[0] if len(lines) == 1 else f"{lines[0]}, and {len(lines) - 1} more GPU(s)",
        saw="; ".join(lines),
        expected=check.expected,
        because=check.because,
        costs=check.costs,
        fix=check.fix,
        evidence=lines,
    )


def _pcie_fault(gpu: Gpu) -> str:
    """Width counts always; a GPU that is not in P0 may lower the generation to save power."""
    texts = []
    if "pcie_width" in gpu and gpu["pcie_width"] < gpu.get("pcie_width_max", 0):
        texts.append(f"PCIe x{gpu['pcie_width']} of x{gpu['pcie_width_max']}")
    busy = "pcie_gen" in gpu and gpu.get("performance_state") == 0
    if busy and gpu["pcie_gen"] < gpu.get("pcie_gen_max", 0):
        texts.append(f"PCIe generation {gpu['pcie_gen']} of {gpu['pcie_gen_max']}")
    return ", ".join(texts)


def _ecc_fault(gpu: Gpu) -> str:
    errors = gpu.get("ecc_uncorrected", 0)
    return f"{errors} uncorrected ECC error(s)" if errors else ""


def _slowdown(gpu: Gpu) -> str:
    reasons = ", ".join(why for why in gpu.get("slowed_by", ()) if why in _SLOWED)
    return f"clocks lowered: {reasons}" if reasons else ""


_GPU_CHECKS = (
    _GpuCheck(
        id="GPU-001",
        about="PCIe links",
        good="PCIe links at their full width",
        fault=_pcie_fault,
        needs=("pcie_width", "pcie_width_max", "pcie_gen", "pcie_gen_max"),
        expected="the width and generation that GPU and slot allow (NVML)",
        because="a riser, a slot or a card that is not seated, or a port set so in the BIOS",
        costs="copies to and from the host, and GPUDirect RDMA, at a part of the speed",
        fix="compare with nvidia-smi -q -d PCIE under load; reseat the card",
    ),
    _GpuCheck(
        id="GPU-002",
        about="GPU memory (ECC)",
        good="no uncorrected ECC errors",
        fault=_ecc_fault,
        needs=("ecc_uncorrected",),
        status="fail",
        expected="0 uncorrected errors since the driver was loaded (NVML)",
        because="memory of this GPU gave back what was not written to it",
        costs="wrong gradients, or a job that ends with Xid 48, 63, 64 or 94",
        fix="drain the node and reset the GPU; if errors come back, have it replaced",
    ),
    _GpuCheck(
        id="GPU-003",
        about="MIG mode",
        good="MIG mode not on",  # GPUs that have no MIG do not answer, and are good
        fault=lambda gpu: "MIG is on" if gpu.get("mig") else "",
        expected="off for training on several GPUs",
        because="MIG instances cannot reach each other by NVLink or PCIe peer access",
        costs="all traffic between GPUs goes through host memory",
        fix="nvidia-smi -mig 0, then reset the GPU",
    ),
    _GpuCheck(
        id="GPU-004",
        about="GPU clocks",
        good="clocks not lowered by heat or power supply",
        fault=_slowdown,
        needs=("slowed_by",),
        expected="no slowdown by heat or power supply (NVML clocks event reasons)",
        because="cooling or power supply of this GPU does not suffice",
        costs="one slow GPU slows every step of the whole job",
        fix="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; look at fans, inlet and power feeds",
    ),
)
