"""The pod: rights, resources, probes, and what a preset brings along."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.pod import pod_template
from wirespeed.clusters.presets import Preset

Pod = Callable[..., dict[str, Any]]


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def test_it_has_no_rights(pod: Pod) -> None:
    made = pod()
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["enableServiceLinks"] is False
    assert made["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "privileged" not in str(made)
    assert "hostPath" not in str(made)


def test_memory_is_locked_only_where_asked(pod: Pod, deployment: Callable[..., Deployment]) -> None:
    locked = {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    asked = container(pod(security={"ipc_lock": True}))
    assert asked["securityContext"]["capabilities"] == locked
    preset = Preset(name="p", summary="", why="", source="", mode="tcp", ipc_lock=True)
    given = container(pod_template(replace(deployment(), preset=preset)))
    assert given["securityContext"]["capabilities"] == locked
    assert "add" not in container(pod())["securityContext"]["capabilities"]


def test_users(pod: Pod) -> None:
    plain = pod(security={"run_as_user": 1000, "fs_group": 0})["spec"]["securityContext"]
    assert (plain["runAsUser"], plain["runAsNonRoot"], plain["fsGroup"]) == (1000, True, 0)
    root = pod(security={"run_as_user": 0})["spec"]["securityContext"]
    assert (root["runAsUser"], root["runAsNonRoot"]) == (0, False)


def test_requests_equal_limits_for_what_cannot_be_shared(pod: Pod) -> None:
    network = {"mode": "rdma", "rdma": {"resource": "rdma/ib", "count": 2}}
    parts = {"requests": {"cpu": "32"}, "limits": {"memory": "256Gi"}}
    made = container(pod(gpus={"per_node": 8}, network=network, resources=parts))
    assert made["resources"] == {
        "requests": {"cpu": "32", "nvidia.com/gpu": "8", "rdma/ib": "2"},
        "limits": {"memory": "256Gi", "nvidia.com/gpu": "8", "rdma/ib": "2"},
    }


def test_nothing_is_asked_that_the_file_does_not_say(pod: Pod) -> None:
    assert "resources" not in container(pod())
    assert "tolerations" not in pod()["spec"]


def test_rdma_is_not_asked_over_tcp(pod: Pod) -> None:
    rdma = {"resource": "rdma/ib", "count": 2, "networks": ["rail-0"], "devices": "mlx5_0"}
    made = pod(network={"mode": "tcp", "rdma": rdma})
    assert "rdma/ib" not in str(made)
    assert "rail-0" not in str(made)
    assert "mlx5_0" not in str(made)


def test_a_presets_other_resources_and_sidecars_come_along(
    deployment: Callable[..., Deployment],
) -> None:
    network = {"mode": "rdma", "rdma": {"resource": "example.org/nic", "count": 4}}
    preset = Preset(
        name="p", summary="", why="", source="", mode="rdma", resources={"hugepages-2Mi": 5},
        sidecars=({"name": "helper", "image": "example.org/helper:1"},),
        annotations={"example.org/fabric": "yes"},
    )  # fmt: skip
    made = pod_template(replace(deployment(network=network), preset=preset))
    asked = container(made)["resources"]["limits"]
    assert asked == {"hugepages-2Mi": "5", "example.org/nic": "4"}
    assert made["spec"]["containers"][1] == {"name": "helper", "image": "example.org/helper:1"}
    assert made["metadata"]["annotations"] == {"example.org/fabric": "yes"}


def test_networks_are_attached_in_their_order(pod: Pod) -> None:
    rdma = {"networks": ["rail-1", "other/rail-0"]}
    made = pod(network={"mode": "rdma", "rdma": rdma})
    key = "k8s.v1.cni.cncf.io/networks"
    assert made["metadata"]["annotations"] == {key: "rail-1,other/rail-0"}


def test_probes_are_cheap_and_slow_to_judge(pod: Pod) -> None:
    """A liveness probe that a busy node fails would end a training."""
    made = container(pod())
    live, ready = made["livenessProbe"], made["readinessProbe"]
    assert live["periodSeconds"] * live["failureThreshold"] >= 300
    assert ready["exec"]["command"][:2] == ["/bin/sh", "-c"]
    assert "/workspace" in ready["exec"]["command"][2]


def test_kueue_admits_the_pods_together(pod: Pod, rendered: Callable[..., Any]) -> None:
    queued = {"queue": "vision"}
    made = pod(workload=queued, gpus={"default_nodes": 3})
    labels, annotations = made["metadata"]["labels"], made["metadata"]["annotations"]
    assert labels["kueue.x-k8s.io/queue-name"] == "vision"
    assert labels["kueue.x-k8s.io/pod-group-name"] == "mine"
    assert annotations["kueue.x-k8s.io/pod-group-total-count"] == "3"
    owner = rendered(workload=queued)["StatefulSet"]["metadata"]["labels"]
    assert owner["kueue.x-k8s.io/queue-name"] == "vision"
    assert "kueue" not in str(pod())


def test_each_call_gives_an_object_of_its_own(deployment: Callable[..., Deployment]) -> None:
    """Engines change what they get."""
    made = deployment(gpus={"per_node": 1})
    first = pod_template(made)
    first["spec"]["containers"][0]["env"].clear()
    first["spec"]["affinity"].clear()
    first["metadata"]["labels"].clear()
    assert pod_template(made) == pod_template(made) != first
    assert container(pod_template(made))["env"]
