"""Status of an environment in memory, and what the command prints and ends with."""

from typing import Any

import pytest

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import Cluster, ClusterFile
from wirespeed.clusters.kube import Kubectl, Silent
from wirespeed.clusters.operations import status as module
from wirespeed.clusters.operations.deploy import deploy
from wirespeed.clusters.operations.status import Status, asked_pods, status
from wirespeed.session.cluster_runs import Telling, show_status

CLUSTER = Cluster(name="demo")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.3)


def found(kubectl: Kubectl) -> Status:
    return status(kubectl, CLUSTER, Silent())


def up(kubectl: Kubectl) -> None:
    file = ClusterFile.model_validate({"cluster": {"name": "demo"}, "gpus": {"per_node": 8}})
    assert deploy(kubectl, settle(file, nodes=2), Silent(), within_s=5).ok


def test_all_ready(memory: Any, kubectl: Kubectl) -> None:
    up(kubectl)
    told = found(kubectl)
    assert (told.exit_code, told.asked, told.ready) == (0, 2, 2)
    assert [(pod.zone, pod.gpus) for pod in told.pods] == [("zone-0", 8), ("zone-1", 8)]
    shown = show_status(told, Telling())
    assert "demo-1  node-1  zone-1  Running" in shown
    assert "\x1b" not in shown


def test_what_is_not_ready_is_told_with_its_cause(memory: Any, kubectl: Kubectl) -> None:
    up(kubectl)
    state = {"waiting": {"reason": "ErrImagePull", "message": "x: \x1b[31mnot found"}}
    held = {"name": "ranks", "image": "a:1", "restartCount": 0, "state": state}
    memory.objects["Pod", "demo-1"]["status"] = {"phase": "Pending", "containerStatuses": [held]}
    told = found(kubectl)
    assert (told.exit_code, told.ready) == (1, 1)
    assert [one.id for one in told.findings] == ["CLUSTER-003"]
    assert "\x1b[31m" not in show_status(told, Telling())


def test_fewer_pods_than_asked_and_older_ones_are_drift(memory: Any, kubectl: Kubectl) -> None:
    up(kubectl)
    del memory.objects["Pod", "demo-1"]
    memory.objects["Pod", "demo-0"]["metadata"]["labels"]["controller-revision-hash"] = "older"
    told = found(kubectl)
    assert told.exit_code == 1
    (one,) = [one for one in told.findings if one.id == "CLUSTER-027"]
    assert "1 pods, 2 asked" in one.title
    assert "older template: demo-0" in one.title


def test_what_is_not_there_and_what_cannot_be_seen_are_not_the_same(
    memory: Any, kubectl: Kubectl
) -> None:
    told = found(kubectl)
    assert (told.exit_code, told.findings[0].id) == (1, "CLUSTER-028")
    memory.refuse = lambda words: "error: You must be logged in to the server (Unauthorized)"
    told = found(kubectl)
    assert (told.exit_code, told.findings[0].id) == (3, "CLUSTER-020")
    memory.refuse = lambda words: "Error from server: etcdserver: leader changed"
    told = found(kubectl)
    assert (told.exit_code, told.findings[0].id) == (3, "CLUSTER-011")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("StatefulSet", {"replicas": 3}),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 3}}}),
        ("TrainJob", {"trainer": {"numNodes": 3}}),
        ("JobSet", {"replicatedJobs": [{"template": {"spec": {"parallelism": 3}}}]}),
    ],
)
def test_every_engine_says_how_many_pods_it_wants(kind: str, spec: dict[str, Any]) -> None:
    assert asked_pods({"kind": kind, "spec": spec}) == 3
