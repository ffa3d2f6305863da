"""`wirespeed launch --on k8s` in pods of a real cluster: what arrives, what fails, what is left."""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from launched import by_rank

pytestmark = pytest.mark.system

BOUND_S = 150.0
GONE_S = 90.0
NO_TORCHRUN = ("--with", "torchrun=no")
NASTY = ["a b", "'", '"', ";", "$(id)", "`id`", "-o", "--", "", "two\nlines", "$$", "${local_rank}"]
SLEEP = ("sh", "-c", "echo up; exec sleep 7777")
_KILL = (
    "for d in /proc/[0-9]*; do "
    "if [ \"$(tr '\\0' ' ' < $d/cmdline)\" = 'sleep 7777 ' ]; then kill -9 ${d#/proc/}; fi; done"
)
_PROCESSES = "for d in /proc/[0-9]*; do tr '\\0' ' ' < $d/cmdline 2>/dev/null; echo; done"
Find = Callable[[dict[str, Any], str], dict[str, Any]]


def deploy(kube: Any, nodes: int = 2) -> None:
    done = kube.cli("cluster", "deploy", "demo", "--nodes", str(nodes), timeout=BOUND_S)
    assert done.code == 0, done.out + done.err


def launch(kube: Any, *words: str, **options: Any) -> Any:
    return kube.cli(
        "launch", "--on", "k8s", "--cluster", "demo", *words, timeout=BOUND_S, **options
    )


def ours(kube: Any, *pods: str) -> list[str]:
    """Command lines in the pods of what is not the pods' own."""
    found = []
    for pod in pods:
        done = kube("exec", pod, "-c", "ranks", "--", "sh", "-c", _PROCESSES)
        assert done.returncode == 0, done.stderr
        found += [line.strip() for line in done.stdout.splitlines()]
    return [line for line in found if "python" in line or line == "sleep 7777"]


def started(kube: Any, *more: str, verb: tuple[str, ...] = ()) -> Any:
    """A job of sleepers on two pods, all of which run."""
    words = verb or ("launch", "--on", "k8s", "--cluster", "demo")
    running = kube.cli.start(*words, *NO_TORCHRUN, *more, "--", *SLEEP)
    kube.cli.until(lambda: running.out().count("up\n") == 2 or running.process.poll() is not None)
    assert running.process.poll() is None, running.err()
    return running


def test_what_arrives_in_the_pods(kube: Any) -> None:
    """Ranks, arguments, secrets, exit codes; and the same words by hand."""
    secret = f"s3cr3t-{os.getpid()}\n'$HOME'"
    kube("create", "secret", "generic", "keys", "--from-literal=FROM_SECRET=hidden")
    kube.file(workload={**kube.content()["workload"], "env_from_secrets": ["keys"]})
    deploy(kube)
    code = (
        "import json, os, sys; e = os.environ; names = 'RANK WORLD_SIZE LOCAL_RANK "
        "LOCAL_WORLD_SIZE POD_NAME FROM_SECRET MY_TOKEN GLOO_SOCKET_IFNAME WIRESPEED_ZONE'; "
        "print(json.dumps([[e.get(n) for n in names.split()], os.getcwd(), sys.argv[1:]]))"
    )
    words = ("--ranks-per-node", "2", "-x", "MY_TOKEN", "--", sys.executable, "-c", code, *NASTY)
    done = launch(kube, *words, env={"MY_TOKEN": secret})
    assert done.code == 0, done.err
    said = {rank: json.loads(lines[0]) for rank, lines in by_rank(done.out).items()}
    for rank in range(4):
        told, folder, arguments = said[rank]
        own = [str(rank), "4", str(rank % 2), "2", f"demo-{rank // 2}", "hidden", secret, "eth0"]
        assert (told[:-1], folder, arguments) == (own, "/workspace", NASTY)
        assert told[-1], "no zone"
    bad = kube.cli("cluster", "run", "demo", *NO_TORCHRUN, "--", "sh", "-c", "exit $((RANK * 7))")
    assert bad.code == 7, bad.err
    assert "rank 1 on demo-1 failed first" in bad.err
    dry = launch(kube, *NO_TORCHRUN, "--dry-run", "--", "sh", "-c", "echo $RANK on $(hostname)")
    assert dry.code == 0, dry.err
    script = kube.cli.folder / "job.sh"
    script.write_text(dry.out)
    by_hand = kube.cli.start_words(["sh", str(script)]).wait(BOUND_S)
    assert sorted(by_hand.out.split("\n"))[1:] == ["0 on demo-0", "1 on demo-1"], by_hand.err


def test_how_jobs_end_and_that_nothing_is_left(kube: Any, finding: Find) -> None:
    """Ctrl-C, kill -9 of the session, a killed rank, and a pod that goes."""
    kube.file()
    deploy(kube)
    pods = ("demo-0", "demo-1")
    running = started(kube)
    assert ours(kube, *pods).count("sleep 7777") == 2
    running.signal(signal.SIGINT)
    assert running.wait(60).code == 130
    assert ours(kube, *pods) == []

    running = started(kube)
    running.signal(signal.SIGKILL)
    running.wait(60)
    kube.until(lambda: ours(kube, *pods) == [], 60)

    running = started(kube)
    kube("exec", "demo-1", "-c", "ranks", "--", "sh", "-c", _KILL)
    done = running.wait(60)
    assert done.code == 128 + signal.SIGKILL, done.err
    assert "rank 1 on demo-1 failed first" in done.err
    assert ours(kube, *pods) == []

    running = started(kube)
    kube("delete", "pod", "demo-1", "--wait=false")
    done = running.wait(60)
    assert done.code == 3, done.err
    run = json.loads((kube.cli.folders()[-1] / "run.json").read_text())
    assert finding(run, "LAUNCH-007")["subject"]["name"] == "demo-1"
    assert finding(run, "CLUSTER-013")["subject"]["name"] == "demo-1"
    assert ours(kube, "demo-0") == []


def objects(kube: Any) -> list[str]:
    """What a job's own environment would leave."""
    kinds = "pods,statefulsets,jobs,services,configmaps,persistentvolumeclaims,serviceaccounts"
    found = kube.json("get", kinds)["items"]
    return [
        f"{one['kind']}/{one['metadata']['name']}"
        for one in found
        if "demo" in one["metadata"]["name"]
    ]


def test_an_environment_for_one_job_alone_goes_with_it(kube: Any) -> None:
    """Claims too; after a good end, after Ctrl-C while it comes up, and when we are killed."""
    storage = {"mode": "volumeClaimTemplates", "workspace_size": "1Mi"}
    kube.file(storage=storage)
    running = started(kube, "--with", "lease=30")
    assert any(one.startswith("PersistentVolumeClaim") for one in objects(kube))
    running.signal(signal.SIGKILL)
    running.wait(60)

    done = launch(kube, *NO_TORCHRUN, "--", "sh", "-c", "hostname && touch here")
    assert done.code == 0, done.err
    names = [lines[0] for _, lines in sorted(by_rank(done.out).items())]
    assert [name.rpartition("-")[2] for name in names] == ["0", "1"]
    assert names[0].startswith("demo-")

    kube.file(workload={**kube.content()["workload"], "image": "localhost/no-such-image:1"})
    waiting = kube.cli.start("launch", "--on", "k8s", "--cluster", "demo", "--", "hostname")
    kube.cli.until(lambda: "pods are ready" in waiting.err() or waiting.process.poll() is not None)
    waiting.signal(signal.SIGINT)
    assert waiting.wait(60).code == 130, waiting.err()
    kube.until(lambda: objects(kube) == [], GONE_S)
