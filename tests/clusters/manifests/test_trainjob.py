"""TrainJob: a runtime in its own namespace, and a job that refers to it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import validate

from wirespeed.clusters.deployment import CONTAINER, Deployment
from wirespeed.clusters.manifests import hosts
from wirespeed.clusters.manifests.render import as_yaml, render

GOLDEN = Path(__file__).parents[2] / "golden"
Make = Callable[..., Deployment]
FULL: dict[str, Any] = {
    "workload": {"queue": "vision"},
    "gpus": {"per_node": 8},
    "network": {"rdma": {"enabled": True, "resource": "rdma/ib"}},
}


def both(deployment: Deployment) -> tuple[dict[str, Any], dict[str, Any]]:
    """The runtime and the job, in the order in which they are applied."""
    runtime, job = render(deployment)[-2:]
    assert (runtime["kind"], job["kind"]) == ("TrainingRuntime", "TrainJob")
    return runtime, job


def group(deployment: Deployment) -> dict[str, Any]:
    (found,) = both(deployment)[0]["spec"]["template"]["spec"]["replicatedJobs"]
    told: dict[str, Any] = found
    return told


def test_the_whole_of_it(deployment: Make) -> None:
    text = as_yaml(render(deployment(engine="trainjob", pods=3, **FULL)))
    path = GOLDEN / "cluster-jobs.trainjob.yaml"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "if this is wanted, see tests/golden/README.md"


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
@pytest.mark.parametrize("parts", [FULL, {}], ids=["full", "smallest"])
def test_its_job_is_of_kubernetes_own_schema(
    version: str, parts: dict[str, Any], deployment: Make
) -> None:
    told = group(deployment(engine="trainjob", **parts))["template"]
    made = {"apiVersion": "batch/v1", "kind": "Job", **told}
    made["metadata"] = {**made["metadata"], "name": "one"}
    validate(made, version, strict=True)


def test_the_job_refers_to_its_own_runtime(deployment: Make) -> None:
    runtime, job = both(deployment(engine="trainjob"))
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "mine"}
    assert job["spec"]["runtimeRef"] == reference
    assert runtime["metadata"]["name"] == "mine"
    assert runtime["metadata"]["namespace"] == job["metadata"]["namespace"] == "here"


@pytest.mark.parametrize("nodes", [1, 2, 1000])
def test_any_number_of_nodes(nodes: int, deployment: Make) -> None:
    told = deployment(engine="trainjob", pods=nodes)
    runtime, job = both(told)
    assert job["spec"]["trainer"]["numNodes"] == nodes
    assert runtime["spec"]["mlPolicy"] == {"numNodes": nodes}
    spec = group(told)["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (nodes, nodes)


def test_trainer_finds_the_job_that_it_counts_nodes_of(deployment: Make) -> None:
    told = deployment(engine="trainjob")
    labels = group(told)["template"]["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    assert hosts(told)[0] == f"mine-{group(told)['name']}-0-0.mine"
    pod = group(told)["template"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["name"] == CONTAINER


def test_kueue_starts_it(deployment: Make) -> None:
    runtime, job = both(deployment(engine="trainjob", **FULL))
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision"
    assert job["spec"]["suspend"] is True
    assert "kueue.x-k8s.io/queue-name" not in runtime["metadata"]["labels"]
    assert "suspend" not in both(deployment(engine="trainjob"))[1]["spec"]
