"""What a fabric needs of a pod, each part with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wirespeed.clusters.file.model import Volume

__all__ = ["Preset", "Variable"]


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable of a fabric."""

    name: str
    value: str
    why: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One fabric; what a cluster file says itself has precedence."""

    name: str
    """`h100-ib-sharp` and the like: the name of its file."""
    summary: str
    why: str
    """One sentence: when to take it, and what it rests on."""
    source: str
    """Public documentation."""
    mode: Literal["rdma", "tcp"]
    gpus: tuple[str, ...] = ()
    """Parts of the GPU products that it is meant for."""
    environment: tuple[Variable, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    """Extended resources of each pod: count by name."""
    volumes: tuple[Volume, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of pods."""
    ipc_lock: bool = False
    same_zone: bool = False
    spread_over: str = ""
    """A node label over whose values pods are spread."""
    sidecars: tuple[Mapping[str, Any], ...] = ()
    """Containers beside ours, as Kubernetes writes them (GPUDirect-TCPX has one)."""
