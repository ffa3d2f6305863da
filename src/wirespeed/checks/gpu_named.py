"""A fault of a GPU, and how a node's faults are told: who it is by index, PCI address and UUID."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.checks.per_node import Blind, worse
from wirespeed.checks.registry import EXPLAINED
from wirespeed.model.records import Finding, NodeFacts

__all__ = ["Fault", "Gpu", "Status", "faulty", "hidden_gpus", "siblings", "why_blind"]

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


def siblings(node: NodeFacts, gpu: Gpu) -> list[Gpu]:
    """The other GPUs of its model on its node that answer."""
    return [
        one
        for one in node.gpus
        if one is not gpu and one.get("name") == gpu.get("name") and not one.get("errors")
    ]


def why_blind(node: NodeFacts, *keys: str) -> Blind:
    """Why NVML did not tell something about a GPU (the first reason counts), or about any."""
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
