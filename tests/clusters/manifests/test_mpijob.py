"""MPIJob: what the operator takes, workers with sshd, and a launcher that needs no GPU."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import validate

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.render import as_yaml, job, mpirun_words, render
from wirespeed.clusters.operations.nccl_tests import environment_of, manifests
from wirespeed.errors import UsageError

GOLDEN = Path(__file__).parents[2] / "golden"
Make = Callable[..., Deployment]
FULL: dict[str, Any] = {
    "workload": {"env": {"NCCL_ALGO": "Ring", "TOKEN": "a$(HOME)b"}, "queue": "vision"},
    "gpus": {"per_node": 8},
    "resources": {"requests": {"cpu": "32", "memory": "128Gi"}, "limits": {"memory": "256Gi"}},
    "storage": {"mode": "rwx", "workspace_size": "10Gi"},
    "network": {"rdma": {"enabled": True, "resource": "rdma/ib", "networks": ["rail-0"]}},
}


def of(deployment: Deployment) -> dict[str, Any]:
    return next(one for one in render(deployment) if one["kind"] == "MPIJob")


def template(made: dict[str, Any], role: str) -> dict[str, Any]:
    found: dict[str, Any] = made["spec"]["mpiReplicaSpecs"][role]["template"]
    return found


def container(made: dict[str, Any], role: str) -> dict[str, Any]:
    found: dict[str, Any] = template(made, role)["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("case", ["environment", "nccl-tests"])
def test_the_whole_of_it(case: str, deployment: Make) -> None:
    told = deployment(engine="mpijob", pods=2, **FULL)
    words = ("all_reduce_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "1")
    made = render(told) if case == "environment" else manifests(environment_of(told), words)
    path = GOLDEN / f"cluster-jobs.mpijob-{case}.yaml"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        path.write_text(as_yaml(made))
    assert as_yaml(made) == path.read_text(), "if this is wanted, see tests/golden/README.md"


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
@pytest.mark.parametrize("parts", [FULL, {}], ids=["full", "smallest"])
def test_its_pods_are_of_kubernetes_own_schema(
    version: str, parts: dict[str, Any], deployment: Make
) -> None:
    made = of(deployment(engine="mpijob", **parts))
    for role in ("Launcher", "Worker"):
        pod = {"apiVersion": "v1", "kind": "Pod", **template(made, role)}
        pod["metadata"] = {**pod["metadata"], "name": "one"}
        validate(pod, version, strict=True)


@pytest.mark.parametrize(("nodes", "gpus", "slots"), [(1, 0, 1), (2, 8, 8), (5, 1, 1)])
def test_any_number_of_nodes_and_gpus(nodes: int, gpus: int, slots: int, deployment: Make) -> None:
    told = deployment(engine="mpijob", pods=nodes, gpus={"per_node": gpus})
    spec = of(told)["spec"]
    assert spec["slotsPerWorker"] == slots
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == nodes
    assert spec["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1
    words = mpirun_words(told, ["hostname"])
    assert words[words.index("-np") + 1] == str(nodes * slots)


def test_a_job_is_tried_once_and_leaves_its_launcher_to_be_read(deployment: Make) -> None:
    policy = job(deployment(engine="mpijob"), ["true"])["spec"]
    assert policy["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 0}
    assert policy["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert {one["restartPolicy"] for one in policy["mpiReplicaSpecs"].values()} == {"Never"}


def test_the_launcher_asks_for_no_gpu_and_little_else(deployment: Make) -> None:
    made = of(deployment(engine="mpijob", **FULL))
    assert container(made, "Worker")["resources"] == {
        "requests": {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "8", "rdma/ib": "1"},
        "limits": {"memory": "256Gi", "nvidia.com/gpu": "8", "rdma/ib": "1"},
    }
    assert container(made, "Launcher")["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi"},
        "limits": {"memory": "2Gi"},
    }
    assert "annotations" in template(made, "Worker")["metadata"]
    assert "annotations" not in template(made, "Launcher")["metadata"]
    assert "resources" not in container(of(deployment(engine="mpijob")), "Launcher")


def test_the_launcher_has_a_place_beside_a_worker(deployment: Make) -> None:
    made = of(deployment(engine="mpijob", **FULL))
    terms = template(made, "Worker")["spec"]["affinity"]["podAntiAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]
    apart = term["labelSelector"]["matchLabels"].items()
    assert apart <= template(made, "Worker")["metadata"]["labels"].items()
    assert not apart <= template(made, "Launcher")["metadata"]["labels"].items()
    assert "affinity" not in template(made, "Launcher")["spec"]


def test_the_network_policy_lets_launcher_and_workers_meet(deployment: Make) -> None:
    objects = render(deployment(engine="mpijob"))
    (policy,) = [one for one in objects if one["kind"] == "NetworkPolicy"]
    reached = policy["spec"]["podSelector"]["matchLabels"].items()
    made = next(one for one in objects if one["kind"] == "MPIJob")
    for role in ("Launcher", "Worker"):
        assert reached <= template(made, role)["metadata"]["labels"].items()


def test_the_operator_makes_the_service_of_the_jobs_name(deployment: Make) -> None:
    """One of ours of that name would stop it: `newJobService` in its controller."""
    assert "Service" not in {one["kind"] for one in render(deployment(engine="mpijob"))}


@pytest.mark.parametrize(("user", "added"), [(None, True), (0, True), (1000, False)])
def test_sshd_gets_capabilities_only_where_it_may_run_as_root(
    user: int | None, added: bool, deployment: Make
) -> None:
    security = {} if user is None else {"run_as_user": user}
    made = of(deployment(engine="mpijob", security={**security, "ipc_lock": True}))
    found = container(made, "Worker")["securityContext"]
    sshd = ["AUDIT_WRITE", "IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT"]
    assert found["capabilities"] == {"drop": ["ALL"], "add": sshd if added else ["IPC_LOCK"]}
    assert found["allowPrivilegeEscalation"] is False


def test_ranks_get_the_fabrics_and_the_users_variables_by_name(deployment: Make) -> None:
    told = deployment(engine="mpijob", **FULL)
    words = mpirun_words(told, ["all_reduce_perf"])
    handed = {words[index + 1] for index, word in enumerate(words) if word == "-x"}
    assert {"LD_LIBRARY_PATH", "NCCL_ALGO", "NCCL_IB_DISABLE", "TOKEN"} <= handed
    there = {one["name"] for one in container(of(told), "Launcher")["env"]}
    assert handed - {"LD_LIBRARY_PATH"} <= there
    assert not [word for word in words if "$" in word]


def test_words_reach_the_program_as_they_are(deployment: Make) -> None:
    """Kubernetes replaces $(NAME) in `command`; $$ is a dollar."""
    made = job(deployment(engine="mpijob"), ["echo", "$(HOME) `id` ; $$ \n"])
    assert container(made, "Launcher")["command"] == ["echo", "$$(HOME) `id` ; $$$$ \n"]


def test_kueue_starts_it(deployment: Make) -> None:
    made = of(deployment(engine="mpijob", **FULL))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision"
    assert made["spec"]["runPolicy"]["suspend"] is True
    plain = of(deployment(engine="mpijob"))
    assert "suspend" not in plain["spec"]["runPolicy"]
    for role in ("Launcher", "Worker"):
        assert not [key for key in template(made, role)["metadata"]["labels"] if "kueue" in key]


def test_nccl_tests_is_an_environment_of_its_own(deployment: Make) -> None:
    told = deployment(engine="statefulset", cluster={"create_namespace": True}, **FULL)
    made = manifests(environment_of(told), ["all_reduce_perf"])
    assert {one["metadata"]["namespace"] for one in made} == {"here"}
    names = {one["metadata"]["name"] for one in made}
    assert names == {"mine-nccl-tests", "mine-nccl-tests-scripts"}
    kinds = {one["kind"] for one in made}
    assert not kinds & {"PersistentVolumeClaim", "Namespace", "StatefulSet", "Service"}
    assert {one["metadata"]["labels"]["wirespeed/run"] for one in made} == {"nccl-tests"}


def test_the_longest_name_still_gives_labels_of_dns(deployment: Make) -> None:
    told = deployment(cluster={"name": "a" * 40}, gpus={"per_node": 1}, pods=10_000)
    made = of(environment_of(told))
    assert len(f"{made['metadata']['name']}-worker-9999") <= 63


def test_nccl_tests_needs_gpus(deployment: Make) -> None:
    with pytest.raises(UsageError, match=r"gpus\.per_node is 0"):
        environment_of(deployment())
