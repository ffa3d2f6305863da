"""`--on k8s` with a kubectl that answers from a script: pods, findings, pieces, and what is left."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from wirespeed.clusters.operations.lease import lease_job
from wirespeed.clusters.pods import why_lost
from wirespeed.errors import UsageError
from wirespeed.launchers.base import SCRATCH, Held, Host, Job, Piece, Prepared, as_sh
from wirespeed.launchers.engines import engine_named
from wirespeed.launchers.engines.k8s import PodAsking, PodsPrepared, name_of
from wirespeed.launchers.node.probe import Answer
from wirespeed.launchers.node.torchrun import Found
from wirespeed.launchers.request import made_ready
from wirespeed.launchers.supervise import Bounds, JobEnd, Supervisor

GOLDEN = Path(__file__).parents[1] / "golden"
ENGINE = engine_named("k8s")
FAKE = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys, time
folder = pathlib.Path(__file__).parent
words = [word for word in sys.argv[1:] if not word.startswith("--namespace=")]
with (folder / "asked").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
told = json.loads((folder / "told.json").read_text())
if words[0] == "exec":
    pod = words[words.index("-c") - 1]
    far = words[words.index("--") + 1 :]
    how = told.get("exec", {{}}).get(pod, "")
    if how == "hangs":
        time.sleep(600)
    if how and how != "cut":
        sys.stderr.write(how + "\\n")
        sys.exit(1)
    try:
        process = subprocess.Popen(far, env={{**os.environ, "POD": pod}}, start_new_session=True)
    except OSError:
        sys.exit(126)
    while how == "cut" and far[-1].endswith("agent") and not (folder / "cut").exists():
        time.sleep(0.05)
    if how == "cut" and far[-1].endswith("agent"):
        os.killpg(process.pid, 9)
        sys.exit(0)
    if code := process.wait():
        sys.stderr.write(f"command terminated with exit code {{code % 256}}\\n")
    sys.exit(code % 256)
key = " ".join(words[:3]) if words[0] == "get" else words[0]
for name, answer in told.items():
    if key.startswith(name):
        if isinstance(answer, str):
            sys.stderr.write(answer + "\\n")
            sys.exit(1)
        if answer is not None:
            print(json.dumps(answer))
        sys.exit(0)
"""


def pod(name: str, *, ready: bool = True, gpus: int = 0, **more: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"app.kubernetes.io/component": "ranks"},
            **more.get("metadata", {}),
        },
        "spec": {
            "nodeName": f"node-of-{name}",
            "containers": [{"name": "ranks", "resources": {"limits": limits}}],
        },
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **more.get("status", {}),
        },
    }


def stateful(replicas: int) -> dict[str, Any]:
    return {"kind": "StatefulSet", "metadata": {"name": "demo"}, "spec": {"replicas": replicas}}


class Cluster:
    """A folder with a fake kubectl and a cluster file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: dict[str, Any] = {}
        program = folder / "kubectl"
        program.write_text(FAKE)
        program.chmod(0o755)
        self.file = folder / "demo.yaml"
        self.write({})

    def write(self, parts: dict[str, Any]) -> None:
        workload = {"python": sys.executable, **parts.pop("workload", {})}
        told = {"cluster": {"name": "demo", "namespace": "team"}, "workload": workload, **parts}
        self.file.write_text(yaml.safe_dump(told))

    def tell(self, **answers: Any) -> None:
        self.told |= {key.replace("_", " ", 1): value for key, value in answers.items()}
        (self.folder / "told.json").write_text(json.dumps(self.told))

    def pods(self, *objects: dict[str, Any]) -> None:
        self.tell(**{"get_pods,statefulsets": {"items": list(objects)}})

    def asked(self) -> list[list[str]]:
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def job(self, *command: str, options: dict[str, str] | None = None, **more: Any) -> Job:
        told = {"cluster": str(self.file), "torchrun": "no", **(options or {})}
        return made_ready(Job(command=command, options=told, grace_s=1.0, **more))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made.tell(get_nodes=None)
    yield made


class RunBuilder:
    """What ranks say."""

    def __init__(self) -> None:
        self.lines: dict[int, list[str]] = {}
        self.words: list[str] = []

    def started(self, rank: int, node: str) -> None: ...

    def output(self, rank: int, node: str, stream: str, text: str, *, whole: bool) -> None:
        self.lines.setdefault(rank, []).append(text)

    def ended(self, rank: int, node: str, code: int) -> None: ...

    def said(self, piece: str, text: str) -> None:
        self.words.append(f"{piece}: {text}")

    def ending(self, reason: str) -> None: ...


def prepared(job: Job) -> PodsPrepared:
    seen = ENGINE.prepare(job)
    assert isinstance(seen, PodsPrepared)
    return seen


def run(seen: Prepared, tmp_path: Path) -> tuple[JobEnd, RunBuilder]:
    heard, job = RunBuilder(), seen.job
    token = job.environment["WIRESPEED_FRAMES"]
    supervisor = Supervisor(job.size, token, heard, Bounds(startup_s=30, grace_s=1))
    return supervisor.run(seen.pieces(tmp_path)), heard


# Pods that are there.


@pytest.mark.slow
def test_ranks_run_in_the_pods_with_what_they_need(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pods(stateful(2), pod("demo-1", gpus=2), pod("demo-0", gpus=2))
    cluster.tell(get_nodes=None)
    code = (
        "import json, os, sys; e = os.environ; print(json.dumps([e['POD'], e['RANK'], "
        "e['LOCAL_WORLD_SIZE'], e['MY_TOKEN'], *sys.argv[1:]]))"
    )
    nasty = ["a b", "'", ";", "$(id)", "-o", "--", "", "two\nlines"]
    secret = "s3cret\n'$HOME'"
    job = cluster.job(sys.executable, "-c", code, *nasty, environment={"MY_TOKEN": secret})
    seen = ENGINE.prepare(job)
    assert seen.findings == ()
    assert [(host.name, host.slots) for host in seen.job.hosts] == [("demo-0", 2), ("demo-1", 2)]
    end, heard = run(seen, tmp_path)
    assert (end.reason, sorted(end.codes)) == ("finished", [0, 1, 2, 3]), heard.words
    said = [json.loads(heard.lines[rank][0]) for rank in range(4)]
    assert [one[:3] for one in said] == [[f"demo-{rank // 2}", str(rank), "2"] for rank in range(4)]
    assert all(one[3:] == [secret, *nasty] for one in said)
    assert not [words for words in cluster.asked() if "s3cret" in json.dumps(words)]


@pytest.mark.slow
def test_ranks_per_node_nodes_and_names(cluster: Cluster) -> None:
    cluster.pods(stateful(3), *(pod(f"demo-{index}", gpus=8) for index in range(3)))
    first = ENGINE.prepare(cluster.job("true", nodes=2, ranks_per_node=3))
    assert [(host.name, host.slots) for host in first.job.hosts] == [("demo-0", 3), ("demo-1", 3)]
    hosts = (Host("demo-2"), Host("demo-0", 1))
    named = ENGINE.prepare(cluster.job("true", hosts=hosts))
    assert [(host.name, host.slots) for host in named.job.hosts] == [("demo-2", 8), ("demo-0", 1)]
    with pytest.raises(UsageError, match="no pod 'demo-7'"):
        ENGINE.prepare(cluster.job("true", hosts=(Host("demo-7"),)))
    with pytest.raises(UsageError, match="named twice"):
        ENGINE.prepare(cluster.job("true", hosts=(Host("demo-0"), Host("demo-0"))))


def test_each_pod_that_cannot_be_used_is_one_finding(cluster: Cluster) -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.pods(
        stateful(5),
        pod("demo-0"),
        pod("demo-1", ready=False),
        pod("demo-2", metadata=going),
        pod("demo-3"),
    )
    cluster.tell(exec={"demo-3": 'Forbidden: User "me" cannot create resource "pods/exec"'})
    seen = ENGINE.prepare(cluster.job("true"))
    found = {one.subject.name: one for one in seen.findings}
    assert {name: one.id for name, one in found.items()} == {
        "demo": "CLUSTER-027",
        "demo-1": "CLUSTER-040",
        "demo-2": "CLUSTER-040",
        "demo-3": "CLUSTER-006",
    }
    assert "4 pods of 5" in found["demo"].title
    assert "Terminating" in found["demo-2"].title
    assert all(one.status == "fail" and one.next for one in seen.findings)
    assert [host.name for host in seen.job.hosts] == ["demo-0"]


@pytest.mark.slow
def test_a_pod_that_hangs_holds_up_no_other(cluster: Cluster) -> None:
    cluster.pods(stateful(2), pod("demo-0"), pod("demo-1"))
    cluster.tell(exec={"demo-1": "hangs"})
    began = time.monotonic()
    seen = ENGINE.prepare(replace(cluster.job("true"), startup_s=5.0))
    assert time.monotonic() - began < 20
    (finding,) = seen.findings
    assert (finding.id, finding.subject.name) == ("CLUSTER-041", "demo-1")
    assert "5 s" in finding.saw


def test_the_images_python_is_named_where_it_is_wrong(cluster: Cluster) -> None:
    cluster.write({"workload": {"python": "/no/such/python3"}})
    cluster.pods(stateful(1), pod("demo-0"))
    (finding,) = ENGINE.prepare(cluster.job("true")).findings
    assert (finding.id, finding.subject.name) == ("LAUNCH-004", "demo-0")
    assert "/no/such/python3" in finding.saw
    assert "workload.python" in finding.fix
    assert "kubectl" in finding.next


@pytest.mark.parametrize(
    ("said", "id"),
    [
        (("sh: 1: nothing", "command terminated with exit code 127"), "LAUNCH-004"),
        (("OCI runtime exec failed: exec failed: no such file or directory",), "LAUNCH-004"),
        (("error: unable to upgrade connection: container not found",), "CLUSTER-041"),
        (("Unable to connect to the server: dial tcp: i/o timeout",), "CLUSTER-011"),
        ((), "CLUSTER-041"),
    ],
)
def test_what_kubectl_says_of_a_pod(cluster: Cluster, said: tuple[str, ...], id: str) -> None:
    cluster.pods(stateful(1), pod("demo-0"))
    seen = prepared(cluster.job("true"))
    asking = PodAsking(seen.kubectl, "/usr/bin/python3", 5)
    finding = asking.trouble_of("demo-0", Answer(None, 1, said))
    assert finding is not None
    assert (finding.id, finding.subject.name) == (id, "demo-0")
    assert finding.saw and finding.fix and finding.next


def test_a_cluster_that_cannot_be_asked_is_unknown(cluster: Cluster) -> None:
    cluster.tell(get="The connection to the server 10.0.0.1:6443 was refused")
    seen = ENGINE.prepare(cluster.job("true"))
    assert seen.job.hosts == ()
    (finding,) = seen.findings
    assert (finding.id, finding.status) == ("CLUSTER-011", "not_checked")


def test_another_cluster_than_the_files_is_not_touched(cluster: Cluster) -> None:
    api = {"name": "demo", "namespace": "team", "api": "https://right.example:6443"}
    cluster.write({"cluster": api})
    cluster.tell(config="https://wrong.example:6443")
    (finding,) = ENGINE.prepare(cluster.job("true")).findings
    assert finding.status == "not_checked"
    assert {words[1] for words in cluster.asked()} == {"config"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ready": "never"}, "ready"),
        ({"lease": "3"}, "lease"),
        ({"mode": "infiniband"}, "mode"),
        ({"fallback": "rdma"}, "fallback"),
        ({"directory": "work"}, "directory"),
        ({"port": "70000"}, "port"),
    ],
)
def test_options_that_cannot_be_meant(
    cluster: Cluster, options: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as error:
        ENGINE.prepare(cluster.job("true", options=options))
    assert error.value.expected


def test_without_a_cluster_file_the_option_is_named() -> None:
    with pytest.raises(UsageError, match="cluster's file") as error:
        ENGINE.prepare(Job(command=("true",)))
    assert "--cluster" in error.value.expected


# How jobs end.


@pytest.mark.slow
def test_a_stream_that_is_cut_is_no_success(cluster: Cluster, tmp_path: Path) -> None:
    """kubectl exec may end with 0 then; the other pod's rank would go on for ever."""
    cluster.pods(stateful(2), pod("demo-0"), pod("demo-1"))
    cluster.tell(exec={"demo-1": "cut"})
    code = f"""
import os, pathlib, time
if os.environ['RANK'] == '1':
    pathlib.Path({str(cluster.folder / "cut")!r}).touch()
time.sleep(120)"""
    seen = ENGINE.prepare(cluster.job(sys.executable, "-c", code))
    began = time.monotonic()
    end, _ = run(seen, tmp_path)
    assert time.monotonic() - began < 60
    assert (end.reason, end.lost) == ("lost", ("demo-1",))
    assert end.pieces["demo-1"] == 0


LOST = {
    "deleted": (None, "was deleted"),
    "another": (pod("demo-0", metadata={"uid": "other"}), "was deleted"),
    "evicted": (
        pod("demo-0", status={"reason": "Evicted", "message": "low on memory"}),
        "was lost: Evicted",
    ),
    "killed": (
        pod(
            "demo-0",
            status={
                "containerStatuses": [
                    {
                        "name": "ranks",
                        "restartCount": 1,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                    }
                ]
            },
        ),
        "ended: OOMKilled",
    ),
    "going": (
        pod("demo-0", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        "is being deleted",
    ),
    "node": (pod("demo-0"), "was lost with its node node-of-demo-0, which is not Ready"),
}


@pytest.mark.parametrize("how", LOST)
def test_why_a_pod_was_lost(cluster: Cluster, how: str) -> None:
    cluster.pods(stateful(1), pod("demo-0"))
    seen = prepared(cluster.job("true"))
    told, title = LOST[how]
    node = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "gone"}]}}
    event = {"reason": "Killing", "message": "Stopping container ranks", "lastTimestamp": "2"}
    cluster.told = {}
    cluster.tell(**{"get_pod demo-0": told, "get_node": node, "get_events": {"items": [event]}})
    with seen.hold(lambda text: None) as held:
        (finding,) = held.lost(["demo-0", "not-ours"])
    assert (finding.id, finding.status) == ("CLUSTER-013", "fail")
    assert finding.title == f"pod demo-0 {title}"
    assert "Killing" in finding.because
    assert "describe pod demo-0" in finding.next


def test_a_pod_that_is_as_it_was_is_no_finding(cluster: Cluster) -> None:
    cluster.pods(stateful(1), pod("demo-0"))
    seen = prepared(cluster.job("true"))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    old = {"name": "ranks", "restartCount": 0, "state": {"running": {}}}
    old["lastState"] = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    cluster.told = {}
    now = pod("demo-0", status={"containerStatuses": [old]})
    cluster.tell(**{"get_pod demo-0": now, "get_node": ready})
    places = {"demo-0": ("uid-demo-0", "node-of-demo-0", 0)}
    assert why_lost(seen.kubectl, places, ["demo-0"]) == ()


# An environment for one job alone.


def test_where_nothing_is_deployed_it_is_planned(cluster: Cluster) -> None:
    cluster.pods()
    cluster.write({"gpus": {"per_node": 4, "default_nodes": 3}})
    seen = prepared(cluster.job("true"))
    name = seen.once
    assert name.startswith("demo-") and len(name) == len("demo-") + 4
    assert [(host.name, host.slots) for host in seen.job.hosts] == [
        (f"{name}-{index}", 4) for index in range(3)
    ]
    assert seen.job.size == 12
    assert any(choice.name == "environment" for choice in seen.choices)
    with pytest.raises(UsageError, match="not deployed"):
        ENGINE.prepare(cluster.job("true", hosts=(Host("demo-0"),)))
    cluster.pods(stateful(1), pod("demo-0"))
    assert prepared(cluster.job("true", options={"own": "yes"})).once


def test_its_name_fits_and_is_no_other_jobs() -> None:
    long = name_of("a" * 34 + "-" + "b" * 5, "token")
    assert len(long) <= 40 and "--" not in long
    assert name_of("demo", "one") != name_of("demo", "two")


def hold(seen: Prepared, work: Callable[[Held], None]) -> Held:
    with seen.hold(lambda text: None) as held:
        work(held)
    return held


def test_what_cannot_be_made_is_a_finding_and_nothing_is_left(cluster: Cluster) -> None:
    cluster.pods()
    seen = prepared(cluster.job("true"))
    cluster.tell(
        create='jobs.batch is forbidden: User "me" cannot create resource "jobs" in API group',
        **{"get_pods,persistent": {"items": []}},
    )
    held = hold(seen, lambda held: None)
    (finding,) = held.prepared.findings
    assert (finding.id, finding.status) == ("CLUSTER-006", "fail")
    assert (held.prepared.job.hosts, held.after) == ((), [])
    (gone,) = [words for words in cluster.asked() if "delete" in words]
    assert f"{seen.once}-lease" in gone


def test_what_cannot_be_taken_away_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.clusters.operations.lease._GONE_S", 0.5)
    cluster.pods()
    seen = prepared(cluster.job("true"))
    cluster.tell(create="forbidden", **{"get_pods,persistent": {"items": [pod("x")]}})
    (finding,) = hold(seen, lambda held: None).after
    assert (finding.id, finding.status) == ("CLUSTER-042", "warn")
    assert f"delete job {seen.once}-lease" in finding.next


def test_it_is_taken_away_when_the_job_is_interrupted(cluster: Cluster) -> None:
    cluster.pods()
    seen = prepared(cluster.job("true"))
    cluster.tell(create="forbidden", **{"get_pods,persistent": {"items": []}})

    def interrupted(held: Held) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hold(seen, interrupted)
    assert [words for words in cluster.asked() if "delete" in words]


# What would run.


def deployment(cluster: Cluster, **parts: Any) -> Any:
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.reading import read_named

    cluster.write(parts)
    return settle(read_named(str(cluster.file)), name="demo-ab12")


def test_the_lease_is_what_servers_take(cluster: Cluster) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="Requires: kubernetes-validate")
    security = {"run_as_user": 1000}
    nodes = {"gpu_nodes": ["node-a"], "tolerations": [{"key": "team", "operator": "Exists"}]}
    made = lease_job(
        deployment(cluster, security=security, nodes=nodes, gpus={"default_nodes": 1}), 300
    )
    for version in ("1.28", "1.32"):
        validate.validate(made, version, strict=True)
    spec = made["spec"]["template"]["spec"]
    assert "podAntiAffinity" not in spec["affinity"]
    assert made["metadata"]["labels"]["app.kubernetes.io/name"] != "wirespeed"


def test_objects_go_with_their_owner(cluster: Cluster) -> None:
    from wirespeed.clusters.manifests.render import render

    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "demo-lease", "uid": "u"}
    for mode in ("rwx", "volumeClaimTemplates"):
        made = deployment(cluster, storage={"mode": mode})
        objects = render(replace(made, owner=owner))
        claims = [
            claim
            for one in objects
            if one["kind"] == "StatefulSet"
            for claim in one["spec"].get("volumeClaimTemplates", ())
        ]
        owned = [one["metadata"].get("ownerReferences") for one in (*objects, *claims)]
        assert owned == [[owner]] * len(owned)
        assert not [one for one in render(made) if "ownerReferences" in one["metadata"]]


@pytest.mark.parametrize("name", ["k8s", "k8s-own"])
def test_golden(cluster: Cluster, name: str) -> None:
    cluster.pods(stateful(2), pod("demo-0"), pod("demo-1"))
    cluster.write({"workload": {"python": "/opt/py/bin/python"}})
    options = {"cluster": str(cluster.file), **({"own": "yes"} if "own" in name else {})}
    job = Job(
        command=("python", "train.py", "--name", "a b; $(id) 'c'"),
        environment={"NCCL_DEBUG": "INFO"},
        nodes=2,
        ranks_per_node=2,
        token="written-down",
        written=True,
        options=options,
    )
    if "own" not in options:
        seen = _told(prepared(replace(job, python=sys.executable)))
    else:
        seen = prepared(job)
    before, after = (list(map(_anywhere, part)) for part in seen.around(SCRATCH))
    title = "wirespeed launch --on k8s: 4 ranks"
    text = as_sh(list(map(_anywhere, seen.pieces(SCRATCH))), title, (), before, after)
    path = GOLDEN / f"launch.{name}.sh"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def _anywhere(piece: Piece) -> Piece:
    """Without this machine's path of kubectl, and without the manifests, which have their own tests."""
    files = dict.fromkeys(piece.files, "the manifests\n")
    return replace(piece, command=("kubectl", *piece.command[1:]), files=files)


def _told(seen: PodsPrepared) -> PodsPrepared:
    """With words that every machine has in place of what this one told."""
    here = {"python": "/opt/py/bin/python", "interface": "eth0", "told": ()}
    nodes = {name: replace(node, **here) for name, node in seen.found.nodes.items()}
    options = {**seen.job.options, "torchrun": "yes"}
    job = replace(seen.job, options=options, environment={"NCCL_DEBUG": "INFO"})
    return replace(seen, job=job, found=Found("10.89.0.10", 29500, nodes))


@pytest.mark.slow
def test_a_shared_volume_is_looked_at_where_the_file_has_one(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    monkeypatch.setattr("wirespeed.launchers.engines.k8s.WORKSPACE", str(folder))
    cluster.pods(stateful(2), pod("demo-0"), pod("demo-1"))
    for mode, ids in (("none", []), ("rwx", ["CLUSTER-047"])):
        cluster.write({"storage": {"mode": mode}})
        seen = prepared(cluster.job("true"))
        found = seen.shared(lambda _: None)
        assert [one.id for one in found] == ids
        assert {one.status for one in found} <= {"pass"}
    assert list(folder.iterdir()) == []
