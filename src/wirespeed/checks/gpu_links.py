"""NVLinks and the NVSwitch fabric: GPU-007, and errors that grow while we look: GPU-010."""

from collections.abc import Iterable

from wirespeed.checks.gpu_health import Fault, Gpu, Status, faulty, why_blind
from wirespeed.checks.per_node import Blind
from wirespeed.model.records import Finding, NodeFacts, World

_PASSING = ("degraded bandwidth", "route recovery in progress", "access timeout recovery")
"""Of the fabric's health: it works on, slower, or repairs itself. Anything else does not work."""


def most_links(world: World) -> dict[str, int]:
    """The most active NVLinks that a GPU of each model has anywhere."""
    most: dict[str, int] = {}
    for gpu in (gpu for node in world.nodes for gpu in node.gpus):
        name = gpu.get("name", "")
        most[name] = max(most.get(name, 0), sum(gpu.get("nvlinks", ())))
    return most


def judge_links(node: NodeFacts, most: dict[str, int]) -> Finding | Blind | None:
    """GPU-007; `most` as `most_links` gives it."""
    faults = [fault for gpu in node.gpus for fault in _link_faults(gpu, most)]
    if faults:
        return faulty(
            "GPU-007",
            node,
            faults,
        )
    if silent := _silent(node, "nvlinks"):
        return silent
    if any(_has_links(gpu, most) for gpu in node.gpus):
        return None
    told = any("nvlinks" in gpu or "fabric" in gpu for gpu in node.gpus)
    return (
        Blind("no GPU with an active NVLink, and no fabric") if told else why_blind(node, "nvlinks")
    )


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


def judge_growth(node: NodeFacts) -> Finding | Blind | None:
    """GPU-010: error counters read twice, some tenths of a second apart."""
    faults = [
        Fault("fail", _growth(gpu["nvlink_growth"]), gpu)
        for gpu in node.gpus
        if "nvlink_growth" in gpu
    ]
    if faults:
        return faulty(
            "GPU-010",
            node,
            faults,
        )
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
