"""What should be so on every GPU, as NVML tells it: GPU-001 to GPU-004, GPU-011 and GPU-012.

A GPU is held to what it can do and to its siblings: the other GPUs of its model on its node.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.checks.gpu_named import Fault, Gpu, Status, faulty, siblings
from wirespeed.checks.per_node import absent
from wirespeed.checks.registry import EXPLAINED
from wirespeed.model.records import Finding, World

__all__ = ["gpu_findings", "gpu_state_findings"]

_BY_HARDWARE = ("hardware slowdown", "thermal, by hardware", "power brake")
"""Clocks at half or less. A power cap is normal for a GPU at full load."""
_LOADED = 0.85
"""Of the siblings' clock, for GPUs that are not idle: chips of one kind differ by less."""
_IDLE = 0.9
"""The same for idle ones, whose lowest clock is fixed."""


def gpu_findings(world: World) -> list[Finding]:
    """GPU-001 to GPU-004."""
    return [finding for check in _GPU_CHECKS for finding in _of_gpus(check, world)]


def gpu_state_findings(world: World) -> list[Finding]:
    """GPU-011 and GPU-012."""
    return [finding for check in _STATE_CHECKS for finding in _of_gpus(check, world)]


@dataclass(frozen=True, slots=True)
class _GpuCheck:
    """One thing that can be wrong with a GPU."""

    id: str
    fault: Callable[[Gpu, Sequence[Gpu]], Iterable[tuple[Status, str]]]
    """What is wrong with a GPU, given its siblings: how grave, and in a few words what."""
    needs: tuple[str, ...] = ()
    """Without these a GPU is not checked."""


def _of_gpus(check: _GpuCheck, world: World) -> list[Finding]:
    """A finding a node whose GPUs have the fault; else pass, or not checked where none tells."""
    gpus = [gpu for node in world.nodes for gpu in node.gpus]
    blind = [gpu for gpu in gpus if any(need not in gpu for need in check.needs)]
    found = []
    for node in world.nodes:
        faults = [
            Fault(status, text, gpu)
            for gpu in node.gpus
            for status, text in check.fault(gpu, siblings(node, gpu))
        ]
        if faults:
            found.append(faulty(check.id, node, faults))
    if blind or not gpus:
        share = f" on {len(blind)} of {len(gpus)} GPUs" if gpus else ""
        title = f"{EXPLAINED[check.id].about} not checked{share}"
        found.append(absent(check.id, title, _why_blind(world, check.needs)))
    title = f"{EXPLAINED[check.id].good} on {len(gpus)} GPU(s)"
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


def _pcie_fault(gpu: Gpu, others: Sequence[Gpu]) -> Iterable[tuple[Status, str]]:
    """Width counts always; a GPU that is not in P0 may lower the generation to save power."""
    yield from _link_fault(gpu, others, "pcie_width", "PCIe x{}", "x{}")
    if gpu.get("performance_state") == 0:
        awake = [one for one in others if one.get("performance_state") == 0]
        yield from _link_fault(gpu, awake, "pcie_gen", "PCIe generation {}", "{}")


def _link_fault(
    gpu: Gpu, others: Sequence[Gpu], key: str, words: str, short: str
) -> Iterable[tuple[Status, str]]:
    """One figure of the link against what is possible, and both against the siblings'."""
    now, most = gpu.get(key, 0), gpu.get(f"{key}_max", 0)
    theirs = max((one.get(key, 0) for one in others), default=0)
    possible = max((one.get(f"{key}_max", 0) for one in others), default=0)
    if not now:
        return
    text = words.format(now)
    if now < theirs:
        text += f" of {short.format(most)}" if now < most else ""
        yield "fail", f"{text}, its siblings have {short.format(theirs)}"
    elif now < most:
        yield "fail" if 2 * now <= most else "warn", f"{text} of {short.format(most)}"
    elif most < possible:
        yield "fail", f"{text} at most, its siblings can {short.format(possible)}"


def _ecc_fault(gpu: Gpu, _: Sequence[Gpu]) -> Iterable[tuple[Status, str]]:
    sram = gpu.get("sram", {})
    if errors := gpu.get("ecc_uncorrected", 0):
        yield "fail", f"{errors} uncorrected ECC error(s)"
    if sram.get("exceeded"):
        yield "fail", f"SRAM ECC errors above the threshold ({sram['uncorrected']} uncorrected)"
    elif sram.get("uncorrected"):
        yield "fail", f"{sram['uncorrected']} uncorrected SRAM ECC error(s)"


def _mig_fault(gpu: Gpu, _: Sequence[Gpu]) -> Iterable[tuple[Status, str]]:
    if gpu.get("mig"):
        yield "warn", "MIG is on"


def _slowdown(gpu: Gpu, _: Sequence[Gpu]) -> Iterable[tuple[Status, str]]:
    reasons = gpu.get("slowed_by", ())
    hard = [why for why in reasons if why in _BY_HARDWARE]
    soft = [why for why in reasons if why == "thermal, by software"]
    if hard or soft:
        yield "fail" if hard else "warn", f"clocks lowered: {', '.join(hard + soft)}"


def _too_hot(gpu: Gpu, _: Sequence[Gpu]) -> Iterable[tuple[Status, str]]:
    now, most = gpu.get("temperature_C"), gpu.get("slowdown_C")
    if now is not None and most and now >= most:
        yield "warn", f"{now} °C, and clocks are lowered from {most} °C on"


def _slow_clock(gpu: Gpu, others: Sequence[Gpu]) -> Iterable[tuple[Status, str]]:
    """Against siblings in the same state, where nothing tells why: no cap, no heat, no other state."""
    alike = [one for one in others if _state(one) == _state(gpu) and "clock_sm_MHz" in one]
    if gpu.get("slowed_by") or "clock_sm_MHz" not in gpu or not alike:
        return
    now, usual = gpu["clock_sm_MHz"], median(one["clock_sm_MHz"] for one in alike)
    least = min(one["clock_sm_MHz"] for one in alike)
    at_rest = gpu.get("idle") and 2 * usual <= gpu.get("clock_sm_max_MHz", 0)
    if now < (_IDLE * least if at_rest else _LOADED * usual):
        state = "idle" if gpu.get("idle") else "at work"
        yield "warn", f"SM clock {now} MHz, its siblings (also {state}) {usual:.0f} MHz"


def _state(gpu: Gpu) -> tuple[object, ...]:
    return gpu.get("performance_state"), gpu.get("idle"), bool(gpu.get("slowed_by"))


_GPU_CHECKS = (
    _GpuCheck("GPU-001", _pcie_fault, ("pcie_width", "pcie_width_max", "pcie_gen", "pcie_gen_max")),
    _GpuCheck("GPU-002", _ecc_fault, ("ecc_uncorrected",)),
    _GpuCheck("GPU-003", _mig_fault),  # GPUs that have no MIG do not answer, and are good
    _GpuCheck("GPU-004", _slowdown, ("slowed_by",)),
)
_STATE_CHECKS = (
    _GpuCheck("GPU-011", _too_hot, ("temperature_C", "slowdown_C")),
    _GpuCheck("GPU-012", _slow_clock, ("clock_sm_MHz", "slowed_by")),
)
