"""Does the cluster have what an engine needs: its custom resources, and a server that is new enough?"""

import re
from dataclasses import dataclass

from wirespeed.clusters.file.model import EngineName
from wirespeed.clusters.kube.kubectl import Kubectl, Refused, document
from wirespeed.records import Finding

__all__ = ["Operator", "missing_for", "operators_in"]


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
    lacking = _lacking(kubectl, needed)
    found = [_missing(kubectl, engine, needed, lacking)] if lacking else []
    version = _server(kubectl) if needed.since > (1, 0) else None
    if version is not None and version < needed.since:
        found.append(_too_old(engine, needed, version))
    return tuple(found)


def operators_in(kubectl: Kubectl) -> tuple[str, ...]:
    """The engines whose operators' resources are in the cluster; Refused as `missing_for`."""
    return tuple(name for name, needed in _OPERATORS.items() if not _lacking(kubectl, needed))


def _lacking(kubectl: Kubectl, needed: Operator) -> tuple[str, ...]:
    """Names of the resources that the server does not know."""
    there = _told(kubectl, f"/apis/{needed.api}")
    names = {one.get("name") for one in there.get("resources", [])}
    return tuple(name for name in needed.resources if name not in names)


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


def _missing(
    kubectl: Kubectl, engine: EngineName, needed: Operator, lacking: tuple[str, ...]
) -> Finding:
    versions = _told(kubectl, f"/apis/{needed.group}").get("versions", [])
    others = [str(one.get("version")) for one in versions if one.get("version") != needed.version]
    names = ", ".join(f"{name}.{needed.group}" for name in lacking)
    return Finding(
        id="CLUSTER-016",
        status="fail",
        title=f"The cluster lacks {needed.name}, which the engine {engine} needs.",
        saw=f"no {names} in version {needed.version}"
        + (f"; of that group it has {', '.join(others)}" if others else ""),
        expected=f"the custom resources of {needed.api}",
        because="nothing in the cluster would make pods of what we ask for",
        fix=f"let an administrator install it: {needed.install}; "
        "or take --engine statefulset, which needs no operator",
        next="wirespeed cluster deploy NAME --engine statefulset",
    )


def _too_old(engine: EngineName, needed: Operator, version: tuple[int, int]) -> Finding:
    return Finding(
        id="CLUSTER-018",
        status="fail",
        title=f"The server is too old for the engine {engine}.",
        saw=f"Kubernetes {version[0]}.{version[1]}",
        expected=f"{needed.since[0]}.{needed.since[1]} or later",
        because="a pod's rank is the completion index of an indexed Job, which older servers lack",
        fix="take --engine statefulset, or a newer cluster",
        next="wirespeed cluster deploy NAME --engine statefulset",
    )
