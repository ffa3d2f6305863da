"""`kube`: a namespace of its own on the cluster that KUBECONFIG names, and cluster files for it.

    def test_something(kube):
        done = kube("get", "nodes")                 # the user's kubectl, in this namespace
        path = kube.file(cluster={"name": "demo"})  # a cluster file whose pods can run wirespeed
        kube.cli("cluster", "deploy", str(path))

Any cluster will do whose nodes are this machine (the pods run this machine's Python, mounted from
the node), or that has an image with wirespeed, named by WIRESPEED_TEST_IMAGE. The namespace is
deleted after the test, and the last test of the process waits until all of them are gone. Never
point KUBECONFIG at a cluster that matters: tests ask for everything that an administrator may do.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

BOUND_S = 90.0
GONE_S = 90.0
IMAGE = os.environ.get("WIRESPEED_TEST_IMAGE", "")
_BARE = "localhost/debian:bookworm"
_SRC = Path(__file__).resolve().parents[2]
_numbers = itertools.count()


class Kube:
    """One namespace, and commands in it."""

    def __init__(self, cli: Any, namespace: str) -> None:
        self.cli = cli
        self.namespace = namespace
        self.kubeconfig = os.environ["KUBECONFIG"]
        self._kubectl = shutil.which("kubectl") or "kubectl"

    def __call__(
        self, *words: str, stdin: str | None = None, timeout: float = BOUND_S
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl in this namespace to its end."""
        return subprocess.run(
            [self._kubectl, "-n", self.namespace, *words],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def apply(self, *objects: dict[str, Any]) -> None:
        done = self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr

    def until(self, told: Callable[[], bool], bound_s: float = BOUND_S) -> None:
        end = time.monotonic() + bound_s
        while not told():
            assert time.monotonic() < end, f"not so within {bound_s} s: {told}"
            time.sleep(0.5)

    def content(self, **parts: dict[str, Any]) -> dict[str, Any]:
        """A cluster file's content for this namespace; `parts` are laid over it, key by key."""
        told: dict[str, Any] = {
            "cluster": {"name": "demo", "namespace": self.namespace},
            "workload": _workload(),
            "gpus": {"default_nodes": 2},
            "network": {"tcp": {"interface_exclude": "eth0"}},
        }
        for part, keys in parts.items():
            told[part] = {**told.get(part, {}), **keys} if isinstance(keys, dict) else keys
        return told

    def file(self, **parts: dict[str, Any]) -> Path:
        """The same as a file `clusters/NAME.yaml` in the folder that commands run in."""
        told = self.content(**parts)
        folder: Path = self.cli.folder / "clusters"
        folder.mkdir(exist_ok=True)
        path = folder / f"{told['cluster']['name']}.yaml"
        path.write_text(yaml.safe_dump(told, sort_keys=False), "utf-8")
        return path


def _workload() -> dict[str, Any]:
    if IMAGE:
        return {"image": IMAGE}
    places = {str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix, _SRC)}
    outer = sorted(p for p in places if not any(p != o and p.startswith(f"{o}/") for o in places))
    volumes = [
        {"name": f"here-{index}", "mount_path": place, "host_path": place, "read_only": True}
        for index, place in enumerate(outer)
    ]
    return {"image": _BARE, "python": sys.executable, "volumes": volumes}


def _delete(namespace: str) -> None:
    words = ["kubectl", "delete", "namespace", namespace, "--wait=false", "--ignore-not-found"]
    subprocess.run(words, capture_output=True, timeout=BOUND_S, check=False)


def _left(made: list[str]) -> list[str]:
    words = ["kubectl", "get", "namespaces", "-o", "name"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND_S, check=False)
    there = {line.removeprefix("namespace/") for line in done.stdout.split()}
    return [name for name in made if name in there]


@pytest.fixture(scope="session")
def kube_namespaces() -> Iterator[list[str]]:
    """Names of the namespaces that this process made; at its end none of them is there."""
    if not os.environ.get("KUBECONFIG") or not shutil.which("kubectl"):
        pytest.skip("Requires: kubectl, and KUBECONFIG of a cluster for tests (kind will do)")
    made: list[str] = []
    yield made
    end = time.monotonic() + GONE_S
    while left := _left(made):
        if time.monotonic() > end:
            raise AssertionError(f"namespaces are not gone within {GONE_S} s: {left}")
        time.sleep(1)


@pytest.fixture
def kube(cli: Any, kube_namespaces: list[str]) -> Iterator[Kube]:
    name = f"ws-test-{os.getpid()}-{next(_numbers)}"
    made = Kube(cli, name)
    done = made("create", "namespace", name)
    assert done.returncode == 0, done.stderr
    kube_namespaces.append(name)
    # A pod may only be made once the namespace's own account is there.
    made.until(lambda: made("get", "serviceaccount", "default").returncode == 0)
    try:
        yield made
    finally:
        _delete(name)
