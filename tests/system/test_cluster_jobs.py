"""MPIJob, TrainJob and JobSet on a real API server, and nccl-tests run by a real mpirun over two pods.

The definitions of the operators' resources are those of the cluster, where it has them; else every
*.yaml in the folder that WIRESPEED_TEST_CRDS names (or tests/system/crds) is made there and removed
after. They are published by kubeflow/mpi-operator, kubeflow/trainer and kubernetes-sigs/jobset. No
operator runs: `Operator` below makes the pods that kubeflow/mpi-operator would make of an MPIJob, with
its names, labels, keys and hostfile.
"""

import base64
import copy
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import processes

BOUND_S = 120.0
until = partial(processes.until, bound_s=BOUND_S, every_s=0.2)
KINDS = ("mpijobs.kubeflow.org", "jobsets.jobset.x-k8s.io")
ENGINES = ("mpijob", "trainjob", "jobset")
KINDS += ("trainjobs.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org")
_LOCK = Path(tempfile.gettempdir()) / "wirespeed-test-crds.lock"
_FOLDER = Path(os.environ.get("WIRESPEED_TEST_CRDS") or Path(__file__).parent / "crds")
_TABLE = Path(__file__).parents[1] / "diagnose" / "cases" / "157-healthy-roce.log"
_MPIRUN = "mpirun.openmpi"


def kubectl(*words: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Of the whole cluster."""
    return subprocess.run(
        ["kubectl", *words], input=stdin, capture_output=True, text=True, timeout=BOUND_S,
        check=False,
    )  # fmt: skip


@contextmanager
def alone() -> Iterator[None]:
    """Definitions are of the whole cluster: one test at a time has them, or has them not."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def definitions() -> list[dict[str, Any]]:
    found = [
        one
        for path in sorted(_FOLDER.glob("*.yaml"))
        for one in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader)
        if one
    ]
    # A TrainingRuntime is a ClusterTrainingRuntime in a namespace: both have TrainingRuntimeSpec.
    return found + [_in_namespace(one) for one in found if _kind(one) == "ClusterTrainingRuntime"]


def _kind(definition: dict[str, Any]) -> str:
    kind: str = definition["spec"]["names"]["kind"]
    return kind


def _in_namespace(definition: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(definition)
    plural, kind = "trainingruntimes", "TrainingRuntime"
    made["metadata"]["name"] = f"{plural}.{made['spec']['group']}"
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    made["spec"] |= {"scope": "Namespaced", "names": names}
    return made


def installed() -> set[str]:
    told = kubectl("get", "crds", "-o", "name").stdout.split()
    return {name.rpartition("/")[2] for name in told} & set(KINDS)


@contextmanager
def defined() -> Iterator[bool]:
    """The definitions are there; whether they are ours, so that no operator acts on them."""
    if len(installed()) == len(KINDS):
        yield False
        return
    made = definitions()
    if installed() or not made:
        pytest.skip(f"Requires: WIRESPEED_TEST_CRDS, definitions for a cluster without {KINDS}")
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    try:
        until(lambda: kubectl("create", "-f", "-", stdin=text).returncode == 0)
        names = [f"crd/{one['metadata']['name']}" for one in made]
        done = kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        assert done.returncode == 0, done.stderr
        yield True
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text)
        until(lambda: not installed())


def described(kind: str) -> bool:
    """Also in the OpenAPI document, by which kubectl refuses keys that are not there."""
    return kubectl("explain", f"{kind}.spec").returncode == 0


FULL: dict[str, Any] = {
    "workload": {"queue": "team", "env": {"NCCL_ALGO": "Ring"}, "labels": {"a": "b"}},
    "gpus": {"per_node": 8},
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
    "storage": {"mode": "rwx", "workspace_size": "1Gi", "datasets_size": "1Gi"},
    "network": {"rdma": {"enabled": True, "resource": "rdma/ib", "networks": ["rail-0"]}},
    "nodes": {"same_zone": True, "spread_over": "topology.kubernetes.io/zone"},
    "security": {"ipc_lock": True, "run_as_user": 1000},
    "notes": "a note",
}
WRONG: tuple[tuple[str, str, tuple[str, ...], Any], ...] = (
    ("mpijob", "MPIJob", ("spec", "slotsPerWorker"), "eight"),
    ("mpijob", "MPIJob", ("spec", "mpiImplementation"), "OpenMPI5"),
    ("mpijob", "MPIJob", ("spec", "slotPerWorker"), 8),
    ("jobset", "JobSet", ("spec", "network", "subDomain"), "mine"),
    ("jobset", "JobSet", ("spec", "coordinator"), {"jobIndex": 0}),
    ("trainjob", "TrainJob", ("spec", "trainer", "nodes"), 2),
    ("trainjob", "TrainJob", ("spec", "runtimeRef"), {"kind": "TrainingRuntime"}),
    ("trainjob", "TrainingRuntime", ("spec", "mlPolicy", "numNodes"), "two"),
)


def rendered(kube: Any, engine: str, **parts: Any) -> list[dict[str, Any]]:
    path = kube.file(**parts)
    done = kube.cli("cluster", "render", str(path), "--engine", engine, "--nodes", "3")
    assert done.code == 0, done.err
    return list(yaml.load_all(done.out, yaml.CSafeLoader))


def test_the_server_takes_every_kind_and_shape_and_no_wrong_key(kube: Any) -> None:
    with alone():
        if not installed():
            a_missing_operator_is_named(kube)
        with defined():
            until(lambda: all(described(kind) for kind in KINDS))
            whole = {engine: every_shape_is_taken(kube, engine) for engine in ENGINES}
            for engine, kind, path, value in WRONG:
                made = next(one for one in whole[engine] if one["kind"] == kind)
                refused(kube, made, path, value)


def a_missing_operator_is_named(kube: Any) -> None:
    path = kube.file(cluster={"name": "bare"}, gpus={"per_node": 1})
    done = kube.cli("cluster", "nccl-tests", str(path))
    assert done.code == 1, done.err
    assert "CLUSTER-016" in done.out and "--engine statefulset" in done.out
    assert "github.com/kubeflow/mpi-operator" in done.out
    assert kube.json("get", "all,configmaps,serviceaccounts", "-l", "wirespeed/run")["items"] == []


def every_shape_is_taken(kube: Any, engine: str) -> list[dict[str, Any]]:
    """The objects of the last shape."""
    objects: list[dict[str, Any]] = []
    for name, parts in (("smallest", {}), ("full", FULL)):
        objects = rendered(kube, engine, cluster={"name": name}, **parts)
        done = kube("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(objects))
        assert done.returncode == 0, (engine, name, done.stderr)
        assert done.stdout.count("created (server dry run)") == len(objects)
    return objects


def refused(kube: Any, made: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    place = made = copy.deepcopy(made)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    done = kube("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(made))
    assert done.returncode != 0, f"{made['kind']} with {'.'.join(path)} = {value!r} was taken"
    assert path[-1] in done.stderr or "required" in done.stderr, done.stderr


# nccl-tests, with what the operator would make.

OPERATOR = {"training.kubeflow.org/operator-name": "mpi-operator"}


class Operator(threading.Thread):
    """Makes pods of MPIJobs as kubeflow/mpi-operator 0.6 does, until it is stopped."""

    def __init__(self, kube: Any, keys: Path) -> None:
        super().__init__(daemon=True)
        self._kube, self._keys = kube, keys
        self._over = threading.Event()
        self.failed: list[str] = []

    def run(self) -> None:
        while not self._over.wait(0.2):
            for job in self._kube.json("get", "mpijobs")["items"]:
                try:
                    self._act(job)
                except AssertionError as error:
                    # What a job that is just going still needs may be gone before it.
                    if self._kube("get", "mpijob", job["metadata"]["name"]).returncode == 0:
                        self.failed.append(str(error))

    def stop(self) -> None:
        self._over.set()
        self.join(BOUND_S)
        assert not self.is_alive() and not self.failed, self.failed

    def _act(self, job: dict[str, Any]) -> None:
        uid, replicas = job["metadata"]["uid"], job["spec"]["mpiReplicaSpecs"]
        count = replicas["Worker"]["replicas"]
        selector = f"training.kubeflow.org/job-name={job['metadata']['name']}"
        pods = self._kube.json("get", "pods", "-l", selector)["items"]
        if [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] != uid]:
            return
        if not pods:
            workers = [self._pod(job, "worker", index) for index in range(count)]
            self._kube.apply(*self._around(job, count), *workers)
        elif len(pods) == count == len([pod for pod in pods if _ready(pod)]):
            self._kube.apply(self._pod(job, "launcher", None))

    def _owned(self, job: dict[str, Any], name: str, **labels: str) -> dict[str, Any]:
        """Metadata of what goes when the job goes."""
        meta = job["metadata"]
        owner = {"name": meta["name"], "uid": meta["uid"], "controller": True}
        owner |= {"apiVersion": job["apiVersion"], "kind": "MPIJob", "blockOwnerDeletion": True}
        own = {**OPERATOR, "training.kubeflow.org/job-name": meta["name"], **labels}
        return {"name": name, "labels": own, "ownerReferences": [owner]}

    def _around(self, job: dict[str, Any], count: int) -> list[dict[str, Any]]:
        name, slots = job["metadata"]["name"], job["spec"]["slotsPerWorker"]
        stem = f"{name}.{self._kube.namespace}.svc slots={slots}\n"
        hosts = "".join(f"{name}-worker-{index}.{stem}" for index in range(count))
        files = {"ssh-privatekey": self._keys, "ssh-publickey": self._keys.with_suffix(".pub")}
        keys = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
        selector = {**OPERATOR, "training.kubeflow.org/job-name": name}
        parts: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("Secret", f"{name}-ssh", {"type": "kubernetes.io/ssh-auth", "data": keys}),
            ("Service", name, {"spec": {"clusterIP": "None", "selector": selector}}),
            ("ConfigMap", f"{name}-config", {"data": {"hostfile": hosts}}),
        )
        return [
            {"apiVersion": "v1", "kind": kind, "metadata": self._owned(job, name), **body}
            for kind, name, body in parts
        ]

    def _pod(self, job: dict[str, Any], role: str, index: int | None) -> dict[str, Any]:
        name = job["metadata"]["name"]
        spec = job["spec"]["mpiReplicaSpecs"]["Worker" if role == "worker" else "Launcher"]
        template = copy.deepcopy(spec["template"])
        hostname = f"{name}-{role}" + ("" if index is None else f"-{index}")
        told = self._owned(
            job, hostname if role == "worker" else f"{hostname}-x7k2p",
            **template["metadata"]["labels"], **{"training.kubeflow.org/job-role": role},
            **({} if index is None else {"training.kubeflow.org/replica-index": str(index)}),
        )  # fmt: skip
        pod = template["spec"]
        pod |= {"hostname": hostname, "subdomain": name, "restartPolicy": spec["restartPolicy"]}
        items = {"ssh-privatekey": "id_rsa", "ssh-publickey": "id_rsa.pub"}
        files = [{"key": key, "path": path} for key, path in items.items()]
        files.append({"key": "ssh-publickey", "path": "authorized_keys"})
        pod["volumes"].append(
            {"name": "ssh-auth", "secret": {"secretName": f"{name}-ssh", "items": files}}
        )
        container = pod["containers"][0]
        mounts = container["volumeMounts"]
        mounts.append({"name": "ssh-auth", "mountPath": job["spec"]["sshAuthMountPath"]})
        container["env"].append({"name": "K_MPI_JOB_ROLE", "value": role})
        if role == "launcher":
            volume = {"name": "mpi-job-config", "configMap": {"name": f"{name}-config"}}
            pod["volumes"].append(volume)
            mounts.append({"name": "mpi-job-config", "mountPath": "/etc/mpi"})
            container["env"] += [
                {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
                {"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"},
                {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"},
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": ""},
            ]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": told, "spec": pod}


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


_PROGRAM = """\
#!/bin/sh
# In place of all_reduce_perf, which needs GPUs: each rank tells who it is, the first has the table.
echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname), NCCL_ALGO=$NCCL_ALGO $*"
[ "$OMPI_COMM_WORLD_RANK" != 0 ] || cat /opt/tests/table
case $* in *hang*) sleep 600 ;; *fail*) exit 3 ;; esac
"""


@pytest.fixture
def mpi(kube: Any, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A cluster file whose pods have this machine's sshd and mpirun, and an operator that acts."""
    missing = [name for name in (_MPIRUN, "sshd", "ssh-keygen") if not _found(name)]
    if missing:
        pytest.skip(f"Requires: {', '.join(missing)}")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "table").write_bytes(_TABLE.read_bytes())
    (programs / "all_reduce_perf").write_text(_PROGRAM)
    (programs / "all_reduce_perf").chmod(0o755)
    places = {"usr": "/usr", "passwd": "/etc/passwd", "alternatives": "/etc/alternatives"}
    places |= {"openmpi": "/etc/openmpi"}
    volumes = [
        {"name": name, "mount_path": path, "host_path": path, "read_only": True}
        for name, path in places.items()
    ]
    tests = {"name": "tests", "mount_path": "/opt/tests", "host_path": str(programs)}
    keys = tmp_path / "id_rsa"
    words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(keys)]
    subprocess.run(words, check=True, timeout=BOUND_S)
    operator = Operator(kube, keys)

    def make(**parts: Any) -> Path:
        workload = {
            "image": "localhost/debian:bookworm",
            "volumes": [*volumes, {**tests, "read_only": True}],
            "env": {"NCCL_ALGO": "Ring", "OMPI_MCA_plm_rsh_no_tree_spawn": "1"},
        }
        gpus = {"per_node": 1, "default_nodes": 2}
        found: Path = kube.file(**{"workload": workload, "gpus": gpus, **parts})
        return found

    with alone(), defined() as ours:
        if not ours:
            pytest.skip("Requires: a cluster without the MPI operator")
        operator.start()
        try:
            yield make
        finally:
            operator.stop()


def _found(name: str) -> bool:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is not None


def left(kube: Any) -> list[str]:
    """What of the run is in the namespace; what is being deleted is not."""
    kinds = "pods,mpijobs,configmaps,secrets,services,serviceaccounts,networkpolicies"
    items = kube.json("get", kinds)["items"]
    return [
        f"{one['kind']} {one['metadata']['name']}"
        for one in items
        if "nccl-tests" in one["metadata"]["name"] and "deletionTimestamp" not in one["metadata"]
    ]


@pytest.mark.timeout(400)  # pods of an old kubelet may take 40 s to go, three times
def test_nccl_tests_runs_over_two_pods_and_leaves_nothing(
    kube: Any, mpi: Callable[..., Path]
) -> None:
    words = ["cluster", "nccl-tests", "demo", "--program", "/opt/tests/all_reduce_perf"]
    mpi()

    # One that is killed before its launcher comes leaves things behind, which the next one removes.
    running = kube.cli.start(*words)
    kube.cli.until(lambda: "of 2 workers ready" in running.err(), BOUND_S)
    running.signal(signal.SIGKILL)
    running.wait(BOUND_S)
    assert left(kube)
    done = kube.cli(*words, "--", "-b", "8", "-g", "1", timeout=BOUND_S)
    assert done.code == 0, (done.out, done.err)
    assert "removing what an earlier run left" in done.err
    seen = [line for line in done.out.splitlines() if line.startswith("rank ")]
    for rank in range(2):
        told = f"rank {rank} of 2 on demo-nccl-tests-worker-{rank}, NCCL_ALGO=Ring -b 8 -g 1"
        assert told in seen, (seen, done.err)
    run = kube.cli.run()
    assert run["command"] == "import" and len(run["measurements"]) == 10
    assert run["config"]["cluster"] == "demo" and run["config"]["cluster_nodes"] == 2
    assert run["config"]["words"] == ["/opt/tests/all_reduce_perf", "-b", "8", "-g", "1"]
    (folder,) = kube.cli.folders()
    assert "Avg bus bandwidth" in (folder / "logs" / "launcher.log").read_text()

    # One that hangs is ended by Ctrl-C, pressed twice. Another name: its pods need not wait.
    words[2] = "other"
    mpi(cluster={"name": "other"})
    running = kube.cli.start(*words, "--", "hang")
    kube.cli.until(lambda: "rank 1 of 2" in running.out(), BOUND_S)
    # To the whole group, as a terminal does it: kubectl gets it too.
    os.killpg(running.process.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.wait(BOUND_S).code == 130, running.err()
    kube.until(lambda: not left(kube))
    kube.cli.nothing_runs()
