"""Faults of GPUs that stay until somebody acts: GPU-005 to GPU-008."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from wirespeed.checks.per_node import Blind, Judge, judge_nodes, worse
from wirespeed.checks.xids import meaning_of
from wirespeed.records import Finding, NodeFacts, World
from wirespeed.units import format_duration

__all__ = ["gpu_fault_findings"]

Gpu = dict[str, Any]
Status = Literal["warn", "fail"]
Fault = tuple[Status, str]
"""How grave, and what is wrong with which GPU."""

_DAY_S = 86400.0


def gpu_fault_findings(world: World) -> list[Finding]:
    """GPU-005, GPU-006, GPU-007, GPU-008."""
    linked = _most_links(world)
    return [
        *_check("GPU-005", world, _judge_memory, "GPU memory to be repaired", _GOOD_MEMORY),
        *_check("GPU-006", world, _judge_log, "kernel log", _GOOD_LOG, saw=_of_the_log(world)),
        *_check(
            "GPU-007", world, lambda node: _judge_links(node, linked), "NVLink fabric", _GOOD_LINKS
        ),
        *_check(
            "GPU-008", world, _judge_bus, "GPUs on the PCI bus", _GOOD_BUS, saw=_withheld(world)
        ),
    ]


_GOOD_MEMORY = "no GPU memory waits to be repaired"
_GOOD_LOG = "no critical Xid in the kernel log"
_GOOD_LINKS = "NVLinks and fabric up"
_GOOD_BUS = "every GPU on the PCI bus answers"


def _check(
    id: str, world: World, judge: Judge, about: str, good: str, saw: str = ""
) -> list[Finding]:
    nodes = [node for node in world.nodes if node.gpus or node.facts.get("gpu.on_bus")]
    none = next(
        (node.unknown["gpus"] for node in world.nodes if "gpus" in node.unknown),
        "no GPU on any node",
    )
    return judge_nodes(id, nodes, judge, about=about, good=good, none=none, saw=saw)


def _faulty(id: str, node: NodeFacts, faults: Sequence[Fault], **said: str) -> Finding:
    """The gravest fault leads; all are told."""
    ordered = sorted(faults, key=lambda fault: fault[0] != "fail")
    lines = tuple(text for _, text in ordered)
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    title = f"{lines[0]}{more}"
    return worse(id, ordered[0][0], node, title, saw="; ".join(lines), evidence=lines, **said)


def _why_no_gpu(node: NodeFacts, keys: Iterable[str]) -> Blind:
    """Why NVML did not tell something about the first GPU, or about any."""
    if not node.gpus:
        return Blind(node.unknown.get("gpus", "NVML shows no GPU"))
    names = (f"gpu.{node.gpus[0]['index']}.{key}" for key in keys)
    return Blind(
        next((node.unknown[name] for name in names if name in node.unknown), "not reported")
    )


# GPU-005.


def _judge_memory(node: NodeFacts) -> Finding | Blind | None:
    faults = [fault for gpu in node.gpus for fault in _memory_faults(gpu)]
    if faults:
        return _faulty(
            "GPU-005",
            node,
            faults,
            expected="nothing pending and nothing failed (NVML: remapped rows, retired pages)",
            because="this memory gave uncorrectable errors, or too many correctable ones",
            costs="errors come back where memory was not replaced: a job that ends with Xid 48 or 95",
            fix="reset the GPU (nvidia-smi --gpu-reset, or restart the node); where the remapping "
            "failed, or rows keep coming, have it replaced",
        )
    if not node.gpus or any(not _tells_memory(gpu) for gpu in node.gpus):
        return _why_no_gpu(node, ("remapped_rows", "pages_pending"))
    return None


def _tells_memory(gpu: Gpu) -> bool:
    return "remapped_rows" in gpu or "pages_pending" in gpu


def _memory_faults(gpu: Gpu) -> Iterable[Fault]:
    name, rows = f"GPU{gpu['index']}", gpu.get("remapped_rows", {})
    if rows.get("failure"):
        yield "fail", f"{name}: a memory row could not be remapped"
    if rows.get("pending"):
        yield "fail", f"{name}: a memory row waits to be remapped, reset the GPU"
    if gpu.get("pages_pending"):
        yield "fail", f"{name}: memory pages wait to be retired, reset the GPU"
    if rows.get("uncorrected") and not rows.get("failure"):
        yield (
            "warn",
            f"{name}: {rows['uncorrected']} memory row(s) remapped after uncorrected errors",
        )


# GPU-006.


def _judge_log(node: NodeFacts) -> Finding | Blind | None:
    errors = node.facts.get("gpu.xids")
    if errors is None:
        return Blind(node.unknown.get("gpu.xids", "kernel log not reported"))
    judged = [(error, meaning_of(error["kind"], error["code"], error["text"])) for error in errors]
    told = [(error, means) for error, means in judged if means.severity != "ignore"]
    if not told:
        return None
    faults = [(_severity(node, error, means.severity), _say(node, error)) for error, means in told]
    order = sorted(range(len(faults)), key=lambda place: faults[place][0] != "fail")
    means = [told[place][1] for place in order]
    return _faulty(
        "GPU-006",
        node,
        faults,
        expected=f"no critical Xid {_since(node)} (NVIDIA's Xid catalog)",
        because="; ".join(dict.fromkeys(one.what for one in means)),
        costs="the job that runs there ends, hangs, or has ended already",
        fix="; ".join(dict.fromkeys(one.fix for one in means)),
    )


def _severity(node: NodeFacts, error: dict[str, Any], severity: str) -> Status:
    """What is longer ago than a day may be repaired: the log keeps it until the next start."""
    return "fail" if severity == "fail" and _age_s(node, error) < _DAY_S else "warn"


def _age_s(node: NodeFacts, error: dict[str, Any]) -> float:
    """Seconds since the last message; 0 where the time now is not known."""
    return max(0.0, float(node.facts.get("uptime_s", error["last_s"])) - float(error["last_s"]))


def _say(node: NodeFacts, error: dict[str, Any]) -> str:
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
    first = node.facts.get("kernel_log.first_s", 0.0)
    if not first or "uptime_s" not in node.facts:
        return "since the start of the system"
    return f"in the kernel log, which covers {_ago(node.facts['uptime_s'] - first)}"


def _of_the_log(world: World) -> str:
    """What a pass tells: errors that do not count, and logs that do not reach back to the start."""
    texts = []
    for node in world.nodes:
        errors = node.facts.get("gpu.xids") or []
        if errors:
            codes = ", ".join(sorted({str(error["code"]) for error in errors}))
            texts.append(f"{node.host}: Xid {codes}, nothing to do at the GPU")
        if node.facts.get("kernel_log.first_s"):
            texts.append(f"{node.host}: {_since(node)}")
    return "; ".join(texts)


# GPU-007.


def _most_links(world: World) -> dict[str, int]:
    """The most active NVLinks that a GPU of each model has anywhere."""
    most: dict[str, int] = {}
    for gpu in (gpu for node in world.nodes for gpu in node.gpus):
        name = gpu.get("name", "")
        most[name] = max(most.get(name, 0), sum(gpu.get("nvlinks", ())))
    return most


def _judge_links(node: NodeFacts, most: dict[str, int]) -> Finding | Blind | None:
    faults = [fault for gpu in node.gpus for fault in _link_faults(gpu, most)]
    if faults:
        return _faulty(
            "GPU-007",
            node,
            faults,
            expected="fabric state completed with status 0, and as many active NVLinks as on other "
            "GPUs of this model (NVML)",
            because="nvidia-fabricmanager does not run or has another version than the driver, or a "
            "link has failed (Xid 74, SXid)",
            costs="without the fabric CUDA does not start (error 802); without a link traffic between "
            "GPUs is slower, or goes over PCIe",
            fix="systemctl status nvidia-fabricmanager, its log in /var/log/fabricmanager.log; "
            "nvidia-smi nvlink -s; reset the GPUs",
        )
    if any(_has_links(gpu, most) for gpu in node.gpus):
        return None
    blind = _why_no_gpu(node, ("nvlinks", "fabric"))
    told = any("nvlinks" in gpu or "fabric" in gpu for gpu in node.gpus)
    return Blind("no GPU with an active NVLink, and no fabric") if told else blind


def _has_links(gpu: Gpu, most: dict[str, int]) -> bool:
    state = gpu.get("fabric", {}).get("state", "not supported")
    return state != "not supported" or most.get(gpu.get("name", ""), 0) > 0


def _link_faults(gpu: Gpu, most: dict[str, int]) -> Iterable[Fault]:
    name, fabric, links = f"GPU{gpu['index']}", gpu.get("fabric", {}), gpu.get("nvlinks")
    state = fabric.get("state", "not supported")
    if state in ("not started", "in progress"):
        yield "fail", f"{name}: registration with the NVLink fabric {state}"
    elif state == "completed" and fabric.get("status"):
        yield "fail", f"{name}: NVLink fabric failed with NVML status {fabric['status']}"
    for text in fabric.get("unhealthy", ()):
        yield "warn", f"{name}: NVLink fabric: {text}"
    expected = most.get(gpu.get("name", ""), 0)
    if links is not None and sum(links) < expected:
        down = ", ".join(str(place) for place, active in enumerate(links) if not active)
        which = f" (inactive: {down})" if down else ""
        yield "warn", f"{name}: {sum(links)} of {expected} NVLinks active{which}"


# GPU-008.


def _judge_bus(node: NodeFacts) -> Finding | Blind | None:
    faults = list(_bus_faults(node))
    if faults:
        return _faulty(
            "GPU-008",
            node,
            faults,
            expected="all NVIDIA GPUs of /sys/bus/pci/devices, with a driver and under NVML",
            because="the GPU has lost its PCIe link or power, or the driver could not start it "
            "(NVRM and Xid lines in dmesg)",
            costs="ranks that are given this GPU cannot start, and the node has less than it should",
            fix="dmesg | grep -i nvrm; restart the node (power off and on), reseat or replace the GPU",
        )
    if "gpus" in node.unknown or "gpu.count" not in node.facts:
        return Blind(node.unknown.get("gpus", "number of GPUs not reported by NVML"))
    if "gpu.on_bus" not in node.facts:
        return Blind(node.unknown.get("gpu.on_bus", "PCI bus not reported"))
    return None


def _withheld(world: World) -> str:
    """What a pass tells: GPUs on the bus that are given to others."""
    counts = [(node, len(node.facts.get("gpu.on_bus", ()))) for node in world.nodes]
    return "; ".join(
        f"{node.host}: {node.facts['gpu.count']} of {bus} GPUs on the bus are given to us by "
        f"{node.facts.get('machine.hides_devices')}"
        for node, bus in counts
        if node.facts.get("gpu.count", bus) < bus
    )


def _bus_faults(node: NodeFacts) -> Iterable[Fault]:
    facts = node.facts
    mute = facts.get("gpu.mute", [])
    for address in mute:
        yield "fail", f"GPU at {address} has fallen off the bus (reads as ones only)"
    for key, why in sorted(node.unknown.items()):
        if key.startswith("gpu.") and key.removeprefix("gpu.").isdecimal():
            yield "fail", f"GPU{key.removeprefix('gpu.')} cannot be opened: {why}"
    if "gpu.count" not in facts:  # without NVML nothing says that these GPUs are to be used
        return
    driverless = [one for one in facts.get("gpu.driverless", ()) if one not in mute]
    for address in driverless:
        yield "fail", f"GPU at {address} has no driver"
    missing = len(facts.get("gpu.on_bus", ())) - facts["gpu.count"]
    if missing > len({*mute, *driverless}) and not facts.get("machine.hides_devices"):
        yield (
            "fail",
            f"NVML shows {facts['gpu.count']} of {len(facts['gpu.on_bus'])} GPUs on the bus",
        )
