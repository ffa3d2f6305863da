"""What should be so on every GPU, as NVML and CUDA tell it: GPU-001 to GPU-004, GPU-011 to GPU-013.

A GPU is held to what it can do and to its siblings: the other GPUs of its model on its node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from wirespeed.checks.registry import EXPLAINED, Blind, absent, not_applicable, worse
from wirespeed.model.records import Finding, NodeFacts, World

Gpu = dict[str, Any]
Status = Literal["warn", "fail"]


@dataclass(frozen=True, slots=True)
class Fault:
    """How grave, and what is wrong with which GPU."""

    status: Status
    text: str
    gpu: Gpu | None = None
    """None where it is about the node, or a device that NVML does not show."""

    @property
    def short(self) -> str:
        return f"GPU{self.gpu['index']}: {self.text}" if self.gpu else self.text

    def whole(self, node: NodeFacts) -> str:
        """`GPU5 (0000:1f:00.0, GPU-7c…, rank 5): the text`."""
        if not self.gpu:
            return self.text
        names = [self.gpu[key] for key in ("pci", "uuid") if key in self.gpu]
        names += [f"rank {rank}" for rank in self.gpu.get("ranks", ())]
        if self.gpu in hidden_gpus(node):
            names.append("outside CUDA_VISIBLE_DEVICES")
        who = f" ({', '.join(names)})" if names else ""
        return f"GPU{self.gpu['index']}{who}: {self.text}"


def hidden_gpus(node: NodeFacts) -> list[Gpu]:
    """GPUs outside of CUDA_VISIBLE_DEVICES; none where each rank has a variable of its own."""
    seen = [gpu for gpu in node.gpus if gpu.get("visible")]
    if "CUDA_VISIBLE_DEVICES" not in node.environment or len(seen) < len(node.ranks) > 1:
        return []
    return [gpu for gpu in node.gpus if gpu.get("visible") is False and not gpu.get("ranks")]


def _siblings(node: NodeFacts, gpu: Gpu) -> list[Gpu]:
    """The other GPUs of its model on its node that answer."""
    return [
        one
        for one in node.gpus
        if one is not gpu and one.get("name") == gpu.get("name") and not one.get("errors")
    ]


NO_GPU = "no GPU"


def has_no_gpu(node: NodeFacts) -> bool:
    """Return whether the node is known to have no GPU: none on the PCI bus, and none in NVML."""
    on_bus = node.facts.gpu_on_bus
    return not node.gpus and on_bus is not None and not on_bus and not node.facts.gpu_nvml_failed


def why_blind(node: NodeFacts, *keys: str) -> Blind:
    """Why NVML did not tell something about a GPU (the first reason counts), or about any."""
    if has_no_gpu(node):
        return Blind(NO_GPU, applies=False)
    if not node.gpus:
        return Blind(node.unknown.get("gpus", "NVML shows no GPU"))
    names = (
        f"gpu.{gpu['index']}.{key}" for gpu in node.gpus if not set(keys) & set(gpu) for key in keys
    )
    reasons = (node.unknown[name] for name in names if name in node.unknown)
    return Blind(next(reasons, "not reported"))


def faulty(
    id: str, node: NodeFacts, faults: Sequence[Fault], *, fix: str = "", **said: str
) -> Finding:
    """The gravest fault leads; all are told. `BUS` in `fix` becomes the first GPU's PCI address."""
    ordered = sorted(faults, key=lambda fault: fault.status != "fail")
    lines = tuple(fault.whole(node) for fault in ordered)
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    first = ordered[0].gpu or {}
    bus = str(first.get("pci", first.get("index", "BUS")))
    return worse(
        id,
        ordered[0].status,
        node,
        f"{ordered[0].short}{more}",
        saw="; ".join(lines),
        evidence=lines if len(lines) > 1 else (),
        fix=(fix or EXPLAINED[id].fix).replace("BUS", bus),
        **said,
    )


_BY_HARDWARE = ("hardware slowdown", "thermal, by hardware", "power brake")
"""Clocks at half or less. A power cap is normal for a GPU at full load."""
_LOADED = 0.85
"""Of the siblings' clock, for GPUs that are not idle: chips of one kind differ by less."""
_IDLE = 0.9
"""The same for idle ones, whose lowest clock is fixed."""


def gpu_findings(world: World) -> list[Finding]:
    """GPU-001 to GPU-004."""
    return _of_all(_GPU_CHECKS, world)


def gpu_state_findings(world: World) -> list[Finding]:
    """GPU-011 and GPU-012."""
    return _of_all(_STATE_CHECKS, world)


Faults = Callable[[Gpu, Sequence[Gpu]], Iterable[tuple[Status, str]]]
"""What is wrong with a GPU, given its siblings: how grave, and in a few words what."""
Checks = Mapping[str, tuple[Faults, tuple[str, ...]]]
"""By id: the faults, and what a GPU must tell to be checked."""


def _of_all(checks: Checks, world: World) -> list[Finding]:
    return [
        found
        for id, (faults, needs) in checks.items()
        for found in _of_gpus(id, faults, needs, world)
    ]


def _of_gpus(id: str, fault: Faults, needs: Sequence[str], world: World) -> list[Finding]:
    """A finding a node whose GPUs have the fault; else pass, or not checked where none tells."""
    if world.nodes and all(map(has_no_gpu, world.nodes)):
        return [not_applicable(id, EXPLAINED[id].about, NO_GPU)]
    gpus = [gpu for node in world.nodes for gpu in node.gpus]
    blind = [gpu for gpu in gpus if any(need not in gpu for need in needs)]
    found = []
    for node in world.nodes:
        faults = [
            Fault(status, text, gpu)
            for gpu in node.gpus
            for status, text in fault(gpu, _siblings(node, gpu))
        ]
        if faults:
            found.append(faulty(id, node, faults))
    if blind or not gpus:
        share = f" on {len(blind)} of {len(gpus)} GPUs" if gpus else ""
        title = f"{EXPLAINED[id].about} not checked{share}"
        found.append(absent(id, title, _why_blind(world, needs)))
    title = f"{EXPLAINED[id].good} on {len(gpus)} GPU(s)"
    return found or [Finding(id=id, status="pass", title=title)]


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


_GPU_CHECKS: Checks = {
    "GPU-001": (_pcie_fault, ("pcie_width", "pcie_width_max", "pcie_gen", "pcie_gen_max")),
    "GPU-002": (_ecc_fault, ("ecc_uncorrected",)),
    "GPU-003": (_mig_fault, ()),  # GPUs that have no MIG do not answer, and are good
    "GPU-004": (_slowdown, ("slowed_by",)),
}
_STATE_CHECKS: Checks = {
    "GPU-011": (_too_hot, ("temperature_C", "slowdown_C")),
    "GPU-012": (_slow_clock, ("clock_sm_MHz", "slowed_by")),
}


def judge_cuda(node: NodeFacts) -> Finding | Blind | None:
    """Joined by UUID. In MIG mode CUDA shows one instance to a process, so that it is not judged."""
    failed, check = node.facts.gpu_cuda_failed, EXPLAINED["GPU-013"]
    missing = [gpu for gpu in node.gpus if gpu.get("visible") is False]
    if failed:
        fault = Fault("fail", f"CUDA does not start: {failed['call']} gives {failed['text']}")
        return faulty(check.id, node, [fault], fix=check.fix_of(failed["code"]))
    if has_no_gpu(node):
        return Blind(NO_GPU, applies=False)
    if node.facts.gpu_visible is None:
        why = node.unknown.get("gpu.visible", "CUDA was not asked")
        return Blind("; ".join(filter(None, (why, _hidden(node)))))
    if any(gpu.get("mig") for gpu in node.gpus):
        return Blind("MIG is on: CUDA shows one instance to a process")
    if missing and "CUDA_VISIBLE_DEVICES" not in node.environment:
        faults = [Fault("fail", "CUDA does not show it", gpu) for gpu in missing]
        return faulty(check.id, node, faults, fix=check.fixes["else"])
    return None


def outside(world: World) -> str:
    """What a pass tells: GPUs that the variable hides."""
    return "; ".join(f"{node.host}: {text}" for node in world.nodes if (text := _hidden(node)))


def _hidden(node: NodeFacts) -> str:
    names = ", ".join(f"GPU{gpu['index']}" for gpu in hidden_gpus(node))
    return f"{names} outside of CUDA_VISIBLE_DEVICES" if names else ""
