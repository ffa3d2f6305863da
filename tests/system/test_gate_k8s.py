"""A gate on a real cluster: condition, Event and taint of its nodes, and what its account may not do."""

import os
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest

pytestmark = [pytest.mark.system, pytest.mark.quiet]
SOON_S = 120.0
BLAME = """
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, Subject, World
from wirespeed.runs.folder import new_id
from wirespeed.runs.store import save
import os
host = os.environ["NODE_NAME"]
node = NodeFacts(host=host, ranks=(0,), facts=Facts())
found = Finding(id="LOC-001", status="fail", title="it is <script>slow", subject=Subject("node", host))
save(Run(id=new_id(), command="check", verdict="NOT READY", exit_code=1, started="", seconds=1.0,
         world=World(size=1, nodes=(node,), backend="gloo", launcher="k8s"), findings=(found,)))
"""


@pytest.fixture
def file(kube: Any) -> Any:
    """The pods reach the API server where kubectl does, also in a cluster without a proxy."""
    view = kube.json("config", "view", "--minify")
    server = urlsplit(view["clusters"][0]["cluster"]["server"])
    env = {}
    if server.hostname not in ("127.0.0.1", "localhost"):
        env = {
            "KUBERNETES_SERVICE_HOST": server.hostname,
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
    workload = {"env": env}
    made = kube.content()
    path = kube.file(
        workload={**made["workload"], **workload}, security={"run_as_user": os.getuid()}
    )
    yield path
    kube("taint", "nodes", "-l", "wirespeed/gate=bad", "wirespeed/gate-")
    kube("label", "nodes", "--all", "wirespeed/gate-")
    done = kube.cli("cluster", "gate", str(path), "--taint", "-o", "yaml")
    words = ["kubectl", "delete", "--ignore-not-found", "-f", "-"]
    subprocess.run(words, input=done.out, text=True, check=True, capture_output=True, timeout=90)


def condition(node: dict[str, Any]) -> str:
    told = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    return str(told.get("WirespeedHealthy", ""))


def tainted(node: dict[str, Any]) -> bool:
    return any(one["key"] == "wirespeed/gate" for one in node["spec"].get("taints", ()))


def nodes(kube: Any) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in kube.json("get", "nodes")["items"]}


def may(kube: Any, *words: str) -> bool:
    who = f"--as=system:serviceaccount:{kube.namespace}:demo-gate"
    done = kube("auth", "can-i", *words, who)
    return bool(done.stdout.strip() == "yes")


def test_bad_nodes_are_told_of_and_one_of_them_is_tainted(kube: Any, file: Any) -> None:
    """With the default limit one of a few; the other stays in service, and says why."""
    done = kube.cli("cluster", "gate", str(file), "--every", "3s", "--taint")
    assert done.code == 0, done.err
    waited = kube(
        "rollout", "status", "daemonset/demo-gate", f"--timeout={SOON_S:.0f}s", timeout=150
    )
    assert waited.returncode == 0, waited.stdout + waited.stderr
    kube.until(lambda: {condition(one) for one in nodes(kube).values()} == {"True"}, SOON_S)

    pods = kube.json("get", "pods", "-l", "app.kubernetes.io/instance=demo-gate")["items"]
    for pod in pods:
        python = pod["spec"]["containers"][0]["command"][0]
        said = kube("exec", pod["metadata"]["name"], "--", python, "-P", "-c", BLAME)
        assert said.returncode == 0, said.stderr
    kube.until(lambda: {condition(one) for one in nodes(kube).values()} == {"False"}, SOON_S)
    kube.until(lambda: sum(map(tainted, nodes(kube).values())) == 1, SOON_S)
    events = kube.json("get", "events", "-n", "default")["items"]
    told = [one for one in events if one.get("source", {}).get("component") == "wirespeed-gate"]
    assert {one["involvedObject"]["name"] for one in told} >= set(nodes(kube))
    assert any("it is <script>slow" in one["message"] for one in told)


def test_what_its_account_may_do(kube: Any, file: Any) -> None:
    assert kube.cli("cluster", "gate", str(file)).code == 0
    assert may(kube, "patch", "nodes", "--subresource=status")
    assert may(kube, "create", "events", "-n", "default")
    for words in (("patch", "nodes"), ("delete", "nodes"), ("get", "secrets"), ("create", "pods")):
        assert not may(kube, *words), words
    assert kube.cli("cluster", "gate", str(file), "--taint").code == 0
    assert may(kube, "patch", "nodes")
