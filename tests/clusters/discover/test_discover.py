"""Clusters as their kubectl tells of them: the file that comes out, read back and settled."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from wirespeed.clusters.deployment import Deployment, settle
from wirespeed.clusters.discover import Discovered, discover
from wirespeed.clusters.discover import inventory as asking
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.kube import Refused, Silent
from wirespeed.clusters.reading import read_cluster

Make = Callable[..., dict[str, Any]]
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NETWORKS = "network-attachment-definitions.k8s.cni.cncf.io"
SCCS = "securitycontextconstraints.security.openshift.io"


def found(told: Any, **words: str) -> Discovered:
    given = {"name": "", "namespace": "", "context": "", "kubeconfig": "", **words}
    return discover(told.kubectl, **given, progress=Silent())


def read(made: Discovered) -> ClusterFile:
    return read_cluster(made.text, "discovered")


def settled(made: Discovered) -> Deployment:
    return settle(read(made))


def gpus(product: str, count: int = 8, **others: str) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": product, "topology.kubernetes.io/zone": "z1"}
    amounts = {"nvidia.com/gpu": str(count), **{k.replace("__", "/"): v for k, v in others.items()}}
    return {"labels": labels, "allocatable": amounts, "taints": [GPU_TAINT]}


def test_eks_with_efa(told: Any, node: Make, listed: Make, storage_class: Make) -> None:
    parts = gpus("NVIDIA-H100-80GB-HBM3")
    parts["allocatable"]["vpc.amazonaws.com/efa"] = "32"
    told.answer(
        "config view", {"out": "arn:aws:eks:eu-west-1:12345:cluster/Big_1\nhttps://x.eks\nml"}
    )
    told.answer(
        "get nodes", listed(*(node(f"ip-10-0-0-{i}.ec2.internal", **parts) for i in range(4)))
    )
    classes = [storage_class("gp3", "ebs.csi.aws.com", default=True)]
    told.answer("get storageclasses", listed(*classes, storage_class("efs", "efs.csi.aws.com")))
    made = found(told)
    file = read(made)
    assert (file.cluster.name, file.cluster.namespace) == ("big-1", "ml")
    assert (file.gpus.per_node, file.gpus.type) == (8, "NVIDIA-H100-80GB-HBM3")
    assert (file.storage.mode, file.storage.class_rwx, file.storage.class_rwo) == (
        "rwx", "efs", "gp3",
    )  # fmt: skip
    assert not file.nodes.tolerations, "the GPU's own taint is always borne"
    assert not file.nodes.same_zone, "there is one zone only"
    deployment = settled(made)
    assert (deployment.mode, deployment.nodes) == ("rdma", 2)
    rdma = deployment.file.network.rdma
    assert (rdma.resource, rdma.count) == ("vpc.amazonaws.com/efa", 32)
    assert deployment.preset is not None
    assert deployment.preset.name == "aws-efa"
    assert "# guess: the resource is AWS's Elastic Fabric Adapter" in made.text
    assert "# found: allocatable on each node: 32" in made.text


def test_openshift_with_sriov(told: Any, node: Make, listed: Make, storage_class: Make) -> None:
    parts = gpus("NVIDIA-A100-SXM4-80GB", 4)
    parts["allocatable"]["openshift.io/rail0"] = "8"
    control = {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}
    nodes = [node(f"gpu-{i}", **parts) for i in range(2)]
    nodes.append(node("master-0", taints=[control]))
    told.kinds("mpijobs.kubeflow.org", NETWORKS, SCCS).answer("get nodes", listed(*nodes))
    told.answer("get storageclasses", listed(
        storage_class("ocs-rbd", "openshift-storage.rbd.csi.ceph.com", default=True),
        storage_class("ocs-fs", "openshift-storage.cephfs.csi.ceph.com"),
    ))  # fmt: skip
    networks = [attachment("default", "a", "openshift.io/rail0"), attachment("ml", "b", "other")]
    told.answer(f"get {NETWORKS} everywhere", listed(*networks))
    told.answer(f"get {SCCS}", listed(
        {"metadata": {"name": "restricted-v2"}, "allowedCapabilities": ["NET_BIND_SERVICE"]},
        {"metadata": {"name": "privileged"}, "allowedCapabilities": ["*"]},
        {"metadata": {"name": "nccl"}, "allowedCapabilities": ["IPC_LOCK"]},
    ))  # fmt: skip
    made = found(told, namespace="ml", name="prod")
    deployment = settled(made)
    assert (deployment.name, deployment.namespace, deployment.mode) == ("prod", "ml", "rdma")
    rdma = deployment.file.network.rdma
    assert (rdma.networks, rdma.count) == (("default/a",), 1)
    assert deployment.preset is not None
    assert deployment.preset.name == "openshift-sriov"
    assert "those that allow IPC_LOCK:" in made.text
    assert "nccl, privileged." in " ".join(made.text.split()).replace("# ", "")
    assert "engine mpijob works" in made.text
    assert "master-0" not in made.text, "no pod can run there"
    assert all("--namespace=ml" in call for call in told.calls()[1:])


def attachment(namespace: str, name: str, resource: str) -> dict[str, Any]:
    notes = {"k8s.v1.cni.cncf.io/resourceName": resource}
    return {"metadata": {"namespace": namespace, "name": name, "annotations": notes}}


@pytest.mark.parametrize(
    ("product", "coreweave", "preset"),
    [
        ("NVIDIA-H100-80GB-HBM3", True, "h100-ib"),
        ("NVIDIA-GB200", True, "gb200-nvl72"),
        ("NVIDIA-B200", True, "b200-ib"),
        ("NVIDIA-H100-80GB-HBM3", False, "rdma"),
        ("NVIDIA-L40S", True, "rdma"),
    ],
)
def test_a_fabric_preset_only_where_adapters_are_named_so(
    told: Any, node: Make, listed: Make, product: str, coreweave: bool, preset: str
) -> None:
    parts = gpus(product)
    parts["allocatable"]["rdma/ib"] = "1"
    if coreweave:
        parts["labels"]["node.coreweave.cloud/type"] = "any"
    told.answer("get nodes", listed(node("g0", **parts), node("g1", **parts)))
    deployment = settled(found(told))
    assert deployment.preset is not None
    assert deployment.preset.name == preset
    assert deployment.file.network.rdma.resource == "rdma/ib"


def test_the_largest_like_group_is_taken(told: Any, node: Make, listed: Make) -> None:
    small, large = gpus("Tesla-T4", 1), gpus("NVIDIA-H100-80GB-HBM3", 8)
    zones = [{**large["labels"], "topology.kubernetes.io/zone": zone} for zone in ("a", "b")]
    nodes = [node(f"t4-{i}", **small) for i in range(5)]
    nodes += [node(f"h100-{i}", **{**large, "labels": zones[i % 2]}) for i in range(3)]
    nodes += [node("cordoned", **large, cordoned=True), node("lost", **large, ready=False)]
    told.answer("get nodes", listed(*nodes))
    made = found(told)
    file = read(made)
    assert (file.gpus.type, file.gpus.per_node) == ("NVIDIA-H100-80GB-HBM3", 8)
    assert made.summary.startswith("3 of 10 nodes, 8 x nvidia.com/gpu")
    assert "several zones: a 2, b 1" in made.text
    told_of = " ".join(made.text.split())
    assert all(name in told_of for name in ("cordoned", "lost", "t4-4"))
    assert not file.nodes.same_zone, "sockets reach from zone to zone"


def test_rdma_in_two_zones_stays_in_one(told: Any, node: Make, listed: Make) -> None:
    parts = gpus("NVIDIA-H100-80GB-HBM3")
    parts["allocatable"]["rdma/ib"] = "100"
    other = {**parts, "labels": {**parts["labels"], "topology.kubernetes.io/zone": "z2"}}
    told.answer("get nodes", listed(node("a", **parts), node("b", **other)))
    assert read(found(told)).nodes.same_zone


def test_rdma_only_where_every_node_has_it(told: Any, node: Make, listed: Make) -> None:
    parts = gpus("NVIDIA-H100-80GB-HBM3")
    more = {**parts, "allocatable": {**parts["allocatable"], "rdma/ib": "1"}}
    broken = {**parts, "allocatable": {**parts["allocatable"], "rdma/ib": "0"}}
    told.answer("get nodes", listed(node("a", **more), node("b", **broken)))
    network = read(found(told)).network
    assert (network.rdma.enabled, network.rdma.resource, network.preset) == (False, "", "")


def test_amd_and_other_taints(told: Any, node: Make, listed: Make) -> None:
    taints = [
        {"key": "amd.com/gpu", "effect": "NoSchedule"},
        {"key": "team", "value": "ml", "effect": "NoSchedule"},
        {"key": "old", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
    ]
    parts = {"allocatable": {"amd.com/gpu": "8"}, "taints": taints}
    alone = {**parts, "taints": [*taints, {"key": "alone", "effect": "NoExecute"}]}
    told.answer("get nodes", listed(node("m0", **parts), node("m1", **alone)))
    file = read(found(told))
    assert file.gpus.resource == "amd.com/gpu"
    assert [(one.key, one.operator, one.value) for one in file.nodes.tolerations] == [
        ("team", "Equal", "ml")
    ]


def test_a_cluster_without_gpus_and_classes(told: Any, node: Make, listed: Make) -> None:
    told.answer("get nodes", listed(node("w0")))
    made = found(told)
    file = read(made)
    assert (file.gpus.per_node, file.gpus.default_nodes, file.storage.mode) == (0, 1, "none")
    assert settled(made).mode == "tcp"
    assert "statefulset needs none" in made.text


def test_control_planes_take_no_pods(told: Any, node: Make, listed: Make) -> None:
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    told.answer("get nodes", listed(node("cp", taints=[taint]), node("w0"), node("w1")))
    assert found(told).summary.startswith("2 of 3 nodes")


def test_the_default_class_comes_first(told: Any, listed: Make, storage_class: Make) -> None:
    classes = [
        storage_class("a-disk", "disk.csi.azure.com"),
        storage_class("b-unknown", "example.com/storage", default=True),
        storage_class("c-disk", "disk.csi.azure.com"),
    ]
    told.answer("get storageclasses", listed(*classes))
    made = found(told)
    assert read(made).storage.class_rwo == "b-unknown"
    assert "example.com/storage, RWO, default (unknown provisioner" in made.text
    told.answer("get storageclasses", listed(*classes[::2]))
    assert read(found(told)).storage.class_rwo == "a-disk"


def test_a_version_that_may_not_be_read(told: Any, forbidden: Make) -> None:
    told.answer("version -o", forbidden("version"))
    assert "Kubernetes an unknown version" in " ".join(found(told).text.replace("#", "").split())


def test_google_is_hinted_at(told: Any, node: Make, listed: Make) -> None:
    labels = {"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}
    told.answer("get nodes", listed(node("g", labels=labels, allocatable={"nvidia.com/gpu": "8"})))
    made = found(told)
    assert "the preset gcp-tcpxo fits" in made.text
    assert read(made).gpus.type == "", "gpus.type is about NVIDIA's own label only"


def test_what_may_not_be_read_is_a_comment(told: Any, forbidden: Make) -> None:
    told.kinds(NETWORKS, SCCS)
    for kind in ("nodes", "storageclasses", NETWORKS, SCCS):
        told.answer(f"get {kind}", forbidden(kind))
    told.answer("get namespace", {"code": 1, "err": "Error from server (NotFound): x\n"})
    made = found(told)
    file = read(made)
    assert file.cluster.create_namespace
    said = " ".join(made.text.replace("#", " ").split())
    for kind in ("nodes", "storageclasses", SCCS):
        assert f"could not be read: {kind}: Error from server (Forbidden)" in said
    assert "things could not be read" in made.summary


def test_networks_of_the_own_namespace_where_all_are_forbidden(
    told: Any, node: Make, listed: Make, forbidden: Make
) -> None:
    parts = gpus("NVIDIA-H100-80GB-HBM3")
    parts["allocatable"]["openshift.io/rail0"] = "8"
    told.kinds(NETWORKS).answer("get nodes", listed(node("a", **parts)))
    told.answer(f"get {NETWORKS} everywhere", forbidden(NETWORKS))
    told.answer(f"get {NETWORKS}", listed(attachment("default", "rail0", "openshift.io/rail0")))
    assert read(found(told)).network.rdma.networks == ("rail0",)


def test_half_of_the_api_groups_is_enough(told: Any) -> None:
    broken = "error: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1\n"
    out = {"code": 1, "out": "mpijobs.kubeflow.org\n", "err": broken}
    made = found(told.answer("api-resources -o", out))
    assert "engine mpijob works" in made.text
    assert "unable to retrieve the complete list" in made.text


@pytest.mark.parametrize(
    "answer",
    [
        {"code": 1, "out": '{"clientVersion": {}}', "err": "The connection was refused\n"},
        {"code": 1, "err": "error: You must be logged in to the server (Unauthorized)\n"},
        {"code": 1, "err": 'error: context "nope" does not exist\n'},
    ],
)
def test_no_answer_at_all_is_an_error(told: Any, answer: dict[str, Any]) -> None:
    told.answer("version -o", answer)
    with pytest.raises(Refused) as caught:
        found(told)
    assert caught.value.exit_code == 3
    assert caught.value.saw == answer["err"].strip()


def test_a_silent_server_does_not_hold_us(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ASK_S", 0.5)
    told.answer("version -o", {"sleep": 30})
    begin = time.monotonic()
    told.kubectl = told.program
    with pytest.raises(Refused, match="no answer in time"):
        found(told)
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("out", ["", "null", "[]", "{", '{"items": {}}', '{"items": [1, null]}'])
def test_answers_of_another_shape(told: Any, out: str) -> None:
    for kind in ("nodes", "storageclasses"):
        told.answer(f"get {kind}", {"out": out})
    assert read(found(told)).gpus.per_node == 0


def test_nodes_with_parts_missing(told: Any, listed: Make) -> None:
    odd = [{}, {"metadata": None}, {"metadata": {"name": 7}, "status": {"allocatable": []}}]
    odd += [{"status": {"allocatable": {"nvidia.com/gpu": "9" * 5000}}}]
    odd += [{"status": {"conditions": "x", "allocatable": {"nvidia.com/gpu": 8}}, "spec": []}]
    told.answer("get nodes", listed(*odd))
    assert read(found(told)).gpus.per_node == 0


def test_nothing_is_changed_and_no_secret_is_read(told: Any, node: Make, listed: Make) -> None:
    told.answer("get nodes", listed(node("w0")))
    found(told)
    verbs = {next(word for word in call if not word.startswith("--")) for call in told.calls()}
    assert verbs == {"config", "version", "api-resources", "get"}
    assert not [call for call in told.calls() if any("secret" in word for word in call)]
    assert not [call for call in told.calls() if "--raw" in call]


def test_options_reach_the_file(told: Any) -> None:
    made = found(told, name="mine", context="prod", kubeconfig="/home/me/.kube/prod")
    cluster = read(made).cluster
    assert (cluster.context, cluster.kubeconfig) == ("prod", "/home/me/.kube/prod")
    assert cluster.api == "https://api.lab.example:6443"
