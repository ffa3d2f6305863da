"""Pods from the API's JSON."""

from typing import Any

import pytest

from wirespeed.clusters.operations.pod_lookup import effective_requests, ordered, pod_from


def told(name: str, **more: Any) -> dict[str, Any]:
    container = {"name": "ranks", "restartCount": 3, "state": more.get("state", {})}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": more.get("labels", {}), **more.get("meta", {})},
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {"name": "ranks", "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/ib": "2"}}},
                {"name": "side", "resources": {"requests": {"cpu": "1"}}},
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": [ready],
            "containerStatuses": [{"name": "side", "restartCount": 9}, container],
        },
    }


def test_a_pod_is_what_the_cluster_says_of_it() -> None:
    pod = pod_from(told("demo-11"))
    assert (pod.node, pod.ip, pod.ordinal, pod.restarts, pod.gpus) == (
        "node-1",
        "10.0.0.7",
        11,
        3,
        8,
    )
    assert dict(pod.devices) == {"nvidia.com/gpu": 8, "rdma/ib": 2}
    assert pod.ready
    assert pod.status == "Running"


def test_a_pod_that_goes_is_not_ready_and_one_that_waits_says_for_what() -> None:
    going = pod_from(told("demo-0", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert (going.ready, going.terminating, going.status) == (False, True, "Terminating")
    waiting = pod_from(told("demo-0", state={"waiting": {"reason": "ImagePullBackOff"}}))
    assert waiting.status == "ImagePullBackOff"


def test_ranks_pods_come_first_in_the_order_of_their_numbers() -> None:
    launcher = {"app.kubernetes.io/component": "launcher"}
    index = {"batch.kubernetes.io/job-completion-index": "1"}
    items = [
        told("demo-10"),
        told("a-launcher", labels=launcher),
        told("demo-2"),
        told("x-y", labels=index),
    ]
    assert [pod.name for pod in ordered(items)] == ["x-y", "demo-2", "demo-10", "a-launcher"]


@pytest.mark.parametrize(
    ("policy", "cpu"),
    [("", 4.0), ("Always", 5.0)],
)
def test_init_containers_count_as_the_scheduler_counts_them(policy: str, cpu: float) -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "500m"}}}] * 2,
        "initContainers": [{"restartPolicy": policy, "resources": {"requests": {"cpu": "4"}}}],
        "overhead": {"memory": "1Gi"},
    }
    assert effective_requests(spec) == {"cpu": cpu, "memory": 2**30}
