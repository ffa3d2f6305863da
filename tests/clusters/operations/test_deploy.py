"""Deploy against a cluster in memory: what is refused, what is repeated, what is left."""

from typing import Any

import pytest

from wirespeed.clusters.deployment import Deployment, settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.kube import Kubectl, Silent
from wirespeed.clusters.operations import deploy as module
from wirespeed.clusters.operations.deploy import Deployed, deploy
from wirespeed.errors import Interrupted

AWAY = "The connection to the server 10.0.0.1:6443 was refused"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_PATIENCE_S", "_PATIENCE_S"):
        monkeypatch.setattr(module, name, 0.3)


def settled(nodes: int = 2, **parts: Any) -> Deployment:
    return settle(ClusterFile.model_validate({"cluster": {"name": "demo"}, **parts}), nodes=nodes)


def done(kubectl: Kubectl, deployment: Deployment, within_s: float = 5, **more: Any) -> Deployed:
    return deploy(kubectl, deployment, Silent(), within_s=within_s, **more)


def failed(found: Deployed) -> set[str]:
    return {one.id for one in found.findings if one.status == "fail"}


def applied(memory: Any) -> int:
    """Calls that changed the cluster."""
    changing = ("apply", "delete", "annotate")
    return sum(one[0] in changing and "--dry-run=server" not in one for one in memory.calls)


def test_a_second_deploy_changes_nothing_and_few_processes_are_started(
    memory: Any, kubectl: Kubectl
) -> None:
    first = done(kubectl, settled())
    assert first.ok
    assert [pod.name for pod in first.pods] == ["demo-0", "demo-1"]
    assert [pod.zone for pod in first.pods] == ["", ""]
    assert len(memory.calls) <= 9
    memory.calls.clear()
    second = done(kubectl, settled())
    assert second.ok
    assert {one.action for one in second.changes} == {"keep"}
    assert applied(memory) == 0


def test_what_is_somebody_elses_is_not_touched(memory: Any, kubectl: Kubectl) -> None:
    theirs = {"metadata": {"name": "demo", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}
    memory.objects["Service", "demo"] = {"apiVersion": "v1", "kind": "Service", **theirs}
    found = done(kubectl, settled())
    assert failed(found) == {"CLUSTER-012"}
    assert "Helm" in found.findings[0].saw
    assert memory.names() == ["Service demo"]
    assert applied(memory) == 0


def test_what_the_file_no_longer_has_is_removed_but_never_claims(
    memory: Any, kubectl: Kubectl
) -> None:
    storage = {"mode": "rwx", "workspace_size": "1Gi"}
    assert done(kubectl, settled(storage=storage)).ok
    found = done(kubectl, settled(network={"policy": False}))
    assert found.ok
    assert [str(one) for one in found.changes if one.action == "remove"] == [
        "remove NetworkPolicy demo"
    ]
    assert "PersistentVolumeClaim demo-workspace" in memory.names()
    assert "NetworkPolicy demo" not in memory.names()


def test_without_rdma_it_falls_back_where_that_is_asked(memory: Any, kubectl: Kubectl) -> None:
    rdma = {"mode": "rdma", "rdma": {"enabled": True, "resource": "rdma/ib"}}
    wanted, tcp = settled(network=rdma), settled(network={**rdma, "mode": "tcp"})
    assert failed(done(kubectl, wanted)) == {"CLUSTER-014"}
    assert memory.names() == []
    found = done(kubectl, wanted, fallback=tcp)
    assert found.ok
    assert [(one.id, one.status) for one in found.findings] == [
        ("CLUSTER-014", "warn"),
        ("CLUSTER-015", "pass"),
    ]


def test_another_cluster_than_the_files_is_not_even_looked_at(
    memory: Any, kubectl: Kubectl
) -> None:
    cluster = {"name": "demo", "api": "https://b.example:6443"}
    found = done(kubectl, settled(cluster=cluster))
    assert (failed(found), found.exit_code) == ({"CLUSTER-019"}, 2)
    assert [words[0] for words in memory.calls] == ["config"]


def test_an_api_server_that_goes_leaves_what_a_second_call_finishes(
    memory: Any, kubectl: Kubectl
) -> None:
    memory.refuse = lambda words: AWAY
    found = done(kubectl, settled())
    assert (failed(found), found.exit_code) == ({"CLUSTER-011"}, 3)
    assert "finishes it" not in found.findings[0].fix

    def after_apply(words: tuple[str, ...]) -> str | None:
        return AWAY if memory.objects and "statefulsets.apps,pods" in str(words) else None

    memory.refuse = after_apply
    found = done(kubectl, settled())
    assert (failed(found), found.exit_code) == ({"CLUSTER-011"}, 3)
    assert "the same command finishes it" in found.findings[0].fix
    memory.refuse = lambda words: None
    assert done(kubectl, settled()).ok


def test_an_interrupt_says_what_is_there(memory: Any, kubectl: Kubectl) -> None:
    memory.status = {"phase": "Pending"}

    def stop(words: tuple[str, ...]) -> str | None:
        if memory.objects and words[0] == "get":
            raise KeyboardInterrupt
        return None

    memory.refuse = stop
    with pytest.raises(Interrupted) as told:
        done(kubectl, settled())
    assert "all objects are applied" in told.value.saw
    assert "cluster clean demo" in told.value.expected
    assert "cluster deploy demo" in told.value.next

    memory.objects.clear()
    memory.refuse = lambda words: (_ for _ in ()).throw(KeyboardInterrupt())
    with pytest.raises(Interrupted, match="nothing was made"):
        done(kubectl, settled())


def test_a_namespace_is_made_only_where_the_file_says_so(memory: Any, kubectl: Kubectl) -> None:
    made: list[str] = []

    def missing(words: tuple[str, ...]) -> str | None:
        if words[0] == "apply" and "--dry-run=server" not in words:
            made.append("namespace")
        refused = words[0] == "apply" and "--dry-run=server" in words and not made
        return 'Error from server (NotFound): namespaces "default" not found' if refused else None

    memory.refuse = missing
    assert failed(done(kubectl, settled())) == {"CLUSTER-005"}
    assert made == []
    found = done(kubectl, settled(cluster={"name": "demo", "create_namespace": True}))
    assert found.ok


def test_what_cannot_be_changed_is_made_anew_only_where_asked(
    memory: Any, kubectl: Kubectl
) -> None:
    assert done(kubectl, settled()).ok
    words = "updates to statefulset spec for fields other than 'replicas' are forbidden"

    def frozen(call: tuple[str, ...]) -> str | None:
        there = ("StatefulSet", "demo") in memory.objects
        text = f'The StatefulSet "demo" is invalid: spec: Forbidden: {words}'
        return text if there and "--dry-run=server" in call else None

    memory.refuse = frozen
    each = settled(storage={"mode": "volumeClaimTemplates", "workspace_size": "1Gi"})
    found = done(kubectl, each)
    assert failed(found) == {"CLUSTER-023"}
    assert "volumeClaimTemplates" in found.findings[0].because
    assert "--recreate" in found.findings[0].fix
    assert done(kubectl, each, recreate=True).ok


def test_a_quota_that_our_own_pods_fill_is_no_reason_to_refuse_them(
    memory: Any, kubectl: Kubectl
) -> None:
    full = 'Error from server (Forbidden): pods "wirespeed-try" is forbidden: exceeded quota: q, '
    full += "requested: pods=1, used: pods=2, limited: pods=2"
    tries: list[int] = []

    def quota(words: tuple[str, ...]) -> str | None:
        if "--dry-run=server" not in words:
            return None
        tries.append(1)
        return full if len(tries) % 2 else None

    memory.refuse = quota
    assert failed(done(kubectl, settled())) == {"CLUSTER-007"}
    assert memory.names() == []
    memory.refuse = lambda words: None
    assert done(kubectl, settled()).ok
    tries.clear()
    memory.refuse = quota
    assert done(kubectl, settled()).ok
