"""Which engines a cluster can have."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from wirespeed.clusters.kube import Answer, Kubectl, Refused
from wirespeed.clusters.operations.capabilities import missing_for

NOT_THERE = "Error from server (NotFound): the server could not find the requested resource"
ALL = {
    "/apis/kubeflow.org/v2beta1": ("mpijobs",),
    "/apis/trainer.kubeflow.org/v1alpha1": ("trainjobs", "trainingruntimes", "other"),
    "/apis/jobset.x-k8s.io/v1alpha2": ("jobsets",),
}


@dataclass(frozen=True, kw_only=True)
class Fake(Kubectl):
    known: dict[str, Any] = field(default_factory=dict)
    version: str = "v1.32.1"
    broken: str = ""

    def ask(self, *words: str, stdin: str = "", within_s: float = 30.0) -> Answer:
        if self.broken:
            return Answer(words, 1, "", self.broken)
        if words[0] == "version":
            return Answer(words, 0, json.dumps({"serverVersion": {"gitVersion": self.version}}), "")
        told = self.known.get(words[-1])
        if told is None:
            return Answer(words, 1, "", NOT_THERE)
        names = [{"name": one} for one in told]
        body = told if isinstance(told, dict) else {"groupVersion": "a/v1", "resources": names}
        return Answer(words, 0, json.dumps(body), "")


def fake(**parts: Any) -> Fake:
    return Fake(program="kubectl", namespace="here", **parts)


def test_a_cluster_that_has_all() -> None:
    told = fake(known=ALL)
    assert not any(missing_for(told, engine) for engine in ("mpijob", "trainjob", "jobset"))


def test_a_bare_cluster_still_has_the_statefulset() -> None:
    assert all(missing_for(fake(), engine) for engine in ("mpijob", "trainjob", "jobset"))
    assert missing_for(fake(), "statefulset") == ()


@pytest.mark.parametrize(
    ("engine", "operator", "resource"),
    [
        ("mpijob", "the MPI operator", "mpijobs.kubeflow.org"),
        ("trainjob", "Kubeflow Trainer", "trainingruntimes.trainer.kubeflow.org"),
        ("jobset", "JobSet", "jobsets.jobset.x-k8s.io"),
    ],
)
def test_a_missing_operator_is_named_with_how_to_install_it(
    engine: Any, operator: str, resource: str
) -> None:
    (finding,) = missing_for(fake(), engine)
    assert (finding.id, finding.status) == ("CLUSTER-016", "fail")
    assert operator in finding.title and resource in finding.saw
    assert "https://" in finding.fix and "--engine statefulset" in finding.fix


def test_another_version_of_the_group_is_told() -> None:
    """Kubeflow's training operator has an MPIJob too, of v1."""
    known = {"/apis/kubeflow.org": {"versions": [{"version": "v1"}]}}
    (finding,) = missing_for(fake(known=known), "mpijob")
    assert "v2beta1" in finding.saw and "it has v1" in finding.saw


@pytest.mark.parametrize(
    ("version", "engine", "old"),
    [
        ("v1.20.2", "jobset", True),
        ("v1.20.2", "trainjob", True),
        ("v1.20.2", "mpijob", False),
        ("v1.22.0-eks-1", "jobset", False),
        ("v1.9.0", "jobset", True),
        ("something", "jobset", False),
    ],
)
def test_a_server_without_indexed_jobs_is_too_old(version: str, engine: Any, old: bool) -> None:
    found = missing_for(fake(known=ALL, version=version), engine)
    assert [one.id for one in found] == (["CLUSTER-018"] if old else [])
    assert not old or "indexed Job" in found[0].because


def test_an_unreachable_server_is_no_missing_operator() -> None:
    with pytest.raises(Refused, match="refused"):
        missing_for(fake(broken="The connection to the server was refused"), "mpijob")
