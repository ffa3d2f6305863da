"""Waiting: it ends when all are ready, when a cause is final, or when the time is over."""

import time
from typing import Any

import pytest

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.kube import Kubectl, Silent
from wirespeed.clusters.operations.deploy import Deployed, deploy


def deployed(kubectl: Kubectl, within_s: float) -> Deployed:
    file = ClusterFile.model_validate({"cluster": {"name": "demo"}})
    return deploy(kubectl, settle(file, nodes=2), Silent(), within_s=within_s)


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": more.pop("message", "")}}
    one = {"name": "ranks", "image": "a:1", "restartCount": 1, "state": state, **more}
    return {"phase": "Pending", "containerStatuses": [one]}


def test_a_final_cause_ends_it_long_before_the_time_is_over(memory: Any, kubectl: Kubectl) -> None:
    last = {"terminated": {"exitCode": 7, "reason": "Error"}}
    memory.status = waiting("CrashLoopBackOff", lastState=last)
    began = time.monotonic()
    found = deployed(kubectl, 600)
    assert time.monotonic() - began < 60
    (one,) = found.findings
    assert (one.id, found.exit_code) == ("CLUSTER-010", 1)
    assert "exit code 7" in one.title
    assert "demo-0: Traceback: it broke" in one.evidence
    assert "the same holds for demo-1" in one.evidence


def test_what_may_pass_is_told_as_the_cause_once_the_time_is_over(
    memory: Any, kubectl: Kubectl
) -> None:
    memory.status = waiting("ErrImagePull", message="dial tcp: connection refused")
    found = deployed(kubectl, 1)
    assert [one.id for one in found.findings] == ["CLUSTER-003"]


def test_no_cause_is_unknown_not_a_finding(memory: Any, kubectl: Kubectl) -> None:
    memory.status = {"phase": "Running"}
    found = deployed(kubectl, 1)
    assert [one.id for one in found.findings] == ["CLUSTER-017"]
    assert found.exit_code == 3
    assert "demo-0: Running" in found.findings[0].saw


def test_pods_of_an_older_template_do_not_count_and_are_replaced(
    memory: Any, kubectl: Kubectl
) -> None:
    assert deployed(kubectl, 5).ok
    for (kind, _), told in memory.objects.items():
        if kind == "Pod":
            told["metadata"]["labels"]["controller-revision-hash"] = "older"
    assert deployed(kubectl, 1).exit_code == 3
    (gone,) = [words for words in memory.calls if words[:2] == ("delete", "pods")]
    assert {"demo-0", "demo-1"} <= set(gone)


@pytest.mark.slow
def test_a_set_that_lacks_pods_is_woken_once(memory: Any, kubectl: Kubectl) -> None:
    assert deployed(kubectl, 5).ok
    del memory.objects["Pod", "demo-1"]
    assert deployed(kubectl, 2.5).exit_code == 3
    assert len([words for words in memory.calls if words[0] == "annotate"]) == 1


@pytest.mark.slow
def test_old_events_are_no_news(memory: Any, kubectl: Kubectl) -> None:
    assert deployed(kubectl, 5).ok
    del memory.objects["Pod", "demo-1"]
    about = {"uid": "StatefulSet/demo", "kind": "StatefulSet", "name": "demo"}
    message = (
        'pods "demo-1" is forbidden: exceeded quota: q, requested: a=1, used: a=1, limited: a=1'
    )
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "FailedCreate"}
    memory.events = [{**event, "message": message, "count": 3, "type": "Warning"}]
    assert [one.id for one in deployed(kubectl, 3).findings] == ["CLUSTER-017"]
