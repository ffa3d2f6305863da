"""The CronJob of a cluster file: valid for Kubernetes, and its pods find each other."""

import pytest
from kubernetes_validate import validate

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.reading import read_cluster
from wirespeed.fleet.cronjob import objects

FILE = """\
cluster:
  name: mine
  namespace: ml
gpus:
  per_node: 8
workload:
  priority_class: idle
"""


@pytest.fixture
def made() -> list[dict]:
    deployment = settle(
        read_cluster(FILE, "mine.yaml"), nodes=4, engine="statefulset", name="mine-fleet"
    )
    return objects(deployment, "17 2 * * *")


def test_kubernetes_takes_all_of_it(made: list[dict]) -> None:
    for one in made:
        validate(one, "1.32", strict=True)


def test_each_time_one_pod_a_node_of_low_priority_and_never_again(made: list[dict]) -> None:
    (cron,) = [one["spec"] for one in made if one["kind"] == "CronJob"]
    job = cron["jobTemplate"]["spec"]
    assert (cron["schedule"], cron["concurrencyPolicy"]) == ("17 2 * * *", "Forbid")
    assert (job["completions"], job["parallelism"], job["backoffLimit"]) == (4, 4, 0)
    pod = job["template"]["spec"]
    assert (pod["priorityClassName"], pod["restartPolicy"]) == ("idle", "Never")
    assert pod["affinity"]["podAntiAffinity"]
    (service,) = [one for one in made if one["kind"] == "Service"]
    assert service["metadata"]["name"] == pod["subdomain"]
    labels = job["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_ranks_meet_at_the_first_pod_of_that_job(made: list[dict]) -> None:
    (cron,) = [one["spec"] for one in made if one["kind"] == "CronJob"]
    container = cron["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    program = container["command"][-1].replace("$$", "$")
    assert 'MASTER_ADDR="${own%-*}-0.mine-fleet.ml.svc"' in program
    assert "--nnodes 4 --nproc-per-node 8" in program
    assert program.endswith("-m wirespeed locate --exhaustive --over rails")
    assert "readinessProbe" not in container
