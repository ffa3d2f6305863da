"""Rules between keys: what each refuses, and what stands beside it and is right."""

import pytest

from wirespeed.clusters.reading import ClusterFileError, read_cluster

VOLUME = "workload: {volumes: [%s]}"
CASES = {
    "nodes: {tolerations: [{value: x}]}": "nodes.tolerations[0].value",
    "nodes: {tolerations: [{key: a}, {operator: Equal}]}": "nodes.tolerations[1].operator",
    "nodes: {tolerations: [{toleration_seconds: 3}]}": "nodes.tolerations[0].toleration_seconds",
    "nodes: {gpu_nodes: [a, b, a]}": "nodes.gpu_nodes[2]",
    "resources: {requests: {cpu: 2}, limits: {cpu: 1999m}}": "resources.requests.cpu",
    "resources: {requests: {memory: 1Gi}, limits: {memory: 1G}}": "resources.requests.memory",
    "resources: {limits: {memory: 1Gi}}\nworkload: {shm_size: 2Gi}": "workload.shm_size",
    "workload: {env: {MASTER_PORT: 1}}": "workload.env.MASTER_PORT",
    "workload: {env: {POD_NAME: x}}": "workload.env.POD_NAME",
    "workload: {labels: {app.kubernetes.io/name: x}}": "workload.labels.app.kubernetes.io/name",
    "workload: {queue: a, labels: {kueue.x-k8s.io/queue-name: b}}": (
        "workload.labels.kueue.x-k8s.io/queue-name"
    ),
    "network: {rdma: {networks: [a]}}\nworkload: {annotations: {k8s.v1.cni.cncf.io/networks: b}}": (
        "workload.annotations.k8s.v1.cni.cncf.io/networks"
    ),
    VOLUME % "{name: a, mount_path: /a}": "workload.volumes[0]",
    VOLUME % "{name: a, mount_path: /a, claim: x, secret: y}": "workload.volumes[0]",
    VOLUME % "{name: shm, mount_path: /a, claim: x}": "workload.volumes[0].name",
    VOLUME % "{name: a, mount_path: /a/../b, claim: x}": "workload.volumes[0].mount_path",
    VOLUME % "{name: a, mount_path: /a, host_path: /x/..}": "workload.volumes[0].host_path",
    VOLUME % "{name: a, mount_path: /a, claim: x}, {name: a, mount_path: /b, claim: x}": (
        "workload.volumes[1].name"
    ),
    VOLUME % "{name: a, mount_path: /a, claim: x}, {name: b, mount_path: //a/, claim: x}": (
        "workload.volumes[1].mount_path"
    ),
    VOLUME % "{name: a, mount_path: /dev/shm/, claim: x}": "workload.volumes[0].mount_path",
    VOLUME % "{name: a, mount_path: /, claim: x}": "workload.volumes[0].mount_path",
    VOLUME % "{name: a, mount_path: /etc, claim: x}": "workload.volumes[0].mount_path",
    VOLUME % "{name: a, mount_path: /workspace, claim: x}" + "\nstorage: {mode: rwx}": (
        "workload.volumes[0].mount_path"
    ),
    VOLUME % "{name: a, mount_path: /datasets, claim: x}"
    + "\nstorage: {mode: volumeClaimTemplates, datasets_size: 1Gi}": (
        "workload.volumes[0].mount_path"
    ),
}
RIGHT = (
    "nodes: {tolerations: [{key: a, operator: Equal, value: x}, {operator: Exists}]}",
    "nodes: {tolerations: [{effect: NoExecute, toleration_seconds: 0}]}",
    "resources: {requests: {cpu: 2000m, memory: 1G}, limits: {cpu: 2, memory: 1Gi}}",
    "resources: {limits: {memory: 1Gi}}\nworkload: {shm_size: 1024Mi}",
    "workload: {env: {NCCL_DEBUG: INFO, MASTER: x}, labels: {app.kubernetes.io/part-of: x}}",
    VOLUME % "{name: a, mount_path: /a, claim: x}, {name: b, mount_path: /a/b, empty_dir: 1Gi}",
    VOLUME % "{name: a, mount_path: /workspace, host_path: /x}",
    VOLUME % "{name: a, mount_path: /workspace/data, claim: x}" + "\nstorage: {mode: rwx}",
    VOLUME % "{name: a, mount_path: /datasets, claim: x}" + "\nstorage: {mode: rwx}",
    VOLUME % "{name: a, mount_path: /devices, claim: x}",
    "resources: {limits: {memory: 512Mi}}",
)


@pytest.mark.parametrize("text", CASES)
def test_a_broken_rule_names_its_key(text: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        read_cluster("cluster: {name: a}\n" + text, "a.yaml")
    assert [one.key for one in caught.value.problems] == [CASES[text]]
    assert caught.value.problems[0].line in (2, 3)


@pytest.mark.parametrize("text", RIGHT)
def test_what_stands_beside_it_is_right(text: str) -> None:
    assert read_cluster("cluster: {name: a}\n" + text, "a.yaml").cluster.name == "a"
