"""The CronJob of a cluster file: valid for Kubernetes, and its pods find each other."""

import subprocess
from pathlib import Path

import pytest
from kubernetes_validate import validate

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.reading import read_cluster
from wirespeed.fleet.cronjob import objects

HOSTNAME = "/proc/sys/kernel/hostname"
FILE = """\
cluster:
  name: mine
  namespace: ml
gpus:
  per_node: 8
workload:
  python: /bin/echo
  priority_class: idle
"""


@pytest.fixture
def made() -> list[dict]:
    deployment = settle(
        read_cluster(FILE, "mine.yaml"), nodes=4, engine="statefulset", name="mine-fleet"
    )
    return objects(deployment, "17 2 * * *")


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
def test_kubernetes_takes_all_of_it(made: list[dict], version: str) -> None:
    for one in made:
        validate(one, version, strict=True)


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


def test_ranks_meet_at_the_first_pod_of_that_job(made: list[dict], tmp_path: Path) -> None:
    (cron,) = [one["spec"] for one in made if one["kind"] == "CronJob"]
    (script,) = [one["data"]["environment"] for one in made if one["kind"] == "ConfigMap"]
    container = cron["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert "readinessProbe" not in container
    (tmp_path / "environment").write_text(script)
    (tmp_path / "hostname").write_text("mine-fleet-29400017-2\n")
    program = container["command"][-1].replace("$$", "$")
    for there, here in (("/etc/wirespeed/environment", "environment"), (HOSTNAME, "hostname")):
        program = program.replace(there, str(tmp_path / here))
    words = [*container["command"][:-1], program]
    done = subprocess.run(words, env={"JOB_COMPLETION_INDEX": "2"}, capture_output=True, text=True)
    assert done.stdout == (
        "-m torch.distributed.run --nnodes 4 --nproc-per-node 8 --node-rank 2 "
        "--master-addr mine-fleet-29400017-0.mine-fleet.ml.svc --master-port 29500 "
        "-m wirespeed locate --exhaustive --over rails\n"
    ), done.stderr
