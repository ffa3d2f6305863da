"""Volumes and claims, by storage mode."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file import Volume
from wirespeed.clusters.manifests.pod import mounts, volumes
from wirespeed.clusters.presets import Preset

Make = Callable[..., Deployment]
BOTH = {"workspace_size": "1Gi", "datasets_size": "2Gi"}


def of(made: Deployment) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in volumes(made)}


def paths(made: Deployment) -> dict[str, str]:
    return {one["mountPath"]: one["name"] for one in mounts(made)}


def test_rwx_claims_are_shared(rendered: Callable[..., Any], deployment: Make) -> None:
    storage = {"mode": "rwx", "class_rwx": "nfs", **BOTH}
    found = rendered(storage=storage)
    claims = {key: made["spec"] for key, made in found.items() if "Claim" in key}
    assert claims == {
        f"PersistentVolumeClaim/mine-{name}": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": "nfs",
        }
        for name, size in (("workspace", "1Gi"), ("datasets", "2Gi"))
    }
    made = of(deployment(storage=storage))
    assert made["workspace"]["persistentVolumeClaim"] == {"claimName": "mine-workspace"}
    assert "volumeClaimTemplates" not in found["StatefulSet"]["spec"]


def test_each_pod_its_own_claim(rendered: Callable[..., Any], deployment: Make) -> None:
    storage = {"mode": "volumeClaimTemplates", "class_rwo": "ceph", **BOTH}
    found = rendered(storage=storage)
    assert not [key for key in found if "Claim" in key]
    templates = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert [one["metadata"]["name"] for one in templates] == ["workspace", "datasets"]
    assert {one["spec"]["storageClassName"] for one in templates} == {"ceph"}
    assert templates[1]["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert templates[1]["spec"]["resources"]["requests"]["storage"] == "2Gi"
    made = deployment(storage=storage)
    assert "workspace" not in of(made)
    assert paths(made)["/workspace"] == "workspace"
    assert paths(made)["/datasets"] == "datasets"


def test_without_a_statefulset_they_live_as_long_as_their_pod(deployment: Make) -> None:
    storage = {"mode": "volumeClaimTemplates", "workspace_size": "1Gi"}
    made = of(deployment(storage=storage, engine="jobset"))
    claim = made["workspace"]["ephemeral"]["volumeClaimTemplate"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert list(claim["metadata"]) == ["labels"], "the API server refuses anything else there"


def test_no_claims_at_all(rendered: Callable[..., Any], deployment: Make) -> None:
    assert not [key for key in rendered(storage=BOTH) if "Claim" in key]
    made = of(deployment(storage=BOTH))
    assert made["workspace"]["emptyDir"] == {"sizeLimit": "1Gi"}
    assert made["datasets"]["emptyDir"] == {"sizeLimit": "2Gi"}


@pytest.mark.parametrize("mode", ["rwx", "volumeClaimTemplates"])
def test_the_clusters_default_class(mode: str, rendered: Callable[..., Any]) -> None:
    """An empty class would mean: none at all."""
    assert "storageClassName" not in str(rendered(storage={"mode": mode}))


def test_shared_memory_has_a_limit(deployment: Make) -> None:
    made = of(deployment(workload={"shm_size": "3Gi"}))
    assert made["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "3Gi"}
    assert paths(deployment())["/dev/shm"] == "shm"


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ({"claim": "c"}, {"persistentVolumeClaim": {"claimName": "c"}}),
        ({"config_map": "c"}, {"configMap": {"name": "c"}}),
        ({"secret": "c"}, {"secret": {"secretName": "c"}}),
        ({"host_path": "/c"}, {"hostPath": {"path": "/c"}}),
        ({"empty_dir": "1Gi"}, {"emptyDir": {"sizeLimit": "1Gi"}}),
    ],
)
def test_sources(source: dict[str, str], written: dict[str, Any], deployment: Make) -> None:
    told = {"name": "more", "mount_path": "/more", "read_only": True, **source}
    made = deployment(workload={"volumes": [told]})
    assert of(made)["more"] == {"name": "more", **written}
    assert mounts(made)[-1] == {"name": "more", "mountPath": "/more", "readOnly": True}


@pytest.mark.parametrize("path", ["/workspace", "/workspace/"])
def test_a_volume_of_the_file_may_be_the_workspace(path: str, deployment: Make) -> None:
    told = {"name": "mine", "mount_path": path, "host_path": "/scratch"}
    made = deployment(workload={"volumes": [told]})
    assert paths(made)[path] == "mine"
    assert "workspace" not in of(made)
    assert len(paths(made)) == len(mounts(made))


def test_the_files_volume_replaces_a_presets(deployment: Make) -> None:
    theirs = (
        Volume(name="libs", mount_path="/libs", host_path="/a"),
        Volume(name="drv", mount_path="/dev/drv", host_path="/b"),
    )
    preset = Preset(name="p", summary="", why="", source="", mode="tcp", volumes=theirs)
    own = {"name": "own", "mount_path": "/libs", "host_path": "/c"}
    made = replace(deployment(workload={"volumes": [own]}), preset=preset)
    assert (paths(made)["/libs"], paths(made)["/dev/drv"]) == ("own", "drv")
    assert "libs" not in of(made)
    assert len({one["name"] for one in volumes(made)}) == len(volumes(made))
    same = {"name": "drv", "mount_path": "/elsewhere", "host_path": "/c"}
    renamed = replace(deployment(workload={"volumes": [same]}), preset=preset)
    assert [one for one in volumes(renamed) if one["name"] == "drv"] == [
        {"name": "drv", "hostPath": {"path": "/c"}}
    ]


def test_what_is_ours_cannot_be_hidden(deployment: Make) -> None:
    for storage in ({"mode": "rwx", **BOTH}, {"mode": "volumeClaimTemplates", **BOTH}):
        for mount in mounts(deployment(storage=storage)):
            other = {"name": "mine", "mount_path": mount["mountPath"], "empty_dir": "1Gi"}
            same = {"name": mount["name"], "mount_path": "/elsewhere", "empty_dir": "1Gi"}
            for told in (other, same):
                with pytest.raises(ValidationError, match=r"another (path|name)"):
                    deployment(workload={"volumes": [told]}, storage=storage)
