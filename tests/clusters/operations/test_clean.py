"""Clean removes what is ours, keeps claims unless asked, and finds nothing to do the second time."""

from typing import Any

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.kube import Kubectl, Silent
from wirespeed.clusters.operations.clean import clean, removal
from wirespeed.clusters.operations.deploy import deploy

STORAGE = {"mode": "rwx", "workspace_size": "1Gi"}


def up(kubectl: Kubectl, name: str) -> None:
    file = ClusterFile.model_validate({"cluster": {"name": name}, "storage": STORAGE})
    assert deploy(kubectl, settle(file, nodes=1), Silent(), within_s=5).ok


def test_claims_stay_until_they_are_asked_for(memory: Any, kubectl: Kubectl) -> None:
    up(kubectl, "demo")
    plan = removal(kubectl, "demo", Silent(), claims=False)
    assert plan.kept == ("demo-workspace",)
    assert "StatefulSet demo" in plan.objects
    done = clean(kubectl, "demo", Silent(), claims=False, within_s=5)
    assert (done.exit_code, done.kept) == (0, ("demo-workspace",))
    assert memory.names() == ["PersistentVolumeClaim demo-workspace"]
    again = clean(kubectl, "demo", Silent(), claims=False, within_s=5)
    assert (again.exit_code, again.removed) == (0, ())
    done = clean(kubectl, "demo", Silent(), claims=True, within_s=5)
    assert done.removed == ("PersistentVolumeClaim demo-workspace",)
    assert memory.names() == []


def test_others_stay_whatever_their_names_are(memory: Any, kubectl: Kubectl) -> None:
    up(kubectl, "demo")
    theirs = {"name": "demo-extra", "labels": {"app.kubernetes.io/instance": "demo"}}
    memory.objects["ConfigMap", "demo-extra"] = {"kind": "ConfigMap", "metadata": theirs}
    assert clean(kubectl, "demo", Silent(), claims=True, within_s=5).exit_code == 0
    assert memory.names() == ["ConfigMap demo-extra"]
    assert not [
        words for words in memory.calls if words[0] == "delete" and "namespace" in str(words)
    ]


def test_what_does_not_go_in_time_is_unknown(memory: Any, kubectl: Kubectl) -> None:
    up(kubectl, "demo")
    memory.refuse = lambda words: None
    delete, memory._delete = memory._delete, lambda words, stdin: ""
    done = clean(kubectl, "demo", Silent(), claims=False, within_s=0.5)
    assert (done.exit_code, done.findings[0].id) == (3, "CLUSTER-029")
    assert "node-0" in done.findings[0].because
    memory._delete = delete
    assert clean(kubectl, "demo", Silent(), claims=False, within_s=5).exit_code == 0
