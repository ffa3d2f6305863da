"""What a file leaves open of its fabric: taken from the cluster, or said; nothing is made up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run as wirespeed
from wirespeed.clusters.deployment import Deployment, settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.kube import Kubectl, Silent
from wirespeed.clusters.manifests import (
    extended_resources,
    network_annotations,
    variables,
)
from wirespeed.clusters.manifests.pod import pod_template
from wirespeed.clusters.operations.capabilities import served
from wirespeed.clusters.operations.deploy import deploy
from wirespeed.clusters.reading import read_cluster
from wirespeed.errors import UsageError

OLDER = Path(__file__).parents[1] / "file" / "older.yaml"
NETS = ("net1", "net2", "net3", "net4")
IB = {"rdma/ib": "4"}


def older(*pairs: tuple[str, str]) -> Deployment:
    """The older tool's own kind of file: interfaces and devices, no networks, no resource, no image."""
    text = OLDER.read_text("utf-8")
    for before, after in (("    - gpu-node-u25\n    - gpu-node-u23\n", "    -\n"), *pairs):
        assert before in text
        text = text.replace(before, after)
    return settle(read_cluster(text, "older.yaml"), live=True)


def rdma(**keys: Any) -> ClusterFile:
    told = {"cluster": {"name": "demo"}, "network": {"rdma": {"enabled": True, **keys}}}
    return ClusterFile.model_validate(told)


def warned(deployment: Deployment) -> list[str]:
    return [one.id[-3:] for one in deployment.warnings]


def test_such_a_file_is_served_without_a_cluster_and_says_what_is_open() -> None:
    made = older()
    assert made.mode == "rdma"
    assert warned(made) == ["043", "044", "045"]
    assert "NCCL_SOCKET_IFNAME" not in variables(made)
    assert variables(made)["NCCL_IB_HCA"] == "mlx5_6,mlx5_7,mlx5_8,mlx5_9"
    assert made.file.workload.image == "localhost/wirespeed:cuda"


def test_attachments_of_the_same_names_are_taken(memory: Any, kubectl: Kubectl) -> None:
    memory.attachments, memory.allocatable = NETS, IB
    made, against = served(kubectl, older())
    assert against == ()
    assert variables(made)["NCCL_SOCKET_IFNAME"] == "net1,net2,net3,net4"
    (value,) = network_annotations(made).values()
    assert value == ",".join(f"nccl-test/{name}@{name}" for name in NETS)
    assert warned(made) == ["043"]
    assert [one.value for one in made.choices if one.name == "network.rdma.networks"]


def test_where_one_is_missing_the_variable_stays_out_and_the_plugin_serves(
    memory: Any, kubectl: Kubectl
) -> None:
    memory.attachments, memory.allocatable = NETS[:3], IB
    made, against = served(kubectl, older())
    assert against == ()
    assert network_annotations(made) == {}
    assert extended_resources(made) == {"rdma/ib": 1}
    assert warned(made) == ["043", "044"]
    assert "the only RDMA resource among what 3 nodes" in str(made.choices)


@pytest.mark.parametrize(
    ("there", "seen"), [({}, "no RDMA resources"), ({"rdma/a": "1", "rdma/b": "1"}, "2 RDMA")]
)
def test_none_or_several_are_refused_where_nothing_else_names_rdma(
    there: dict[str, str], seen: str, memory: Any, kubectl: Kubectl
) -> None:
    memory.allocatable = there
    with pytest.raises(UsageError, match="names no RDMA resource"):
        settle(rdma())
    preset = ClusterFile.model_validate(
        {"cluster": {"name": "demo"}, "network": {"preset": "rdma"}}
    )
    assert served(kubectl, settle(preset, live=True))[1][0].id == "CLUSTER-014"
    made = settle(rdma(), live=True)
    found = deploy(kubectl, made, Silent(), within_s=5)
    (failed,) = [one for one in found.findings if one.status == "fail"]
    assert failed.id == "CLUSTER-014" and seen in failed.title
    assert found.changes == () and not memory.objects
    instead = settle(rdma(), mode="tcp")
    again = deploy(kubectl, made, Silent(), within_s=5, fallback=instead)
    assert again.ok and memory.objects


def test_deploy_takes_the_one_that_there_is(memory: Any, kubectl: Kubectl) -> None:
    memory.allocatable = IB
    found = deploy(kubectl, settle(rdma(), live=True), Silent(), within_s=5)
    assert found.ok
    spec = memory.objects["Pod", "demo-0"]["spec"]["containers"][0]["resources"]
    assert spec["limits"] == {"rdma/ib": "1"}


def test_what_is_said_is_not_asked_for(memory: Any, kubectl: Kubectl) -> None:
    made = settle(rdma(resource="rdma/ib"), live=True)
    assert served(kubectl, made) == (made, ())
    assert served(kubectl, settle(rdma(), mode="tcp"))[1] == ()
    assert memory.calls == []


def test_deploy_says_the_warnings_of_validate(memory: Any, kubectl: Kubectl) -> None:
    memory.allocatable = IB
    made = settle(rdma(interfaces="net1,eth0"), live=True)
    assert made.file.network.rdma.interfaces == "eth0"
    found = deploy(kubectl, made, Silent(), within_s=5)
    assert found.exit_code == 0
    assert [one.id for one in found.findings if one.status == "warn"] == ["CLUSTER-044"]
    assert "net1: they are left out" in found.findings[0].title


@pytest.mark.parametrize(
    ("security", "user", "ids"),
    [
        ({"ipc_lock": True, "requires_privileged_scc": True}, 0, []),
        ({"ipc_lock": True}, None, ["046"]),
        ({"ipc_lock": True, "run_as_user": 1000}, 1000, ["046"]),
        ({"ipc_lock": True, "run_as_user": 0}, 0, []),
        ({"requires_privileged_scc": True}, None, []),
    ],
)
def test_ipc_lock_is_roots(security: dict[str, Any], user: int | None, ids: list[str]) -> None:
    file = ClusterFile.model_validate({"cluster": {"name": "demo"}, "security": security})
    made = settle(file)
    assert warned(made) == ids
    context = pod_template(made)["spec"]["securityContext"]
    assert context.get("runAsUser") == user


@pytest.mark.parametrize(
    ("gpus", "image", "taken", "ids"),
    [
        (0, None, "localhost/wirespeed:cpu", []),
        (4, None, "localhost/wirespeed:cuda", ["043"]),
        (4, "localhost/wirespeed:cpu", "localhost/wirespeed:cpu", ["043"]),
        (4, "registry.example.org/a:1", "registry.example.org/a:1", []),
    ],
)
def test_no_gpu_gets_the_cpu_image_unasked(
    gpus: int, image: str | None, taken: str, ids: list[str]
) -> None:
    told = {"cluster": {"name": "a"}, "gpus": {"per_node": gpus}, "workload": {"image": image}}
    made = settle(ClusterFile.model_validate(told))
    assert made.file.workload.image == taken
    assert warned(made) == ids


def test_validate_says_what_render_says(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "older.yaml"
    path.write_text(OLDER.read_text("utf-8"))
    assert wirespeed(["cluster", "validate", str(path)]) == 0
    told = capsys.readouterr().out
    assert wirespeed(["cluster", "render", str(path)]) == 0
    rendered = capsys.readouterr().out
    lines = [line.strip() for line in told.splitlines() if "warning: " in line]
    assert len(lines) == 6
    assert all(f"# {line}" in rendered for line in lines)
    path.write_text("cluster: {name: a}\nnetwork: {rdma: {enabled: true}}\n")
    assert wirespeed(["cluster", "validate", str(path)]) == 0
    assert "CLUSTER-045" in capsys.readouterr().out
    assert wirespeed(["cluster", "render", str(path)]) == 2


def test_a_file_that_render_refuses_is_not_valid(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "cluster: {name: a}\nworkload: {engine: jobset, service_annotations: {a.b/c: d}}\n"
    )
    assert wirespeed(["cluster", "validate", str(path)]) == 2
    assert "service_annotations" in capsys.readouterr().out


def test_only_nodes_that_pods_may_run_on_are_looked_at(memory: Any, kubectl: Kubectl) -> None:
    """Only nodes that pods may run on are looked at."""
    memory.allocatable = IB
    file = rdma()
    nodes = file.nodes.model_copy(update={"gpu_nodes": ("node-0", "elsewhere")})
    made = settle(file.model_copy(update={"nodes": nodes}), live=True)
    assert "1 node can" in str(served(kubectl, replace(made))[0].choices)
