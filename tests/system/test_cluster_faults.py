"""What stands in the way of a deploy is named, ends with the right code, and a second call mends it."""

import base64
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

pytestmark = pytest.mark.system

WITHOUT_SHELL = os.environ.get("WIRESPEED_TEST_BARE_IMAGE", "localhost/pause:1")
SOON = {"termination_grace_s": 1}


def found(done: Any) -> set[str]:
    """Ids of the findings that failed."""
    return {one["id"] for one in done.json["findings"] if one["status"] == "fail"}


def asked(kube: Any, name: str, **parts: Any) -> Any:
    """A deploy of a file of that name, started."""
    kube.file(**{**parts, "cluster": {"name": name, **parts.get("cluster", {})}})
    nodes = () if "gpus" in parts else ("--nodes", "2")
    return kube.cli.start("cluster", "deploy", name, *nodes, "-o", "json")


def test_what_can_be_known_before_is_refused_before_anything_is_made(kube: Any) -> None:
    whose = {"name": "theirs", "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    data = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**whose, "name": "theirs-scripts"},
    }
    kube.apply(data)
    rdma = {"mode": "rdma", "rdma": {"enabled": True, "resource": "rdma/none"}}
    started = {
        "many": asked(kube, "many", gpus={"default_nodes": 1000}),
        "large": asked(kube, "large", gpus={"per_node": 64}),
        "other": asked(kube, "other", gpus={"per_node": 1, "resource": "example.com/gpu"}),
        "rdma": asked(kube, "rdma", network=rdma),
        "lost": asked(kube, "lost", nodes={"gpu_nodes": ["node-here-is-none", "nor-here"]}),
        "nowhere": asked(kube, "nowhere", cluster={"namespace": "ws-test-nowhere"}),
        "theirs": asked(kube, "theirs"),
        "grand": asked(kube, "grand", workload={**_workload(kube), "priority_class": "none"}),
        "else": asked(kube, "else", cluster={"api": "https://elsewhere.example:6443"}),
        "unknown": asked(kube, "unknown", cluster={"context": "no-such-context"}),
    }
    done = {name: running.wait() for name, running in started.items()}
    assert {name: (one.code, found(one)) for name, one in done.items()} == {
        "many": (1, {"CLUSTER-002"}),
        "large": (1, {"CLUSTER-001"}),
        "other": (1, {"CLUSTER-001"}),
        "rdma": (1, {"CLUSTER-014"}),
        "lost": (1, {"CLUSTER-002"}),
        "nowhere": (1, {"CLUSTER-005"}),
        "theirs": (1, {"CLUSTER-012"}),
        "grand": (1, {"CLUSTER-025"}),
        "else": (2, {"CLUSTER-019"}),
        "unknown": (2, {"CLUSTER-019"}),
    }
    node = kube.json("get", "nodes")["items"][0]["metadata"]["name"]
    assert node in json.dumps(done["large"].json["findings"]), "the short node is named"
    left = kube.json("get", "all,configmaps", "-l", "app.kubernetes.io/managed-by=wirespeed")
    assert left["items"] == []


def _workload(kube: Any) -> dict[str, Any]:
    told: dict[str, Any] = kube.content()["workload"]
    return {**told, **SOON}


def test_what_only_the_cluster_can_tell_is_told_and_a_second_call_mends_it(kube: Any) -> None:
    each = {"mode": "volumeClaimTemplates", "workspace_size": "1Mi"}
    good = _workload(kube)
    image = asked(kube, "image", workload={**good, "image": "localhost/no-such-image:1"})
    storage = asked(kube, "storage", storage={**each, "class_rwo": "no-such-class"}, workload=good)
    stopped = asked(kube, "stopped", workload={**good, "image": "localhost/no-such-image:1"})
    kube.until(lambda: kube("get", "pod", "stopped-0").returncode == 0)
    stopped.signal(signal.SIGINT)

    done = stopped.wait()
    assert done.code == 130
    assert "cluster clean stopped" in done.err
    assert "cluster deploy stopped" in done.err

    done = storage.wait()
    assert (done.code, found(done)) == (1, {"CLUSTER-004"})
    assert "no-such-class" in done.json["findings"][0]["title"]

    done = image.wait()
    assert (done.code, found(done)) == (1, {"CLUSTER-003"})
    assert "no-such-image" in done.json["findings"][0]["saw"]
    told = kube.cli("cluster", "status", "image")
    assert told.code == 1
    assert "CLUSTER-003" in told.out

    kube.file(cluster={"name": "image"}, workload=good)
    kube.file(cluster={"name": "storage"}, workload=good, storage=each)
    kube.file(cluster={"name": "stopped"}, workload=good)
    again = [
        kube.cli.start("cluster", "deploy", "image", "--nodes", "2"),
        kube.cli.start("cluster", "deploy", "storage", "--nodes", "2", "--recreate"),
        kube.cli.start("cluster", "deploy", "stopped", "--nodes", "1"),
    ]
    for running in again:
        done = running.wait()
        assert done.code == 0, done.out + done.err


def test_a_quota_and_a_crash_are_told_in_the_clusters_words(kube: Any) -> None:
    quota = kube("create", "quota", "few", "--hard=pods=1")
    assert quota.returncode == 0, quota.stderr
    done = asked(kube, "demo", workload=_workload(kube)).wait()
    assert (done.code, found(done)) == (1, {"CLUSTER-007"})
    assert "limited: pods=1" in done.json["findings"][0]["saw"]
    assert kube("delete", "quota", "few").returncode == 0

    # The same file once more: what was refused pods is not left to wait.
    done = kube.cli("cluster", "deploy", "demo", "--nodes", "2", "-o", "json")
    assert done.code == 0, done.out + done.err

    done = asked(kube, "bare", workload={**_workload(kube), "image": WITHOUT_SHELL}).wait()
    assert (done.code, found(done)) == (1, {"CLUSTER-010"}), done.out + done.err
    assert "/bin/sh" in done.json["findings"][0]["because"]


@pytest.fixture
def few(kube: Any) -> Path:
    """A kubeconfig of somebody who may look at pods, and do nothing else."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    group = "rbac.authorization.k8s.io"
    kube.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "few"}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "few"}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "few"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "few"},
            "subjects": [{"kind": "ServiceAccount", "name": "few"}],
        },
    )
    path: Path = kube.cli.folder / "few.yaml"
    _write_kubeconfig(kube, path, {"token": _token(kube, "few")})
    return path


def _token(kube: Any, account: str) -> str:
    made = kube("create", "token", account)
    if made.returncode == 0:
        return str(made.stdout).strip()

    def secret() -> list[dict[str, Any]]:
        items = kube.json("get", "secrets")["items"]
        mark = "kubernetes.io/service-account.name"
        notes = [(one["metadata"].get("annotations", {}).get(mark), one) for one in items]
        return [one for name, one in notes if name == account and "token" in one.get("data", {})]

    kube.until(secret)
    return base64.b64decode(secret()[0]["data"]["token"]).decode()


def _write_kubeconfig(
    kube: Any, path: Path, user: dict[str, Any] | None = None, server: str = ""
) -> str:
    """A copy of the kubeconfig with another user or address; the address that it had."""
    told = json.loads(kube("config", "view", "--raw", "--minify", "-o", "json").stdout)
    if user:
        told["users"][0]["user"] = user
    cluster = told["clusters"][0]["cluster"]
    was = str(cluster["server"])
    if server:
        cluster.update({"server": server, "tls-server-name": urlsplit(was).hostname})
    path.write_text(yaml.safe_dump(told))
    path.chmod(0o600)
    return was


def test_missing_rights_are_listed_at_once(kube: Any, few: Path) -> None:
    done = asked(kube, "demo", cluster={"kubeconfig": str(few)}).wait()
    assert (done.code, found(done)) == (1, {"CLUSTER-006"}), done.out + done.err
    (because,) = {one["because"] for one in done.json["findings"] if one["status"] == "fail"}
    assert "create statefulsets.apps" in because
    assert "create pods/exec" in because
    told = kube.cli("cluster", "status", "demo", "-o", "json")
    assert (told.code, found(told)) == (3, {"CLUSTER-006"})

    path = kube.cli.folder / "expired.yaml"
    _write_kubeconfig(kube, path, {"token": "expired"})
    done = asked(kube, "demo", cluster={"kubeconfig": str(path)}).wait()
    assert (done.code, found(done)) == (3, {"CLUSTER-020"}), done.out + done.err


class Wire:
    """A wire to the API server that can be cut: a TCP relay."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listen()

    def cut(self) -> None:
        """Connections end in the middle, and new ones are refused, as of a server that restarts."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listen()

    def _listen(self) -> None:
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target, 5)
                far.settimeout(None)
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


@pytest.fixture
def wire(kube: Any) -> Iterator[Wire]:
    """With `wire.yaml`, a kubeconfig that goes over it."""
    path = kube.cli.folder / "wire.yaml"
    parts = urlsplit(_write_kubeconfig(kube, path))
    made = Wire(str(parts.hostname), parts.port or 443)
    _write_kubeconfig(kube, path, server=f"https://127.0.0.1:{made.port}")
    yield made
    made.cut()


def test_an_api_server_that_restarts_is_waited_for(kube: Any, wire: Wire) -> None:
    there = {"kubeconfig": str(kube.cli.folder / "wire.yaml")}
    running = asked(kube, "demo", cluster=there, workload=_workload(kube))
    kube.until(lambda: kube("get", "statefulset", "demo").returncode == 0)
    wire.cut()
    time.sleep(4)
    wire.mend()
    done = running.wait()
    assert done.code == 0, done.out + done.err
    assert "asking again" in done.err

    wire.cut()
    gone = kube.cli("cluster", "status", "demo", "-o", "json")
    assert (gone.code, found(gone)) == (3, {"CLUSTER-011"}), gone.out
    lost = kube.cli("cluster", "deploy", "demo", "-o", "json")
    assert (lost.code, found(lost), lost.json["verdict"]) == (3, {"CLUSTER-011"}, "NONE")
    wire.mend()
    assert kube.cli("cluster", "deploy", "demo", "--nodes", "2").code == 0


def _switch(*words: str) -> int:
    command = ["ip", "-n", "kube-lab-switch", "link", *words]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode


@pytest.mark.quiet
def test_a_node_that_is_cut_is_named(kube: Any) -> None:
    kube.file(workload=_workload(kube))
    assert kube.cli("cluster", "deploy", "demo", "--nodes", "2").code == 0
    pods = kube.json("get", "pods")["items"]
    node = pods[0]["spec"]["nodeName"]
    if _switch("show", node):
        pytest.skip("Requires: nodes on a switch of this machine that can be cut (kube-lab)")

    def is_ready() -> bool:
        told = kube.json("get", "node", node)["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in told)

    assert _switch("set", node, "down") == 0
    try:
        kube.until(lambda: not is_ready())
        kube.until(lambda: kube.cli("cluster", "status", "demo").code == 1)
        told = kube.cli("cluster", "status", "demo")
        assert "CLUSTER-013" in told.out, told.out
        assert node in told.out
        more = kube.cli("cluster", "deploy", "demo", "--nodes", "3", "-o", "json")
        assert more.code == 1
        assert "CLUSTER-002" in found(more)
    finally:
        assert _switch("set", node, "up") == 0
        kube.until(is_ready)
    kube.until(lambda: kube.cli("cluster", "status", "demo").code == 0)
