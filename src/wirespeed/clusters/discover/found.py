"""What a live cluster told: plain data, taken apart once, whatever shape the answers had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Attachment", "Found", "Node", "StorageClass", "Taint", "attachment", "node", "storage"]

_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"
"""Which device plugin an attachment takes its interface from; the SR-IOV operator writes it."""


@dataclass(frozen=True, slots=True)
class Taint:
    """Of a node: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node."""

    name: str
    ready: bool
    schedulable: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    """Whole numbers only: extended resources, and pods."""

    @property
    def zone(self) -> str:
        return next((self.labels[key] for key in _ZONES if self.labels.get(key)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """One class."""

    name: str
    provisioner: str
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A NetworkAttachmentDefinition of Multus."""

    namespace: str
    name: str
    resource: str
    """Extended resource that its interfaces come from; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that could be read; `unread` says what could not, and why."""

    context: str
    server: str
    namespace: str
    version: str = ""
    namespace_missing: bool = False
    kinds: frozenset[str] = frozenset()
    """`mpijobs.kubeflow.org` and the like: what the API server serves."""
    nodes: tuple[Node, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    queues: tuple[str, ...] = ()
    sccs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """OpenShift: capabilities that each security context constraint allows, by name."""
    unread: tuple[str, ...] = ()


def node(told: Mapping[str, Any]) -> Node:
    """From `kubectl get nodes -o json`."""
    spec, status, metadata = (_part(told, key) for key in ("spec", "status", "metadata"))
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in _parts(status, "conditions")
    )
    taints = tuple(
        Taint(_text(one, "key"), _text(one, "value"), _text(one, "effect"))
        for one in _parts(spec, "taints")
    )
    return Node(
        name=_text(metadata, "name"),
        ready=ready,
        schedulable=spec.get("unschedulable") is not True,
        labels={key: str(value) for key, value in _part(metadata, "labels").items()},
        taints=taints,
        allocatable=_counts(_part(status, "allocatable")),
    )


def storage(told: Mapping[str, Any]) -> StorageClass:
    """From `kubectl get storageclasses -o json`."""
    metadata = _part(told, "metadata")
    notes = _part(metadata, "annotations")
    return StorageClass(
        name=_text(metadata, "name"),
        provisioner=_text(told, "provisioner"),
        default=any(notes.get(key) == "true" for key in _DEFAULT_CLASS),
    )


def attachment(told: Mapping[str, Any]) -> Attachment:
    """From `kubectl get network-attachment-definitions -o json`."""
    metadata = _part(told, "metadata")
    return Attachment(
        namespace=_text(metadata, "namespace"),
        name=_text(metadata, "name"),
        resource=_text(_part(metadata, "annotations"), _RESOURCE_NAME),
    )


def _counts(allocatable: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: int(amount)
        for name, amount in allocatable.items()
        if isinstance(amount, str) and amount.isascii() and amount.isdigit() and len(amount) < 10
    }


def _part(told: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = told.get(key)
    return value if isinstance(value, dict) else {}


def _parts(told: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = told.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""
