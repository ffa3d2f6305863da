"""Inventory of a live cluster, and the keys of a cluster file that are guessed from it: nodes and GPUs,
storage, fabric. Bounded reads only; what may not be read is noted, not fatal.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from wirespeed.clusters.kube import Answer, Kubectl, Progress, Refused, items_of, json_object
from wirespeed.clusters.operations.capabilities import (
    ATTACHMENTS,
    EFA,
    Attachment,
    adapter_resources,
    attachment,
)
from wirespeed.clusters.operations.pod_lookup import Node, node_from
from wirespeed.clusters.presets import is_for, preset_named, preset_names
from wirespeed.model.units import listed

_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """One class."""

    name: str
    provisioner: str
    default: bool


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


def storage(told: Mapping[str, Any]) -> StorageClass:
    """From `kubectl get storageclasses -o json`."""
    notes = told["metadata"].get("annotations", {})
    return StorageClass(
        name=told["metadata"]["name"],
        provisioner=told.get("provisioner", ""),
        default=any(notes.get(key) == "true" for key in _DEFAULT_CLASS),
    )


ASK_S = 20.0
"""For one answer; lists of thousands of nodes take some seconds."""
_QUEUES = "localqueues.kueue.x-k8s.io"
_SCCS = "securitycontextconstraints.security.openshift.io"
_WHERE = (
    'jsonpath={.current-context}{"\\n"}{.clusters[0].cluster.server}'
    '{"\\n"}{.contexts[0].context.namespace}'
)
_T = TypeVar("_T")


def look(kubectl: Kubectl, namespace: str, progress: Progress) -> Found:
    """All that a cluster file is made of.

    namespace: empty for the one that the context names, else `default`.
    Raises Refused (CannotMeasure) where the API server does not answer or no login is there.
    """
    asking = _Asking(kubectl, progress)
    progress.phase("asking which cluster it is")
    # Without a kubeconfig, as inside a pod, kubectl may still know its cluster.
    told = kubectl.ask("config", "view", "--minify", "-o", _WHERE, within_s=ASK_S).out
    context, server, usual = (*told.split("\n"), "", "")[:3]
    asking.kubectl = replace(kubectl, namespace=namespace or usual or "default")
    version = asking.version()
    asking.kinds = asking.served()
    return Found(
        context=context,
        server=server,
        namespace=asking.kubectl.namespace,
        version=version,
        namespace_missing=asking.namespace_missing(),
        kinds=asking.kinds,
        nodes=tuple(asking.items("nodes", node_from)),
        classes=tuple(asking.items("storageclasses", storage)),
        attachments=tuple(asking.everywhere(ATTACHMENTS, attachment)),
        queues=tuple(asking.items(_QUEUES, _name)),
        sccs=dict(asking.items(_SCCS, _constraint)),
        unread=tuple(asking.unread),
    )


class _Asking:
    """One round of questions, and what of it stayed without an answer."""

    def __init__(self, kubectl: Kubectl, progress: Progress) -> None:
        self.kubectl = kubectl
        self.kinds = frozenset[str]()
        self.unread: list[str] = []
        self._progress = progress

    def version(self) -> str:
        """Of the server; Refused where it does not answer at all, since nothing else would."""
        self._progress.phase("asking the API server's version")
        answer = self.kubectl.ask("version", "-o", "json", within_s=ASK_S)
        told = json_object(answer.out).get("serverVersion")
        if isinstance(told, dict):
            return str(told.get("gitVersion", ""))
        if not (answer.code is not None and "forbidden" in answer.err.lower()):
            raise Refused(answer)
        self._note("the server's version", answer)
        return ""

    def served(self) -> frozenset[str]:
        """What is served; a broken aggregated API leaves the others readable."""
        self._progress.phase("asking which operators are installed")
        answer = self.kubectl.ask("api-resources", "-o", "name", within_s=ASK_S)
        if answer.code != 0:
            self._note("some of the API groups", answer)
        return frozenset(answer.out.split())

    def namespace_missing(self) -> bool:
        answer = self.kubectl.ask("get", "namespace", self.kubectl.namespace, within_s=ASK_S)
        return answer.code != 0 and "NotFound" in answer.err

    def items(self, kind: str, read: Callable[[Mapping[str, Any]], _T], *words: str) -> list[_T]:
        """Every object of a kind; none, and a note, where they may not be read.

        What an operator brings is not asked for where the cluster has not that operator.
        """
        if "." in kind and kind not in self.kinds:
            return []
        self._progress.phase(f"asking for {kind}")
        answer = self.kubectl.ask("get", kind, *words, "-o", "json", within_s=ASK_S)
        try:
            if answer.code == 0:
                return [read(one) for one in items_of(answer)]
        except Refused as refused:
            answer = refused.answer
        self._note(kind, answer)
        return []

    def everywhere(self, kind: str, read: Callable[[Mapping[str, Any]], _T]) -> list[_T]:
        """In all namespaces, or at least in this one."""
        before = len(self.unread)
        found = self.items(kind, read, "--all-namespaces")
        if len(self.unread) == before:
            return found
        return self.items(kind, read)

    def _note(self, what: str, answer: Answer) -> None:
        said = answer.err.strip() or f"no answer within {ASK_S:.0f} s"
        self.unread.append(f"{what}: {said.splitlines()[-1]}")


def _name(told: Mapping[str, Any]) -> str:
    return str(told["metadata"]["name"])


def _constraint(told: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    allowed = told.get("allowedCapabilities")
    return _name(told), tuple(str(one) for one in allowed) if isinstance(allowed, list) else ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value."""

    path: tuple[str, ...]
    """`("network", "rdma", "resource")`."""
    value: Any
    """Text, numbers, and lists and mappings of them."""
    why: str
    guessed: bool = False
    """Chosen by us from what was found; else it is as the cluster told."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What one part of the cluster gave: keys, and remarks that belong to no key."""

    entries: tuple[Entry, ...] = ()
    remarks: tuple[str, ...] = ()


PRODUCT = "nvidia.com/gpu.product"
"""Written by NVIDIA's GPU feature discovery."""
_OTHER_PRODUCTS = ("amd.com/gpu.product-name", "cloud.google.com/gke-accelerator", "accelerator")
_RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915",
    "gpu.intel.com/xe", "habana.ai/gaudi",
)  # fmt: skip
_SLICES = "nvidia.com/mig-"
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints of a state of the node, which ends by itself."""
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_DEFAULT_NODES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes that are alike."""

    nodes: tuple[Node, ...]
    resource: str = ""
    """Of the GPUs; empty: the nodes have none."""
    count: int = 0
    """GPUs of each node."""
    product: str = ""


def largest_group(nodes: Sequence[Node]) -> Group:
    """The like nodes that have most GPUs together; without any GPU all nodes for workloads."""
    usable = [
        one
        for one in nodes
        if one.ready
        and not one.cordoned
        and not any(taint["key"] in _CONTROL_PLANE for taint in one.taints)
    ]
    groups: dict[tuple[str, int, str], list[Node]] = {}
    for one in usable:
        if resource := _resource(one):
            key = (resource, int(one.allocatable[resource]), product_of(one))
            groups.setdefault(key, []).append(one)
    if not groups:
        return Group(nodes=tuple(usable))
    best = max(groups, key=lambda key: (len(groups[key]) * key[1], key))
    resource, count, product = best
    return Group(nodes=tuple(groups[best]), resource=resource, count=count, product=product)


def product_of(one: Node) -> str:
    """The GPU's name, by whichever label the vendor or the cloud writes."""
    keys = (PRODUCT, *_OTHER_PRODUCTS)
    return next((one.labels[key] for key in keys if one.labels.get(key)), "")


def zones(nodes: Sequence[Node]) -> Counter[str]:
    """How many nodes each zone has; nodes without a zone are left out."""
    return Counter(one.zone for one in nodes if one.zone)


def guess_nodes(found: Found, group: Group) -> Guess:
    """Keys of gpus and nodes."""
    entries = [*_gpus(group), *_tolerations(group)]
    wanted = min(_DEFAULT_NODES, len(group.nodes))
    if wanted:
        why = f"enough to cross the network, of {len(group.nodes)} such nodes; --nodes says others"
        entries.append(Entry(("gpus", "default_nodes"), wanted, why, guessed=True))
    return Guess(tuple(entries), tuple(_node_remarks(found, group)))


def _gpus(group: Group) -> list[Entry]:
    if not group.resource:
        why = "no node that is ready and takes pods offers GPUs: ranks run on CPUs, by gloo"
        return [Entry(("gpus", "per_node"), 0, why)]
    entries = [
        Entry(("gpus", "per_node"), group.count, f"allocatable on {len(group.nodes)} nodes"),
        Entry(("gpus", "resource"), group.resource, "what the device plugin offers"),
    ]
    if group.product and all(one.labels.get(PRODUCT) == group.product for one in group.nodes):
        why = f"the label {PRODUCT} of these nodes"
        entries.append(Entry(("gpus", "type"), group.product, why))
    return entries


def _tolerations(group: Group) -> list[Entry]:
    """Taints that all nodes of the group have; the GPU's own is borne always."""
    if not group.nodes:
        return []
    first, *others = (one.taints for one in group.nodes)
    common = [taint for taint in first if all(taint in there for there in others)]
    taints = [
        one
        for one in sorted(common, key=lambda one: one["key"])
        if one.get("effect") in ("NoSchedule", "NoExecute")
        and not one["key"].startswith(_PASSING)
        and one["key"] != group.resource
    ]
    if not taints:
        return []
    why = "all these nodes have the taint; it may be meant to keep others off, so ask who set it"
    # The order of the keys is that of the file.
    value = [
        {"key": one["key"], "operator": "Equal" if "value" in one else "Exists", **one}
        for one in taints
    ]
    return [Entry(("nodes", "tolerations"), value, why, guessed=True)]


def _node_remarks(found: Found, group: Group) -> list[str]:
    told = []
    inside = {one.name for one in group.nodes}
    if others := [one for one in found.nodes if _resource(one) and one.name not in inside]:
        names = listed([one.name for one in others], 8)
        told.append(f"other nodes with GPUs, not ready, cordoned or of another kind: {names}")
    if any(name.startswith(_SLICES) for one in found.nodes for name in one.allocatable):
        told.append("some GPUs are cut into MIG slices (nvidia.com/mig-…): those are not used here")
    if len(by_zone := zones(group.nodes)) > 1:
        counts = ", ".join(f"{zone} {count}" for zone, count in sorted(by_zone.items()))
        told.append(f"these nodes lie in several zones: {counts}")
    return told


def _resource(one: Node) -> str:
    return next((name for name in _RESOURCES if one.allocatable.get(name)), "")


_SHARED = re.compile(
    r"(^|[./-])(nfs|cephfs|efs|fsx|lustre|filestore|glusterfs|beegfs|weka\w*|spectrumscale|vast\w*"
    r"|juicefs|isilon|quobyte|moosefs|panfs)([./-]|$)"
)
_FILES = ("file.csi.azure.com", "azurelustre.csi.azure.com", "kubernetes.io/azure-file")
_BOTH = ("csi.trident.netapp.io", "driver.longhorn.io", "org.democratic-csi", "pxd.portworx.com")
_ONE = re.compile(
    r"(^|[./-])(ebs|aws-ebs|rbd|disk|azure-disk|pd|gce-pd|cinder|vsphere|vsphere-volume|local"
    r"|local-path|no-provisioner|topolvm|lvm\w*|hostpath|host-path|iscsi|block\w*)([./-]|$)"
)


def modes(provisioner: str) -> tuple[str, bool]:
    """`RWX` or `RWO`, and whether the provisioner is known; every one gives RWO.

    From the drivers' own documentation, listed at https://kubernetes-csi.github.io/docs/drivers.html
    """
    if _SHARED.search(provisioner) or provisioner in _FILES:
        return "RWX", True
    if provisioner in _BOTH:
        return "RWX", True
    return "RWO", bool(_ONE.search(provisioner))


def guess_storage(found: Found) -> Guess:
    """Keys of storage: shared where a class gives it, else one claim for each pod, else none."""
    shared = _first(found.classes, "RWX")
    single = _first(found.classes, "RWO")
    entries = []
    if shared:
        why = f"{shared.name} gives volumes that all pods share (guessed from its provisioner)"
        entries.append(Entry(("storage", "mode"), "rwx", why, guessed=True))
        entries.append(_class("class_rwx", shared))
    elif single:
        why = "one claim for each pod: no class gives volumes that pods share"
        entries.append(Entry(("storage", "mode"), "volumeClaimTemplates", why, guessed=True))
    else:
        why = "no storage class is there, or may be read: folders that go with the pods"
        entries.append(Entry(("storage", "mode"), "none", why))
    if single:
        entries.append(_class("class_rwo", single))
    return Guess(tuple(entries), tuple(_remark(one) for one in found.classes[:16]))


def _first(classes: tuple[StorageClass, ...], mode: str) -> StorageClass | None:
    """The default class before others, a known provisioner before an unknown one."""
    fitting = [one for one in classes if one.name and modes(one.provisioner)[0] == mode]
    rank = {one.name: (not one.default, not modes(one.provisioner)[1], one.name) for one in fitting}
    return min(fitting, key=lambda one: rank[one.name], default=None)


def _class(key: str, one: StorageClass) -> Entry:
    default = ", the cluster's default" if one.default else ""
    return Entry(
        ("storage", key), one.name, f"provisioner {one.provisioner}{default}", guessed=True
    )


def _remark(one: StorageClass) -> str:
    mode, known = modes(one.provisioner)
    default = ", default" if one.default else ""
    doubt = "" if known else " (unknown provisioner: only what every one gives)"
    return f"storage class {one.name}: {one.provisioner}, {mode}{default}{doubt}"


_GKE = "cloud.google.com/gke-accelerator"
_GOOGLE = {"nvidia-h100-mega-80gb": "gcp-tcpxo", "nvidia-h100-80gb": "gcp-tcpx"}
_COREWEAVE = "node.coreweave.cloud/"
_MOST = 64


def guess_fabric(found: Found, group: Group) -> Guess:
    """Keys of network."""
    resources = adapter_resources(one.allocatable for one in group.nodes)
    if not resources:
        return _without(group)
    resource = resources[0]
    attachments = [one for one in found.attachments if one.resource == resource]
    count, counted = _count(group, resource, attachments)
    preset, chosen = _preset(found, group, resource)
    counts = sorted({int(one.allocatable[resource]) for one in group.nodes})
    offered = f"allocatable on each node: {' or '.join(map(str, counts))}"
    entries = [
        Entry(("network", "preset"), preset, chosen, guessed=True),
        Entry(("network", "rdma", "enabled"), True, f"all {len(group.nodes)} nodes offer it"),
        Entry(("network", "rdma", "resource"), resource, offered),
        Entry(("network", "rdma", "count"), count, counted, guessed=True),
    ]
    if attachments:
        names = [
            (one.name if one.namespace == found.namespace else f"{one.namespace}/{one.name}")
            for one in attachments[:_MOST]
        ]
        why = f"attachments of Multus that take their interfaces from {resource}"
        entries.append(Entry(("network", "rdma", "networks"), names, why, guessed=True))
    if len(zones(group.nodes)) > 1:
        why = "fabrics of RDMA seldom reach from zone to zone"
        entries.append(Entry(("nodes", "same_zone"), True, why, guessed=True))
    return Guess(tuple(entries), tuple(_fabric_remarks(resources, attachments, preset)))


def _without(group: Group) -> Guess:
    """TCP; on Google Cloud it may have a plugin of its own."""
    why = "no resource of RDMA adapters is allocatable on all of these nodes"
    entries = (Entry(("network", "rdma", "enabled"), False, why),)
    kinds = {one.labels.get(_GKE, "") for one in group.nodes}
    remarks = tuple(
        f"{kind}: the preset {_GOOGLE[kind]} fits, once the nodes have its plugin and networks "
        f"(wirespeed cluster presets {_GOOGLE[kind]})"
        for kind in sorted(kinds & set(_GOOGLE))
    )
    return Guess(entries, remarks)


def _count(group: Group, resource: str, attachments: list[Attachment]) -> tuple[int, str]:
    least = int(min(one.allocatable[resource] for one in group.nodes))
    if attachments:
        return min(len(attachments), _MOST), "one for each attachment below"
    if resource == EFA:
        return min(least, _MOST), "all adapters of an instance, since a pod has it for itself"
    return 1, "a shared device plugin gives all adapters for one; where it gives one, ask for more"


def _preset(found: Found, group: Group, resource: str) -> tuple[str, str]:
    if resource == EFA:
        return "aws-efa", "the resource is AWS's Elastic Fabric Adapter"
    coreweave = any(key.startswith(_COREWEAVE) for one in group.nodes for key in one.labels)
    fitting = [name for name in preset_names() if is_for(preset_named(name), group.product)]
    if coreweave and (
        named := [name for name in fitting if resource in preset_named(name).resources]
    ):
        return named[0], f"made for {group.product} with adapters named as on these nodes"
    if resource.startswith("openshift.io/") and found.attachments:
        return "openshift-sriov", "interfaces come from the SR-IOV operator"
    return "rdma", "leaves to NCCL what the cluster does not tell"


def _fabric_remarks(resources: list[str], attachments: list[Attachment], preset: str) -> list[str]:
    told = []
    if resources[1:]:
        told.append(f"other resources that may be RDMA adapters: {', '.join(resources[1:])}")
    if resources[0].startswith("openshift.io/") and not attachments:
        told.append(
            f"no network attachment that may be read takes its interfaces from {resources[0]}; "
            "network.rdma.networks has to name them"
        )
    if preset == "rdma":
        told.append(f"presets for one fabric: {', '.join(preset_names())}")
    return told
