"""What a cluster offers: operators, server version, network attachments, RDMA resources."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file import EngineName
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Kubectl, Refused, document
from wirespeed.clusters.operations.pod_lookup import Node, nodes_of
from wirespeed.clusters.presets import names_adapters, seeks_resource
from wirespeed.model.records import Choice, Finding
from wirespeed.model.units import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What makes an engine's pods."""

    name: str
    group: str
    version: str
    resources: tuple[str, ...]
    """Plural names of its custom resources that we make."""
    install: str
    since: tuple[int, int] = (1, 0)
    """The first Kubernetes in which its pods can be made."""

    @property
    def api(self) -> str:
        return f"{self.group}/{self.version}"


_INDEXED = (1, 22)
"""Indexed Jobs are on by default: https://kubernetes.io/docs/concepts/workloads/controllers/job/"""
_OPERATORS = {
    "mpijob": Operator(
        name="the MPI operator",
        group="kubeflow.org",
        version="v2beta1",
        resources=("mpijobs",),
        install="https://github.com/kubeflow/mpi-operator#installation",
    ),
    "trainjob": Operator(
        name="Kubeflow Trainer",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        resources=("trainjobs", "trainingruntimes"),
        install="https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/",
        since=_INDEXED,
    ),
    "jobset": Operator(
        name="JobSet",
        group="jobset.x-k8s.io",
        version="v1alpha2",
        resources=("jobsets",),
        install="https://jobset.sigs.k8s.io/docs/installation/",
        since=_INDEXED,
    ),
}


def missing_for(kubectl: Kubectl, engine: EngineName) -> tuple[Finding, ...]:
    """CLUSTER-016 where the operator's resources are not there, CLUSTER-018 for too old a server.

    Refused where the server gives no answer.
    """
    needed = _OPERATORS.get(engine)
    if needed is None:
        return ()
    there = _told(kubectl, f"/apis/{needed.api}").get("resources", [])
    served = {one.get("name") for one in there}
    lacking = [f"{name}.{needed.group}" for name in needed.resources if name not in served]
    found = []
    if lacking:
        versions = _told(kubectl, f"/apis/{needed.group}").get("versions", [])
        others = [str(one.get("version")) for one in versions]
        others = [one for one in others if one != needed.version]
        saw = f"no {', '.join(lacking)} in version {needed.version}"
        saw += f"; of that group it has {', '.join(others)}" if others else ""
        found.append(make_finding("missing", needed=needed, engine=engine, saw=saw))
    version = _server(kubectl) if needed.since > (1, 0) else None
    if version is not None and version < needed.since:
        saw, least = (f"{major}.{minor}" for major, minor in (version, needed.since))
        saw, expected = f"Kubernetes {saw}", f"{least} or later"
        found.append(make_finding("too_old", engine=engine, saw=saw, expected=expected))
    return tuple(found)


def _told(kubectl: Kubectl, path: str) -> dict[str, list[dict[str, str]]]:
    """A part of the server's discovery, which everybody may read; empty where there is no such part."""
    answer = kubectl.ask("get", "--raw", path)
    if answer.code != 0:
        if "(NotFound)" in answer.err:
            return {}
        raise Refused(answer)
    return document(answer)


def _server(kubectl: Kubectl) -> tuple[int, int] | None:
    """Major and minor version; None where it does not tell (some vendors change the form)."""
    told = kubectl.json("version").get("serverVersion", {})
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", str(told.get("gitVersion", "")))
    return (int(found[1]), int(found[2])) if found else None


ATTACHMENTS = "network-attachment-definitions.k8s.cni.cncf.io"
_RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"
"""Which device plugin an attachment takes its interface from; the SR-IOV operator writes it."""
EFA = "vpc.amazonaws.com/efa"
_RDMA = (
    re.compile(re.escape(EFA)),
    re.compile(r"rdma/.+"),
    re.compile(r"nvidia\.com/.*(nic|rdma|ib|roce|hca|hostdev|sriov|vf|mlnx).*", re.IGNORECASE),
    re.compile(r"mellanox\.com/.+"),
    re.compile(r"openshift\.io/.+"),
)
"""Resources that stand for adapters, the surest first; the names behind the slash are the site's."""
_INTERFACES, _RESOURCE = "CLUSTER-044", "CLUSTER-045"
_MOST = 6
_NO_PLUGIN = (
    "install the RDMA device plugin (NVIDIA network operator), or go on over TCP with "
    "--fallback tcp"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A NetworkAttachmentDefinition of Multus."""

    namespace: str
    name: str
    resource: str
    """Extended resource that its interfaces come from; empty: none."""


def attachment(told: Mapping[str, Any]) -> Attachment:
    """From `kubectl get network-attachment-definitions -o json`."""
    meta = told["metadata"]
    resource = meta.get("annotations", {}).get(_RESOURCE_NAME, "")
    return Attachment(namespace=meta.get("namespace", ""), name=meta["name"], resource=resource)


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


def served(kubectl: Kubectl, deployment: Deployment) -> tuple[Deployment, tuple[Finding, ...]]:
    """The deployment with what the cluster has, and what stands against it.

    Nothing is asked where the file says all. What may not be read counts as not there.
    """
    found: tuple[Finding, ...] = ()
    if deployment.mode != "rdma":
        return deployment, found
    if deployment.attachable:
        deployment = _attached(deployment, _attachments(kubectl))
    if seeks_resource(deployment.file.network.rdma, deployment.preset):
        deployment, found = _with_resource(deployment, _nodes(kubectl, deployment))
    return deployment, found


def _attachments(kubectl: Kubectl) -> list[Attachment]:
    try:
        return [attachment(one) for one in kubectl.items("get", ATTACHMENTS)]
    except Refused:
        return []


def _nodes(kubectl: Kubectl, deployment: Deployment) -> list[Node]:
    """Those that pods may run on, as far as the file and their GPUs tell."""
    try:
        nodes = nodes_of(kubectl)
    except Refused:
        return []
    named, gpu = set(deployment.file.nodes.gpu_nodes), deployment.file.gpus.resource
    return [
        one
        for one in nodes
        if (one.name in named if named else not deployment.gpus or one.allocatable.get(gpu))
    ]


def _attached(deployment: Deployment, there: Iterable[Attachment]) -> Deployment:
    known = {one.name: one for one in there}
    names = deployment.attachable
    if not all(name in known for name in names):
        return deployment
    resources = {known[name].resource for name in names} - {""}
    changes: dict[str, Any] = {
        "interfaces": ",".join(filter(None, (deployment.file.network.rdma.interfaces, *names))),
        "networks": tuple(f"{deployment.namespace}/{name}@{name}" for name in names),
    }
    if len(resources) == 1 and not deployment.file.network.rdma.resource:
        changes |= {"resource": resources.pop(), "count": len(names)}
    why = "the namespace has network attachments of the names in network.rdma.interfaces"
    choice = Choice("network.rdma.networks", ", ".join(names), why)
    return _changed(deployment, changes, choice, (_INTERFACES, _RESOURCE))


def _with_resource(
    deployment: Deployment, nodes: Iterable[Node]
) -> tuple[Deployment, tuple[Finding, ...]]:
    nodes = list(nodes)
    there = adapter_resources(one.allocatable for one in nodes)
    if len(there) == 1:
        why = f"the only RDMA resource among what {_count(nodes)} can give"
        choice = Choice("network.rdma.resource", there[0], why)
        return _changed(deployment, {"resource": there[0]}, choice, (_RESOURCE,)), ()
    if names_adapters(deployment.file.network.rdma, deployment.preset):
        return deployment, ()
    named = ", ".join(there[:_MOST])
    title = f"{len(there) or 'no'} RDMA resources on {_count(nodes)}, and the file names none"
    saw = named or "no resource of RDMA adapters in status.allocatable"
    fix = f"network.rdma.resource: one of {named}" if there else _NO_PLUGIN
    return deployment, (make_finding("no_single", title=title, saw=saw, fix=fix),)


def _count(nodes: list[Node]) -> str:
    return counted(len(nodes), "node") if nodes else "nodes that may be read"


def _changed(
    deployment: Deployment, changes: Mapping[str, Any], choice: Choice, settled: tuple[str, ...]
) -> Deployment:
    """With these keys of network.rdma as if the file said them, and without what they settle."""
    rdma = deployment.file.network.rdma.but(**changes)
    network = deployment.file.network.but(rdma=rdma)
    solved = settled if rdma.resource or rdma.networks else ()
    return replace(
        deployment,
        file=deployment.file.but(network=network),
        choices=(*(one for one in deployment.choices if one.name != choice.name), choice),
        warnings=tuple(one for one in deployment.warnings if one.id not in solved),
    )
