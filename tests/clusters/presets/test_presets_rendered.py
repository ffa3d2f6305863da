"""Every preset as manifests: what it sets is in the pods, and Kubernetes' schema takes it."""

from typing import Any

import kubernetes_validate
import pytest

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.manifests.render import render
from wirespeed.clusters.presets import preset_named, preset_names

VERSIONS = ("1.28", "1.32", "1.37")


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names())
def test_a_preset_reaches_the_pods(name: str) -> None:
    preset = preset_named(name)
    rdma = {} if preset.resources else {"resource": "rdma/ib"}
    network = {"preset": name, "rdma": rdma}
    file = ClusterFile.model_validate(
        {"cluster": {"name": "lab"}, "gpus": {"per_node": 8}, "network": network}
    )
    objects = render(settle(file))
    for one in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)
    pods = next(one for one in objects if one["kind"] == "StatefulSet")["spec"]["template"]
    ranks, *others = pods["spec"]["containers"]
    assert ranks["name"] == "ranks"
    values = {one["name"]: one.get("value") for one in ranks["env"]}
    assert {one.name: one.value for one in preset.environment}.items() <= values.items()
    amounts = ranks["resources"]["limits"]
    resources = preset.resources or ({"rdma/ib": 1} if preset.mode == "rdma" else {})
    assert {key: str(amounts.get(key)) for key in resources} == {
        key: str(count) for key, count in resources.items()
    }
    assert not [key for key in amounts if "rdma" in key and key not in resources]
    assert preset.annotations.items() <= pods["metadata"].get("annotations", {}).items()
    assert [one["name"] for one in others] == [one["name"] for one in preset.sidecars]
    _mounts_have_volumes(pods["spec"])
    mounted = {one["mountPath"] for one in ranks["volumeMounts"]}
    assert {one.mount_path for one in preset.volumes} <= mounted


def _mounts_have_volumes(spec: dict[str, Any]) -> None:
    there = {one["name"] for one in spec["volumes"]}
    for container in spec["containers"]:
        assert {one["name"] for one in container.get("volumeMounts", ())} <= there
