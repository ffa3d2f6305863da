"""The network: RDMA resources of the group's nodes, attachments of Multus, and a preset for them."""

import re
from collections.abc import Iterable, Mapping

from wirespeed.clusters.discover.entry import Entry, Guess
from wirespeed.clusters.discover.found import Attachment, Found
from wirespeed.clusters.discover.guess_nodes import Group, zones
from wirespeed.clusters.presets.fabric import is_for
from wirespeed.clusters.presets.presets import preset_named, preset_names

__all__ = ["adapter_resources", "guess_fabric"]

_EFA = "vpc.amazonaws.com/efa"
_RDMA = (
    re.compile(re.escape(_EFA)),
    re.compile(r"rdma/.+"),
    re.compile(r"nvidia\.com/.*(nic|rdma|ib|roce|hca|hostdev|sriov|vf|mlnx).*", re.IGNORECASE),
    re.compile(r"mellanox\.com/.+"),
    re.compile(r"openshift\.io/.+"),
)
"""Resources that stand for adapters, the surest first; the names behind the slash are the site's."""
_GKE = "cloud.google.com/gke-accelerator"
_GOOGLE = {"nvidia-h100-mega-80gb": "gcp-tcpxo", "nvidia-h100-80gb": "gcp-tcpx"}
_COREWEAVE = "node.coreweave.cloud/"
_OPENSHIFT = "config.openshift.io"
_MOST = 64


def guess_fabric(found: Found, group: Group) -> Guess:
    """Keys of network."""
    resources = _adapters(group)
    if not resources:
        return _without(group)
    resource = resources[0]
    attachments = [one for one in found.attachments if one.resource == resource]
    count, counted = _count(group, resource, attachments)
    preset, chosen = _preset(found, group, resource)
    entries = [
        Entry(("network", "preset"), preset, chosen, guessed=True),
        Entry(("network", "rdma", "enabled"), True, f"all {len(group.nodes)} nodes offer it"),
        Entry(("network", "rdma", "resource"), resource, _offered(group, resource)),
        Entry(("network", "rdma", "count"), count, counted, guessed=True),
    ]
    if attachments:
        names = [_named(one, found.namespace) for one in attachments[:_MOST]]
        why = f"attachments of Multus that take their interfaces from {resource}"
        entries.append(Entry(("network", "rdma", "networks"), names, why, guessed=True))
    return Guess((*entries, *_one_zone(group)), tuple(_remarks(resources, attachments, preset)))


def _adapters(group: Group) -> list[str]:
    """Resources that every node of the group offers, the surest first."""
    return adapter_resources(one.allocatable for one in group.nodes)


def adapter_resources(allocatables: Iterable[Mapping[str, float]]) -> list[str]:
    """Resources of RDMA adapters that all nodes offer, the surest first, by what each can give."""
    offers = [{name for name, count in one.items() if count} for one in allocatables]
    if not offers:
        return []
    common = sorted(set.intersection(*offers))
    ranked = [
        (place, name) for name in common for place, form in enumerate(_RDMA) if form.fullmatch(name)
    ]
    return list(dict.fromkeys(name for _, name in sorted(ranked)))


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


def _offered(group: Group, resource: str) -> str:
    counts = sorted({one.allocatable[resource] for one in group.nodes})
    return f"allocatable on each node: {' or '.join(str(one) for one in counts)}"


def _count(group: Group, resource: str, attachments: list[Attachment]) -> tuple[int, str]:
    least = min(one.allocatable[resource] for one in group.nodes)
    if attachments:
        return min(len(attachments), _MOST), "one for each attachment below"
    if resource == _EFA:
        return min(least, _MOST), "all adapters of an instance, since a pod has it for itself"
    return 1, "a shared device plugin gives all adapters for one; where it gives one, ask for more"


def _preset(found: Found, group: Group, resource: str) -> tuple[str, str]:
    if resource == _EFA:
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


def _named(one: Attachment, namespace: str) -> str:
    return one.name if one.namespace == namespace else f"{one.namespace}/{one.name}"


def _one_zone(group: Group) -> list[Entry]:
    if len(zones(group.nodes)) < 2:
        return []
    why = "fabrics of RDMA seldom reach from zone to zone"
    return [Entry(("nodes", "same_zone"), True, why, guessed=True)]


def _remarks(resources: list[str], attachments: list[Attachment], preset: str) -> list[str]:
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
