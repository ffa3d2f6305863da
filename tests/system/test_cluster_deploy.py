"""From nothing to ready pods and back, on a real cluster: `wirespeed cluster deploy|status|clean`."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.system

RWX = {"mode": "rwx", "workspace_size": "1Mi"}
EACH = {"mode": "volumeClaimTemplates", "workspace_size": "1Mi"}


def deployed(kube: Any, *words: str) -> dict[str, Any]:
    """The run of a deploy that has to succeed."""
    done = kube.cli("cluster", "deploy", *words, "-o", "json")
    assert done.code == 0, done.out + done.err
    found: dict[str, Any] = done.json
    return found


def status(kube: Any, name: str) -> dict[str, Any]:
    done = kube.cli("cluster", "status", name, "-o", "json")
    found: dict[str, Any] = done.json
    assert done.code == found["exit_code"]
    return found


def names(kube: Any, kind: str) -> set[str]:
    return {one["metadata"]["name"] for one in kube.json("get", kind)["items"]}


def test_from_deploy_to_clean_with_one_claim_for_all(kube: Any) -> None:
    kube.file(storage=RWX)
    run = deployed(kube, "demo")
    assert (run["verdict"], run["command"]) == ("NONE", "cluster deploy")
    assert [one["id"] for one in run["findings"]] == ["CLUSTER-015"]

    two = status(kube, "demo")
    assert (two["exit_code"], two["asked"], two["ready"]) == (0, 2, 2)
    assert len({pod["node"] for pod in two["pods"]}) == 2
    assert all(pod["zone"] and pod["ip"] and not pod["restarts"] for pod in two["pods"])
    assert two["claims"] == {"demo-workspace": "Bound"}

    again = kube.cli("cluster", "deploy", "demo")
    assert again.code == 0, again.err
    assert "no change" in again.out
    assert {pod["uid"] for pod in status(kube, "demo")["pods"]} == {
        pod["uid"] for pod in two["pods"]
    }

    more = kube.cli("cluster", "deploy", "demo", "--nodes", "3", "-v")
    assert more.code == 0, more.out + more.err
    assert "spec.replicas: 2 -> 3" in more.out
    three = status(kube, "demo")
    assert (three["asked"], three["ready"], len({pod["node"] for pod in three["pods"]})) == (
        3,
        3,
        3,
    )

    refused = kube.cli("cluster", "clean", "demo")
    assert refused.code == 2
    assert "--yes" in refused.err
    cleaned = kube.cli("cluster", "clean", "demo", "--yes", "-o", "json")
    assert cleaned.code == 0, cleaned.out + cleaned.err
    assert cleaned.json["kept_claims"] == ["demo-workspace"]
    assert names(kube, "pods") == names(kube, "statefulsets") == set()
    assert names(kube, "persistentvolumeclaims") == {"demo-workspace"}
    assert names(kube, "serviceaccounts") == {"default"}
    assert status(kube, "demo")["findings"][0]["id"] == "CLUSTER-028"

    second = kube.cli("cluster", "clean", "demo", "--yes")
    assert second.code == 0
    assert "nothing to remove" in second.out
    last = kube.cli("cluster", "clean", "demo", "--yes", "--claims")
    assert last.code == 0, last.err
    assert names(kube, "persistentvolumeclaims") == set()


def test_a_claim_each_outlives_its_pods_and_two_environments_do_not_collide(kube: Any) -> None:
    kube.file(cluster={"name": "one"}, storage=EACH)
    kube.file(cluster={"name": "two"}, storage=EACH)
    both = [kube.cli.start("cluster", "deploy", name, "--nodes", "1") for name in ("one", "two")]
    for running in both:
        done = running.wait()
        assert done.code == 0, done.out + done.err
    put = kube("exec", "one-0", "--", "sh", "-c", "echo kept > /workspace/file")
    assert put.returncode == 0, put.stderr

    done = kube.cli("cluster", "clean", "one", "--yes")
    assert done.code == 0, done.out + done.err
    assert status(kube, "two")["exit_code"] == 0
    assert names(kube, "persistentvolumeclaims") == {"workspace-one-0", "workspace-two-0"}

    kube.file(cluster={"name": "two"}, storage={**EACH, "datasets_size": "1Mi"})
    frozen = kube.cli("cluster", "deploy", "two", "--nodes", "1")
    assert frozen.code == 1
    assert "CLUSTER-023" in frozen.out
    assert "--recreate" in frozen.out
    anew = kube.cli.start("cluster", "deploy", "two", "--nodes", "1", "--recreate")
    deployed(kube, "one", "--nodes", "1")
    assert anew.wait().code == 0
    got = kube("exec", "one-0", "--", "cat", "/workspace/file")
    assert got.stdout == "kept\n"
    assert names(kube, "persistentvolumeclaims") == {
        "workspace-one-0",
        "workspace-two-0",
        "datasets-two-0",
    }
    stored = [json.loads((one / "run.json").read_text()) for one in kube.cli.folders()]
    assert sorted(one["exit_code"] for one in stored) == [0, 0, 0, 0, 1]
