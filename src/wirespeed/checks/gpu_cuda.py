"""Whether CUDA shows the GPUs that NVML shows: GPU-013."""

from wirespeed.checks.gpu_named import Fault, faulty, hidden_gpus
from wirespeed.checks.per_node import Blind
from wirespeed.model.records import Finding, NodeFacts, World

__all__ = ["judge_cuda", "outside"]

_TO_DO = {
    3: "end the job's leftovers and start again",
    802: "systemctl status nvidia-fabricmanager; its log is /var/log/fabricmanager.log",
    803: "the driver was updated below running software: restart the node",
    804: "this GPU takes no newer CUDA than its driver's: update the driver, or remove cuda-compat",
}
"""By the driver API's error code."""
_ELSE = "look for Xid and NVRM lines in dmesg; restart the node"


def judge_cuda(node: NodeFacts) -> Finding | Blind | None:
    """Joined by UUID. In MIG mode CUDA shows one instance to a process, so that it is not judged."""
    failed = node.facts.gpu_cuda_failed
    missing = [gpu for gpu in node.gpus if gpu.get("visible") is False]
    if failed:
        fault = Fault("fail", f"CUDA does not start: {failed['call']} gives {failed['text']}")
        return _told(node, [fault], _TO_DO.get(failed["code"], _ELSE))
    if node.facts.gpu_visible is None:
        why = node.unknown.get("gpu.visible", "CUDA was not asked")
        return Blind("; ".join(filter(None, (why, _hidden(node)))))
    if any(gpu.get("mig") for gpu in node.gpus):
        return Blind("MIG is on: CUDA shows one instance to a process")
    if missing and "CUDA_VISIBLE_DEVICES" not in node.environment:
        return _told(node, [Fault("fail", "CUDA does not show it", gpu) for gpu in missing], _ELSE)
    return None


def _told(node: NodeFacts, faults: list[Fault], fix: str) -> Finding:
    return faulty(
        "GPU-013",
        node,
        faults,
        fix=fix,
    )


def outside(world: World) -> str:
    """What a pass tells: GPUs that the variable hides."""
    return "; ".join(f"{node.host}: {text}" for node in world.nodes if (text := _hidden(node)))


def _hidden(node: NodeFacts) -> str:
    names = ", ".join(f"GPU{gpu['index']}" for gpu in hidden_gpus(node))
    return f"{names} outside of CUDA_VISIBLE_DEVICES" if names else ""
