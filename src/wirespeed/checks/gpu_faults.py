"""Faults of GPUs that stay until somebody acts: GPU-005 to GPU-010.

How grave a driver error is, and what to do, goes by its Xid number, or by what its text says.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wirespeed.checks.gpu_health import (
    NO_GPU,
    Fault,
    Gpu,
    Status,
    faulty,
    has_no_gpu,
    judge_cuda,
    outside,
    why_blind,
)
from wirespeed.checks.registry import EXPLAINED, Blind, Judge, absent, judge_nodes
from wirespeed.model.node_facts import Xid as LoggedXid
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.model.units import format_duration

if TYPE_CHECKING:
    from wirespeed.reference.xids import Xid


_DAY_S = 86400.0


def gpu_fault_findings(world: World) -> list[Finding]:
    """GPU-005 to GPU-010."""
    linked = _most_links(world)
    return [
        *_check("GPU-005", world, _judge_memory),
        *_check("GPU-006", world, _judge_log, saw=_of_the_log(world)),
        *_check("GPU-007", world, lambda node: _judge_links(node, linked)),
        *_check("GPU-008", world, _judge_bus, saw=_withheld(world)),
        *_check("GPU-009", world, _judge_answers),
        *_check("GPU-010", world, _judge_growth),
    ]


def _check(id: str, world: World, judge: Judge, saw: str = "") -> list[Finding]:
    nodes = [node for node in world.nodes if _concerned(node)]
    if not nodes and not all(map(has_no_gpu, world.nodes)):
        reasons = (node.unknown["gpus"] for node in world.nodes if "gpus" in node.unknown)
        return [absent(id, f"{EXPLAINED[id].about} not checked", next(reasons, "not reported"))]
    return judge_nodes(id, nodes, judge, none=NO_GPU, saw=saw)


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
        return faulty("GPU-005", node, faults)
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
    if errors is None and has_no_gpu(node):
        return Blind(NO_GPU, applies=False)
    if errors is None:
        return Blind(node.unknown.get("gpu.xids", "kernel log not reported"))
    judged = [(error, meaning_of(error["kind"], error["code"], error["text"])) for error in errors]
    told = [
        (Fault(_severity(node, error, means.severity), _say(node, error, means)), means)
        for error, means in judged
        if means.severity != "ignore"
    ]
    if not told:
        return None
    told.sort(key=lambda one: one[0].status != "fail")
    return faulty(
        "GPU-006",
        node,
        [fault for fault, _ in told],
        expected=f"no critical Xid {_since(node)} (NVIDIA's Xid catalog)",
        because="; ".join(dict.fromkeys(means.what for _, means in told)),
        fix="; ".join(dict.fromkeys(means.fix for _, means in told)),
    )


def _severity(node: NodeFacts, error: LoggedXid, severity: str) -> Status:
    """What is longer ago than a day may be repaired: the log keeps it until the next start."""
    return "fail" if severity == "fail" and _age_s(node, error) < _DAY_S else "warn"


def _age_s(node: NodeFacts, error: LoggedXid) -> float:
    """Seconds since the last message; 0 where the time now is not known."""
    now = node.facts.uptime_s
    return 0.0 if now is None else max(0.0, now - error["last_s"])


def _say(node: NodeFacts, error: LoggedXid, means: "Xid") -> str:
    indices = (gpu["index"] for gpu in node.gpus if gpu.get("pci", "").startswith(error["pci"]))
    index = next(indices, None)
    where = error["pci"] if index is None else f"GPU{index} ({error['pci']})"
    often = f" {error['count']} times, last" if error["count"] > 1 else ""
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
        return faulty("GPU-008", node, faults)
    if has_no_gpu(node):
        return Blind(NO_GPU, applies=False)
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


def _judge_answers(node: NodeFacts) -> Finding | Blind | None:
    faults = [
        Fault("fail", _said(error), gpu) for gpu in node.gpus for error in gpu.get("errors", ())
    ]
    codes = [error["code"] for gpu in node.gpus for error in gpu.get("errors", ())]
    if failed := node.facts.gpu_nvml_failed:
        faults.append(Fault("fail", f"NVML failed: {failed['text']} ({failed['call']})"))
        codes.append(failed["code"])
    if faults:
        steps = dict.fromkeys(EXPLAINED["GPU-009"].fix_of(code) for code in codes)
        return faulty("GPU-009", node, faults, fix=f"drain the node; {'; '.join(steps)}")
    hidden = [why for key, why in node.unknown.items() if key.removeprefix("gpu.").isdecimal()]
    if hidden:
        return Blind(hidden[0])
    return None if node.gpus else why_blind(node)


def _said(error: dict[str, Any]) -> str:
    asked = "when it was opened" if error["call"] == "handle" else f"asked for {error['call']}"
    return f"NVML answers {error['text']!r} (error {error['code']}, {asked})"


def meaning_of(kind: str, code: int, text: str) -> "Xid":
    """The meaning of an `Xid` or `SXid` number, with what the driver wrote after it."""
    from wirespeed.reference.xids import LINK, LINK_BY_TEXT, REPORT, XIDS, Xid

    if kind == "SXid" and _fatal(text):
        restart = "restart nvidia-fabricmanager and the node"
        return Xid("link", "fail", "fatal NVSwitch error", restart)
    if kind == "SXid":
        return Xid("watch", "warn", "NVSwitch error, not fatal", REPORT)
    if code in LINK_BY_TEXT and _fatal(text):
        return Xid("link", "fail", "NVLink error", LINK)
    if code in LINK_BY_TEXT:
        return Xid("watch", "warn", "NVLink error, not fatal", LINK)
    unknown = Xid("watch", "warn", "not among the numbers that wirespeed knows", REPORT)
    return XIDS.get(code, unknown)


def _fatal(text: str) -> bool:
    """`Fatal`, but neither `Non-fatal` nor `Nonfatal`."""
    return re.search(r"(?<!non)(?<!non-)\bfatal\b", text, re.IGNORECASE) is not None


# GPU-007 and GPU-010: NVLinks and the NVSwitch fabric.

_PASSING = ("degraded bandwidth", "route recovery in progress", "access timeout recovery")
"""Of the fabric's health: it works on, slower, or repairs itself. Anything else does not work."""


def _most_links(world: World) -> dict[str, int]:
    """The most active NVLinks that a GPU of each model has anywhere."""
    most: dict[str, int] = {}
    for gpu in (gpu for node in world.nodes for gpu in node.gpus):
        name = gpu.get("name", "")
        most[name] = max(most.get(name, 0), sum(gpu.get("nvlinks", ())))
    return most


def _judge_links(node: NodeFacts, most: dict[str, int]) -> Finding | Blind | None:
    """GPU-007; `most` as `_most_links` gives it."""
    faults = [fault for gpu in node.gpus for fault in _link_faults(gpu, most)]
    if faults:
        return faulty("GPU-007", node, faults)
    if silent := _silent(node, "nvlinks"):
        return silent
    if any(_has_links(gpu, most) for gpu in node.gpus):
        return None
    if any("nvlinks" in gpu or "fabric" in gpu for gpu in node.gpus):
        return Blind("no GPU with an active NVLink, and no fabric")
    return why_blind(node, "nvlinks")


def _has_links(gpu: Gpu, most: dict[str, int]) -> bool:
    state = gpu.get("fabric", {}).get("state", "not supported")
    return state != "not supported" or most.get(gpu.get("name", ""), 0) > 0


def _silent(node: NodeFacts, key: str) -> Blind | None:
    """GPUs that answered with an error before they told this."""
    lost = [f"GPU{gpu['index']}" for gpu in node.gpus if gpu.get("errors") and key not in gpu]
    return Blind(f"{', '.join(lost)} answered with an error") if lost else None


def _link_faults(gpu: Gpu, most: dict[str, int]) -> Iterable[Fault]:
    fabric, links = gpu.get("fabric", {}), gpu.get("nvlinks")
    state = fabric.get("state", "not supported")
    if state not in ("not supported", "completed"):
        yield Fault("fail", f"registration with the NVLink fabric {state}", gpu)
    elif state == "completed" and fabric.get("status"):
        yield Fault("fail", f"NVLink fabric failed with NVML status {fabric['status']}", gpu)
    for text in fabric.get("unhealthy", ()):
        status: Status = "warn" if text in _PASSING else "fail"
        yield Fault(status, f"NVLink fabric: {text}", gpu)
    expected = most.get(gpu.get("name", ""), 0)
    if links is not None and sum(links) < expected:
        down = ", ".join(str(place) for place, active in enumerate(links) if not active)
        which = f" (inactive: {down})" if down else ""
        yield Fault("fail", f"{sum(links)} of {expected} NVLinks active{which}", gpu)


def _judge_growth(node: NodeFacts) -> Finding | Blind | None:
    """GPU-010: error counters read twice, some tenths of a second apart."""
    faults = [
        Fault("fail", _growth(gpu["nvlink_growth"]), gpu)
        for gpu in node.gpus
        if "nvlink_growth" in gpu
    ]
    if faults:
        return faulty("GPU-010", node, faults)
    if silent := _silent(node, "nvlink_errors"):
        return silent
    told = any("nvlink_errors" in gpu for gpu in node.gpus)
    return None if told else why_blind(node, "nvlink_errors")


def _growth(found: Gpu) -> str:
    """`link 3: crc flit +273; 17 other links, in 0.3 s`: the worst link first."""
    links: dict[str, dict[str, int]] = found["links"]
    worst = max(links, key=lambda link: max(links[link].values()))
    kinds = ", ".join(f"{kind} +{count}" for kind, count in links[worst].items())
    more = f"; {len(links) - 1} other link(s)" if len(links) > 1 else ""
    return f"errors on NVLink {worst}: {kinds}{more}, in {found['seconds']} s"
