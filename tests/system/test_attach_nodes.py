"""`wirespeed attach --on`: the job of a far node, by a real sshd, or by a step of a real Slurm."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system
WAITS = "def all_reduce():\n    input()\n"
PROGRAM = "from torch.distributed.distributed_c10d import all_reduce\nall_reduce()\n"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[int]]:
    """Two that wait in what looks like torch. The lab's nodes share this machine's /proc."""
    folder = tmp_path / "torch" / "distributed"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "distributed_c10d.py").write_text(WAITS)
    (tmp_path / "job.py").write_text(PROGRAM)
    env = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    every = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "job.py")],
            stdin=subprocess.PIPE,
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    time.sleep(0.5)
    yield [one.pid for one in every]
    for one in every:
        one.kill()
        one.communicate()


def words(ssh_lab: Any, hosts: str, match: Path, *more: str) -> list[str]:
    place = ("--on", "ssh", "--hosts", hosts, "--with", f"config={ssh_lab.config}")
    attach = (sys.executable, "-m", "wirespeed", "attach", "--seconds", "1")
    return [*attach, *place, "--match", str(match), *more]


def test_the_stopped_rank_of_a_far_node_is_named(
    ssh_lab: Any, ranks: list[int], tmp_path: Path, finding: Any
) -> None:
    os.kill(ranks[1], signal.SIGSTOP)
    done = ssh_lab.run(words(ssh_lab, "node-1:8", tmp_path / "job.py", "-o", "json"))
    assert (done.code, done.json["verdict"]) == (1, "HUNG"), done.err
    assert done.json["verdict_subject"] == "rank 1"
    one = finding(done.json, "WATCH-008")
    assert one["subject"]["name"] == "rank 1" and "stopped by a signal" in one["title"]
    assert done.json["world"]["nodes"][0]["host"] == "node-1"


def test_a_rank_on_two_nodes_is_two_jobs(ssh_lab: Any, ranks: list[int], tmp_path: Path) -> None:
    done = ssh_lab.run(words(ssh_lab, "node-1,node-2", tmp_path / "job.py"))
    assert done.code == 2 and "rank 0 is on node-1 and on node-2" in done.err
    assert "Traceback" not in done.err


def test_a_node_without_the_job_says_so(ssh_lab: Any, tmp_path: Path) -> None:
    done = ssh_lab.run(words(ssh_lab, "node-1", tmp_path / "nothing"))
    assert done.code == 3 and "there is no rank of any job" in done.err


def test_a_step_beside_the_job_of_a_slurm_node_looks(
    slurm_lab: Any, ranks: list[int], tmp_path: Path, finding: Any
) -> None:
    os.kill(ranks[0], signal.SIGSTOP)
    job = slurm_lab.slurm("sbatch", "--parsable", "-N1", "--output=/dev/null", "--wrap=sleep 300")
    until = time.monotonic() + 30
    while not any("RUNNING" in one for one in slurm_lab.jobs()) and time.monotonic() < until:
        time.sleep(0.1)
    attach = (sys.executable, "-m", "wirespeed", "attach", "--on", "slurm", "--seconds", "1")
    done = slurm_lab.run(
        [
            *attach,
            "--with",
            f"jobid={job.strip()}",
            "--match",
            str(tmp_path / "job.py"),
            "-o",
            "json",
        ]
    )
    still = slurm_lab.jobs()
    slurm_lab.slurm("scancel", job.strip())
    assert (done.code, done.json["verdict"]) == (1, "HUNG"), done.err
    assert finding(done.json, "WATCH-008")["subject"]["name"] == "rank 0"
    assert len(still) == 1 and "RUNNING" in still[0]


def test_a_job_of_slurm_must_be_named(cli: Any, says_clearly: Any) -> None:
    done = cli("attach", "--on", "slurm")
    told = says_clearly(done, 2)
    assert "no job is named" in told and "--with jobid=JOB" in told and "squeue --me" in told


IN_POD = """
mkdir -p /tmp/job/torch/distributed && cd /tmp/job
touch torch/__init__.py torch/distributed/__init__.py
printf 'import time\\ndef all_reduce():\\n    time.sleep(600)\\n' > torch/distributed/distributed_c10d.py
printf 'from torch.distributed.distributed_c10d import all_reduce\\nall_reduce()\\n' > job.py
export RANK=$1 LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1
setsid "$2" job.py </dev/null >/dev/null 2>&1 &
sleep 1; if [ "$1" = 1 ]; then kill -STOP $!; fi
"""


def test_the_stopped_rank_of_a_pod_is_named(kube: Any, finding: Any) -> None:
    kube.file()
    done = kube.cli("cluster", "deploy", "demo", "--nodes", "2", timeout=150.0)
    assert done.code == 0, done.out + done.err
    for rank in range(2):
        words = ("-c", "ranks", "--", "sh", "-c", IN_POD, "sh", str(rank), sys.executable)
        assert kube("exec", f"demo-{rank}", *words).returncode == 0
    where = ("--on", "k8s", "--cluster", "demo", "--seconds", "1", "--match", "job.py")
    done = kube.cli("attach", *where, "-o", "json", timeout=150.0)
    assert (done.code, done.json["verdict"]) == (1, "HUNG"), done.err
    assert finding(done.json, "WATCH-008")["subject"]["name"] == "rank 1"
    assert [one["host"] for one in done.json["world"]["nodes"]] == ["demo-0", "demo-1"]


def test_pods_that_are_not_there_hold_no_job(kube: Any) -> None:
    kube.file()
    done = kube.cli("attach", "--on", "k8s", "--cluster", "demo", timeout=150.0)
    assert done.code == 3 and "is not deployed" in done.err
    assert kube.json("get", "pods")["items"] == []
