"""What is deployed: a cluster file with every choice made, and the names of its objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wirespeed.clusters.file.model import ClusterFile, EngineName
from wirespeed.clusters.presets.preset import Preset
from wirespeed.records import Choice, Finding

__all__ = ["CONTAINER", "Deployment"]

CONTAINER = "ranks"
"""Name of the container that ranks run in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One environment; `settle` makes it from a file and the options."""

    file: ClusterFile
    nodes: int
    """Pods, one a node."""
    engine: EngineName
    mode: Literal["rdma", "tcp"]
    preset: Preset | None = None
    choices: tuple[Choice, ...] = ()
    """What was chosen automatically, with the reason."""
    warnings: tuple[Finding, ...] = ()
    """What the file alone cannot settle, and what is done about it."""
    attachable: tuple[str, ...] = ()
    """Interfaces that would be there, did the cluster have network attachments of these names."""
    seeks_resource: bool = False
    """No RDMA resource is named: the one that nodes advertise is taken, where it is one."""
    names_adapters: bool = True
    """False: unless the cluster names an RDMA resource, there is no RDMA."""
    owner: Mapping[str, str] | None = None
    """An ownerReference: the object that all others go with when it is deleted."""

    @property
    def name(self) -> str:
        return self.file.cluster.name

    @property
    def namespace(self) -> str:
        return self.file.cluster.namespace

    @property
    def gpus(self) -> int:
        """Of each pod."""
        return self.file.gpus.per_node

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of a StatefulSet's pods, in the order of their ordinals."""
        return tuple(f"{self.name}-{index}" for index in range(self.nodes))

    @property
    def service(self) -> str:
        """The headless Service: `POD.SERVICE` resolves in the namespace."""
        return self.name

    @property
    def master(self) -> str:
        """MASTER_ADDR: the first pod's name in DNS."""
        return f"{self.name}-0.{self.service}.{self.namespace}.svc"
