"""The gate's DaemonSet: what it may do, and that what a person wrote stays text."""

from pathlib import Path
from typing import Any

import pytest

from wirespeed.clusters.deployment import Deployment, settle
from wirespeed.clusters.manifests.gate import gate_objects
from wirespeed.clusters.reading import read_named

WORDS = ("--for", "k8s", "--every", "1m")


def deployment(tmp_path: Path, more: str = "") -> Deployment:
    path = tmp_path / "mine.yaml"
    path.write_text(f"cluster: {{name: mine, namespace: training}}\n{more}")
    return settle(read_named(str(path)))


def rights(objects: list[dict[str, Any]]) -> set[str]:
    rules = [rule for one in objects for rule in one.get("rules", ())]
    return {
        f"{verb} {what}" for rule in rules for what in rule["resources"] for verb in rule["verbs"]
    }


@pytest.mark.parametrize("taint", [False, True])
def test_its_rights_are_the_least(taint: bool, tmp_path: Path) -> None:
    objects = gate_objects(deployment(tmp_path), WORDS, taint=taint)
    least = {"get nodes", "list nodes", "patch nodes/status", "create events"}
    assert rights(objects) == least | ({"patch nodes"} if taint else set())
    (role,) = [one for one in objects if one["kind"] == "Role"]
    assert role["metadata"]["namespace"] == "default", "where Events of nodes live"
    bound = [one for one in objects if one["kind"].endswith("Binding")]
    who = {"kind": "ServiceAccount", "name": "mine-gate", "namespace": "training"}
    assert [one["subjects"] for one in bound] == [[who], [who]]


def test_its_pod_may_do_nothing_else(tmp_path: Path) -> None:
    pod = gate_objects(deployment(tmp_path), WORDS, taint=True)[-1]["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert [one for one in pod["volumes"] if "hostPath" in one] == []


def test_it_is_an_environment_of_its_own(tmp_path: Path) -> None:
    """So that `cluster clean mine` leaves it alone."""
    objects = gate_objects(deployment(tmp_path), WORDS, taint=False)
    names = {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in objects}
    assert names == {"mine-gate"}


@pytest.mark.hostile("hostile values")
def test_nothing_of_the_file_is_replaced_by_kubernetes(tmp_path: Path) -> None:
    more = "workload: {env: {MINE: '$(KUBERNETES_SERVICE_HOST)'}}\n"
    objects = gate_objects(deployment(tmp_path, more), (*WORDS, "$(HOME)"), taint=False)
    (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == "$$(HOME)"
    assert {"name": "MINE", "value": "$$(KUBERNETES_SERVICE_HOST)"} in container["env"]
