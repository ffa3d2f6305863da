"""JobSet: one indexed Job, a headless network, ranks from the completion index."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import validate

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests import hosts
from wirespeed.clusters.manifests.render import as_yaml, render

GOLDEN = Path(__file__).parents[2] / "golden"
Make = Callable[..., Deployment]
FULL: dict[str, Any] = {
    "workload": {"queue": "vision"},
    "gpus": {"per_node": 8},
    "storage": {"mode": "rwx", "workspace_size": "10Gi"},
    "network": {"rdma": {"enabled": True, "resource": "rdma/ib"}},
}


def of(deployment: Deployment) -> dict[str, Any]:
    (made,) = [one for one in render(deployment) if one["kind"] == "JobSet"]
    return made


def test_the_whole_of_it(deployment: Make) -> None:
    text = as_yaml(render(deployment(engine="jobset", pods=3, **FULL)))
    path = GOLDEN / "cluster-jobs.jobset.yaml"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "if this is wanted, see tests/golden/README.md"


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
@pytest.mark.parametrize("parts", [FULL, {}], ids=["full", "smallest"])
def test_its_job_is_of_kubernetes_own_schema(
    version: str, parts: dict[str, Any], deployment: Make
) -> None:
    (group,) = of(deployment(engine="jobset", **parts))["spec"]["replicatedJobs"]
    made = {"apiVersion": "batch/v1", "kind": "Job", **group["template"]}
    made["metadata"] = {**made["metadata"], "name": "one"}
    validate(made, version, strict=True)


@pytest.mark.parametrize("nodes", [1, 2, 1000])
def test_every_index_is_a_pod_and_all_run_at_once(nodes: int, deployment: Make) -> None:
    told = deployment(engine="jobset", pods=nodes)
    (group,) = of(told)["spec"]["replicatedJobs"]
    spec = group["template"]["spec"]
    assert (group["replicas"], spec["completionMode"]) == (1, "Indexed")
    assert spec["parallelism"] == spec["completions"] == nodes == len(hosts(told))


def test_pods_meet_below_the_service_that_jobset_makes(deployment: Make) -> None:
    told = deployment(engine="jobset")
    spec = of(told)["spec"]
    group = spec["replicatedJobs"][0]["name"]
    assert spec["network"]["subdomain"] == "mine"
    assert spec["network"]["publishNotReadyAddresses"] is True
    assert spec["coordinator"] == {"replicatedJob": group, "jobIndex": 0, "podIndex": 0}
    (env,) = [
        one["value"]
        for one in _pod(told)["spec"]["containers"][0]["env"]
        if one["name"] == "MASTER_ADDR"
    ]
    assert env == f"mine-{group}-0-0.mine.here.svc"
    assert hosts(told)[1] == f"mine-{group}-0-1.mine"
    assert "Service" not in {one["kind"] for one in render(told)}


def test_a_lost_pod_is_replaced(deployment: Make) -> None:
    told = deployment(engine="jobset")
    assert _pod(told)["spec"]["restartPolicy"] == "OnFailure"
    assert of(told)["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] > 10


def test_kueue_starts_it(deployment: Make) -> None:
    made = of(deployment(engine="jobset", **FULL))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision"
    assert made["spec"]["suspend"] is True
    assert "suspend" not in of(deployment(engine="jobset"))["spec"]
    labels = _pod(deployment(engine="jobset", **FULL))["metadata"]["labels"]
    assert not [key for key in labels if "kueue" in key]


def test_the_longest_name_still_gives_labels_of_dns(deployment: Make) -> None:
    """JobSet's webhook counts five letters that are added to a pod's name."""
    told = deployment(engine="jobset", cluster={"name": "a" * 40}, pods=10_000)
    assert len(hosts(told)[-1].partition(".")[0] + "-abcde") <= 63


def _pod(deployment: Deployment) -> dict[str, Any]:
    found: dict[str, Any] = of(deployment)["spec"]["replicatedJobs"][0]["template"]["spec"]
    template: dict[str, Any] = found["template"]
    return template
