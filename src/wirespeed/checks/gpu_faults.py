"""Faults of GPUs that stay until somebody acts: GPU-005 to GPU-010.

How grave a driver error is, and what to do, goes by its Xid number, or by what its text says.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wirespeed.checks.gpu_health import Fault, Gpu, Status, faulty, judge_cuda, outside, why_blind
from wirespeed.checks.gpu_links import judge_growth, judge_links, most_links
from wirespeed.checks.per_node import Blind, Judge, judge_nodes
from wirespeed.model.node_facts import Xid
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.model.units import format_duration
from wirespeed.reference.xids import LINK, LINK_BY_TEXT, REPORT, XIDS, Severity

_DAY_S = 86400.0


def gpu_fault_findings(world: World) -> list[Finding]:
    """GPU-005 to GPU-010."""
    linked = most_links(world)
    return [
        *_check("GPU-005", world, _judge_memory),
        *_check("GPU-006", world, _judge_log, saw=_of_the_log(world)),
        *_check("GPU-007", world, lambda node: judge_links(node, linked)),
        *_check("GPU-008", world, _judge_bus, saw=_withheld(world)),
        *_check("GPU-009", world, _judge_answers),
        *_check("GPU-010", world, judge_growth),
    ]


def _check(id: str, world: World, judge: Judge, saw: str = "") -> list[Finding]:
    nodes = [node for node in world.nodes if _concerned(node)]
    none = next(
        (node.unknown["gpus"] for node in world.nodes if "gpus" in node.unknown),
        "no GPU on any node",
    )
    return judge_nodes(id, nodes, judge, none=none, saw=saw)


def gpu_cuda_findings(world: World) -> list[Finding]:
    """GPU-013."""
    return _check("GPU-013", world, judge_cuda, saw=outside(world))


def _concerned(node: NodeFacts) -> bool:
    """Whether there is a GPU, though it may be one that nobody answers for."""
    known = node.facts.gpu_on_bus or node.facts.gpu_nvml_failed
    return bool(node.gpus or known)


# GPU-005.


def _judge_memory(node: NodeFacts) -> Finding | Blind | None:
    faults = [fault for gpu in node.gpus for fault in _memory_faults(gpu)]
    if faults:
        return faulty(
            "GPU-005",
            node,
            faults,
        )
    if not node.gpus or any(not _tells_memory(gpu) for gpu in node.gpus):
        return why_blind(node, "remapped_rows", "pages_pending")
    return None


def _tells_memory(gpu: Gpu) -> bool:
    return "remapped_rows" in gpu or "pages_pending" in gpu


def _memory_faults(gpu: Gpu) -> Iterable[Fault]:
    rows = gpu.get("remapped_rows", {})
    if rows.get("failure"):
        yield Fault("fail", "a memory row could not be remapped", gpu)
    if rows.get("pending"):
        yield Fault("fail", "a memory row waits to be remapped, reset the GPU", gpu)
    if gpu.get("pages_pending"):
        yield Fault("fail", "memory pages wait to be retired, reset the GPU", gpu)
    if rows.get("uncorrected") and not rows.get("failure"):
        text = f"{rows['uncorrected']} memory row(s) remapped after uncorrected errors"
        yield Fault("warn", text, gpu)


# GPU-006.


def _judge_log(node: NodeFacts) -> Finding | Blind | None:
    errors = node.facts.gpu_xids
    if errors is None:
        return Blind(node.unknown.get("gpu.xids", "kernel log not reported"))
    judged = [(error, meaning_of(error["kind"], error["code"], error["text"])) for error in errors]
    told = [(error, means) for error, means in judged if means.severity != "ignore"]
    if not told:
        return None
    faults = [
        Fault(_severity(node, error, means.severity), _say(node, error)) for error, means in told
    ]
    order = sorted(range(len(faults)), key=lambda place: faults[place].status != "fail")
    means = [told[place][1] for place in order]
    return faulty(
        "GPU-006",
        node,
        faults,
        expected=f"no critical Xid {_since(node)} (NVIDIA's Xid catalog)",
        because="; ".join(dict.fromkeys(one.what for one in means)),
        fix="; ".join(dict.fromkeys(one.fix for one in means)),
    )


def _severity(node: NodeFacts, error: Xid, severity: str) -> Status:
    """What is longer ago than a day may be repaired: the log keeps it until the next start."""
    return "fail" if severity == "fail" and _age_s(node, error) < _DAY_S else "warn"


def _age_s(node: NodeFacts, error: Xid) -> float:
    """Seconds since the last message; 0 where the time now is not known."""
    now = node.facts.uptime_s
    return 0.0 if now is None else max(0.0, now - error["last_s"])


def _say(node: NodeFacts, error: Xid) -> str:
    indices = (gpu["index"] for gpu in node.gpus if gpu.get("pci", "").startswith(error["pci"]))
    index = next(indices, None)
    where = error["pci"] if index is None else f"GPU{index} ({error['pci']})"
    often = f" {error['count']} times, last" if error["count"] > 1 else ""
    means = meaning_of(error["kind"], error["code"], error["text"])
    ago = _ago(_age_s(node, error))
    return (
        f"{where}: {error['kind']} {error['code']}, {means.what},{often} {ago} ago: {error['text']}"
    )


def _ago(seconds: float) -> str:
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} days"
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else format_duration(seconds)


def _since(node: NodeFacts) -> str:
    """What the kernel log covers: its oldest records are overwritten first."""
    first = node.facts.kernel_log_first_s or 0.0
    if not first or node.facts.uptime_s is None:
        return "since the start of the system"
    return f"in the kernel log, which covers {_ago(node.facts.uptime_s - first)}"


def _of_the_log(world: World) -> str:
    """What a pass tells: errors that do not count, and logs that do not reach back to the start."""
    texts = []
    for node in world.nodes:
        errors = node.facts.gpu_xids or []
        if errors:
            codes = ", ".join(sorted({str(error["code"]) for error in errors}))
            texts.append(f"{node.host}: Xid {codes}, nothing to do at the GPU")
        if node.facts.kernel_log_first_s:
            texts.append(f"{node.host}: {_since(node)}")
    return "; ".join(texts)


# GPU-008.


def _judge_bus(node: NodeFacts) -> Finding | Blind | None:
    faults = list(_bus_faults(node))
    if faults:
        return faulty(
            "GPU-008",
            node,
            faults,
        )
    if "gpus" in node.unknown or node.facts.gpu_count is None:
        return Blind(node.unknown.get("gpus", "number of GPUs not reported by NVML"))
    if node.facts.gpu_on_bus is None:
        return Blind(node.unknown.get("gpu.on_bus", "PCI bus not reported"))
    return None


def _withheld(world: World) -> str:
    """What a pass tells: GPUs on the bus that are given to others."""
    counts = [(node, len(node.facts.gpu_on_bus or ())) for node in world.nodes]
    return "; ".join(
        f"{node.host}: {node.facts.gpu_count} of {bus} GPUs on the bus are given to us by "
        f"{node.facts.machine_hides_devices}"
        for node, bus in counts
        if node.facts.gpu_count is not None and node.facts.gpu_count < bus
    )


def _bus_faults(node: NodeFacts) -> Iterable[Fault]:
    facts = node.facts
    mute = facts.gpu_mute or []
    for address in mute:
        yield Fault("fail", f"GPU at {address} has fallen off the bus (reads as ones only)")
    if facts.gpu_count is None:  # without NVML nothing says that these GPUs are to be used
        return
    driverless = [one for one in (facts.gpu_driverless or ()) if one not in mute]
    for address in driverless:
        yield Fault("fail", f"GPU at {address} has no driver")
    on_bus = facts.gpu_on_bus or []
    missing = len(on_bus) - facts.gpu_count
    if missing > len({*mute, *driverless}) and not facts.machine_hides_devices:
        # Addresses that NVML does not show, where all others told theirs.
        shown = {gpu["pci"] for gpu in node.gpus if "pci" in gpu}
        others = [one for one in on_bus if one not in shown]
        which = f" (not {', '.join(others)})" if len(shown) == facts.gpu_count and others else ""
        yield Fault("fail", f"NVML shows {facts.gpu_count} of {len(on_bus)} GPUs on the bus{which}")


# GPU-009.

_TO_DO = {
    8: "connect the GPU's power cables",
    10: "look for Xid and NVRM lines in dmesg; restart the node",
    14: "the GPU's infoROM is damaged: have it replaced",
    15: "dmesg | grep -i xid (79: it has fallen off the bus); restart the node, power off and on; "
    "reseat or replace the GPU if it comes back",
    16: "end what uses the GPU, then nvidia-smi --gpu-reset -i BUS",
    18: "the driver was updated below running software: restart the node",
}
"""By NVML's error code."""
_ELSE = "look for Xid and NVRM lines in dmesg; nvidia-smi --gpu-reset -i BUS, else restart the node"


def _judge_answers(node: NodeFacts) -> Finding | Blind | None:
    faults = [
        Fault("fail", _said(error), gpu) for gpu in node.gpus for error in gpu.get("errors", ())
    ]
    codes = [error["code"] for gpu in node.gpus for error in gpu.get("errors", ())]
    if failed := node.facts.gpu_nvml_failed:
        faults.append(Fault("fail", f"NVML failed: {failed['text']} ({failed['call']})"))
        codes.append(failed["code"])
    if faults:
        steps = dict.fromkeys(_TO_DO.get(code, _ELSE) for code in codes)
        return faulty(
            "GPU-009",
            node,
            faults,
            fix=f"drain the node; {'; '.join(steps)}",
        )
    hidden = [why for key, why in node.unknown.items() if key.removeprefix("gpu.").isdecimal()]
    if hidden:
        return Blind(hidden[0])
    return None if node.gpus else why_blind(node)


def _said(error: dict[str, Any]) -> str:
    asked = "when it was opened" if error["call"] == "handle" else f"asked for {error['call']}"
    return f"NVML answers {error['text']!r} (error {error['code']}, {asked})"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one error says about a GPU."""

    severity: Severity
    """`ignore`: nothing to do at the GPU, such as the error of a program."""
    what: str
    fix: str = ""


def meaning_of(kind: str, code: int, text: str) -> Meaning:
    """The meaning of an `Xid` or `SXid` number, with what the driver wrote after it."""
    if kind == "SXid":
        return _of_switch(text)
    if code in LINK_BY_TEXT:
        what = "NVLink error" if _fatal(text) else "NVLink error, not fatal"
        return Meaning("fail" if _fatal(text) else "warn", what, LINK)
    known = XIDS.get(code)
    if known is None:
        return Meaning("warn", "not among the numbers that wirespeed knows", REPORT)
    return Meaning(known.severity, known.what, known.fix)


def _of_switch(text: str) -> Meaning:
    if _fatal(text):
        return Meaning("fail", "fatal NVSwitch error", "restart nvidia-fabricmanager and the node")
    return Meaning("warn", "NVSwitch error, not fatal", REPORT)


def _fatal(text: str) -> bool:
    """`Fatal`, but neither `Non-fatal` nor `Nonfatal`."""
    return re.search(r"(?<!non)(?<!non-)\bfatal\b", text, re.IGNORECASE) is not None
