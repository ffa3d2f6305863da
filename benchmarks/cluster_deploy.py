"""What `wirespeed cluster deploy` costs beyond the kubelets: beside bare kubectl, by turns.

    python benchmarks/cluster_deploy.py [--rounds 5] [--nodes 2] [--namespace NAME]

Takes KUBECONFIG of a cluster for tests. Each round deploys the same environment twice into a
namespace of its own: once by `kubectl apply --server-side` of the rendered manifests and `kubectl
wait` (which is told the same labels), once by `wirespeed cluster deploy`; which one is first changes
from round to round. Between them the pods are removed. The kubelets' part, from the first pod made to
the last one ready as a watch sees it, is subtracted from both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import yaml

NAME = "bench"
SELECTOR = f"app.kubernetes.io/instance={NAME}"
IMAGE = os.environ.get("WIRESPEED_TEST_IMAGE", "localhost/debian:bookworm")
WIRESPEED = (sys.executable, "-m", "wirespeed", "cluster")
BOUND_S = 300


def run(*words: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        words, input=stdin, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def bare(namespace: str, file: str, nodes: int) -> tuple[str, float]:
    """What a user would do by hand."""
    kubectl = ("kubectl", "-n", namespace)
    text = run(*WIRESPEED, "render", file, "--nodes", str(nodes))
    began = time.monotonic()
    run(*kubectl, "apply", "--server-side", "-f", "-", stdin=text)
    while not run(*kubectl, "get", "pods", "-l", SELECTOR, "-o", "name"):
        time.sleep(0.05)
    words = ("wait", "--for=condition=Ready", "pods", "-l", SELECTOR, f"--timeout={BOUND_S}s")
    run(*kubectl, *words)
    return "kubectl", time.monotonic() - began


def ours(_: str, file: str, nodes: int) -> tuple[str, float]:
    began = time.monotonic()
    told = run(*WIRESPEED, "deploy", file, "--nodes", str(nodes), "-q", "-o", "json")
    seconds = time.monotonic() - began
    if json.loads(told)["exit_code"] != 0:
        raise SystemExit(told)
    return "wirespeed", seconds


beyond: dict[str, list[float]] = {"kubectl": [], "wirespeed": []}
"""Seconds of each round that were not the kubelets'."""


class Watch:
    """When the first pod was made and the last one was ready, as a watch sees it."""

    def __init__(self, namespace: str) -> None:
        path = "{.metadata.name} {.status.conditions[?(@.type=='Ready')].status}{'\\n'}"
        words = ["kubectl", "-n", namespace, "get", "pods", "-l", SELECTOR]
        words += ["--watch", "-o", f"jsonpath={path}"]
        self._made = 0.0
        self._ready: dict[str, float] = {}
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        time.sleep(0.5)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            now = time.monotonic()
            self._made = self._made or now
            name, _, ready = line.partition(" ")
            if ready.strip() == "True":
                self._ready.setdefault(name, now)

    def kubelets_s(self) -> float:
        """Between the two; ends the watch."""
        time.sleep(0.3)
        self._process.terminate()
        self._process.wait(10)
        self._thread.join(10)
        return max(self._ready.values()) - self._made


def rounds(namespace: str, file: str, nodes: int, count: int) -> None:
    ways: list[Callable[[str, str, int], tuple[str, float]]] = [bare, ours]
    for number in range(count):
        for way in ways if number % 2 == 0 else reversed(ways):
            watch = Watch(namespace)
            name, seconds = way(namespace, file, nodes)
            kubelets = watch.kubelets_s()
            beyond[name].append(seconds - kubelets)
            print(
                f"round {number + 1}  {name:<9}  {seconds:6.2f} s, of which from the first pod made to "
                f"the last ready {kubelets:.2f} s: beyond {seconds - kubelets:.2f} s"
            )
            run(*WIRESPEED, "clean", file, "--yes", "-q")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--namespace", default=f"ws-bench-{os.getpid()}")
    asked = parser.parse_args()
    content = {
        "cluster": {"name": NAME, "namespace": asked.namespace},
        "workload": {"image": IMAGE, "termination_grace_s": 1},
    }
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIRESPEED_HOME"] = folder
        path = Path(folder) / "bench.yaml"
        path.write_text(yaml.safe_dump(content))
        run("kubectl", "create", "namespace", asked.namespace)
        try:
            rounds(asked.namespace, str(path), asked.nodes, asked.rounds)
        finally:
            run("kubectl", "delete", "namespace", asked.namespace, "--wait=false")
    for name, seconds in beyond.items():
        low, high = min(seconds), max(seconds)
        middle = statistics.median(seconds)
        print(f"{name:<9}  beyond the kubelets: median {middle:.2f} s ({low:.2f} … {high:.2f})")


if __name__ == "__main__":
    main()
