"""What is made, in which order, under which names."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters.manifests.conftest import identity

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests import selector, selector_text
from wirespeed.clusters.manifests.render import render

Make = Callable[..., Deployment]
ENGINES = ("statefulset", "mpijob", "trainjob", "jobset")


def kinds(made: Deployment) -> list[str]:
    return [one["kind"] for one in render(made)]


def test_what_pods_need_comes_before_them(deployment: Make) -> None:
    made = deployment(
        cluster={"name": "mine", "create_namespace": True},
        storage={"mode": "rwx"},
        security={"requires_privileged_scc": True},
    )
    assert kinds(made) == [
        "Namespace",
        "ServiceAccount",
        "RoleBinding",
        "ConfigMap",
        "PersistentVolumeClaim",
        "NetworkPolicy",
        "Service",
        "StatefulSet",
    ]


def test_an_account_that_exists_is_not_made(rendered: Callable[..., Any]) -> None:
    security = {"service_account": "trainer", "requires_privileged_scc": True}
    found = rendered(security=security)
    assert "ServiceAccount" not in found
    spec = found["StatefulSet"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "trainer"
    (subject,) = found["RoleBinding"]["subjects"]
    assert (subject["name"], subject["namespace"]) == ("trainer", "here")
    assert found["RoleBinding"]["roleRef"]["name"] == "system:openshift:scc:privileged"


def test_rights_are_bound_only_if_asked(rendered: Callable[..., Any]) -> None:
    assert not {"Role", "RoleBinding", "ClusterRoleBinding"} & rendered().keys()


def test_the_service_names_pods_that_are_not_ready(rendered: Callable[..., Any]) -> None:
    annotations = {"example.org/dns": "internal"}
    made = rendered(workload={"service_annotations": annotations}, network={"port": 29400})
    spec = made["Service"]["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["ports"][0]["port"] == 29400
    assert spec["selector"] == made["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert made["Service"]["metadata"]["annotations"] == annotations


def test_pods_are_reached_by_each_other_only(rendered: Callable[..., Any]) -> None:
    spec = rendered()["NetworkPolicy"]["spec"]
    ours = {"matchLabels": selector("mine")}
    assert spec["podSelector"] == ours
    assert spec["ingress"] == [{"from": [{"podSelector": ours}]}]
    assert spec["policyTypes"] == ["Ingress"], "egress would cut off names and storage"
    assert "NetworkPolicy" not in rendered(network={"policy": False})


def test_all_pods_start_at_once(rendered: Callable[..., Any]) -> None:
    spec = rendered(gpus={"default_nodes": 3})["StatefulSet"]["spec"]
    assert (spec["podManagementPolicy"], spec["replicas"], spec["serviceName"]) == (
        "Parallel",
        3,
        "mine",
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_every_object_is_in_the_files_namespace_and_labelled(engine: str, deployment: Make) -> None:
    told = {
        "name": "mine",
        "namespace": "elsewhere",
        "description": "ours",
        "create_namespace": True,
    }
    made = deployment(cluster=told, workload={"labels": {"team": "vision"}}, engine=engine)
    namespace, *others = render(made)
    assert namespace["metadata"]["name"] == "elsewhere"
    assert "namespace" not in namespace["metadata"]
    for one in others:
        metadata = one["metadata"]
        assert metadata["namespace"] == "elsewhere"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "wirespeed"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "mine"
        assert metadata["labels"]["team"] == "vision"
        assert metadata["annotations"]["wirespeed/description"] == "ours"


@pytest.mark.parametrize("engine", ENGINES)
def test_two_in_one_namespace_do_not_collide(engine: str, deployment: Make) -> None:
    """Neither by an object's name, nor by what selects pods."""
    storage = {"mode": "rwx", "datasets_size": "1Gi"}
    one, two = (
        render(deployment(cluster={"name": name}, storage=storage, engine=engine))
        for name in ("mine", "mine-2")
    )
    assert not set(map(identity, one)) & set(map(identity, two))
    assert selector("mine").items() <= {**selector("mine")}.items()
    assert '"mine"' not in json.dumps(two)
    assert selector_text("mine") == (
        "app.kubernetes.io/instance=mine,app.kubernetes.io/name=wirespeed"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_no_object_stands_twice_and_all_are_json(engine: str, deployment: Make) -> None:
    objects = render(deployment(storage={"mode": "rwx"}, engine=engine))
    assert len(set(map(identity, objects))) == len(objects)
    assert json.loads(json.dumps(objects)) == objects
    assert "ConfigMap" in {one["kind"] for one in objects}


@pytest.mark.parametrize("nodes", [1, 2, 17])
@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_any_node_and_gpu_count(nodes: int, gpus: int, rendered: Callable[..., Any]) -> None:
    found = rendered(gpus={"per_node": gpus}, pods=nodes)
    spec = found["StatefulSet"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert spec["replicas"] == nodes
    assert {"name": "NNODES", "value": str(nodes)} in container["env"]
    assert len(found["ConfigMap"]["data"]["hostfile"].splitlines()) == nodes
    asked = container.get("resources", {}).get("limits", {})
    assert asked == ({"nvidia.com/gpu": str(gpus)} if gpus else {})


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_file_gives_the_same_objects(engine: str, deployment: Make) -> None:
    def text() -> str:
        return json.dumps(render(deployment(engine=engine, gpus={"per_node": 8})))

    assert text() == text()
