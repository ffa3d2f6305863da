"""Rendered manifests before a real API server, and in real pods."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(
    path.stem.removeprefix("cluster.")
    for path in (Path(__file__).parents[1] / "clusters/manifests/files").glob("*.yaml")
)
HOSTILE = {
    "REFERENCE": "$(POD_NAME) $$(POD_NAME) $$ $",
    "QUOTES": 'it\'s "so" \\n `id` $(id); rm -rf /tmp/none',
    "YAML": "- a: {b} #c",
    "NUMBER": "1e3",
    "BOOLEAN": "no",
    "WIDE": "日本 🙂 " + "long " * 700,
    "EMPTY": "",
}
_ENVIRON = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize("case", CASES)
def test_the_server_takes_every_field_as_it_is(case: str, kube: Any) -> None:
    """Server-side apply; what the server does not know it would drop in silence."""
    text = (GOLDEN / f"cluster.{case}.yaml").read_text()
    objects = [_moved(one, kube.namespace) for one in yaml.safe_load_all(text)]
    objects = [one for one in objects if one["kind"] != "Namespace"]
    done = kube(
        "apply", "--server-side", "--dry-run=server", "-o", "json", "-f", "-",
        stdin=yaml.safe_dump_all(objects),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answered = {(one["kind"], one["metadata"]["name"]): one for one in _items(done.stdout)}
    assert len(answered) == len(objects)
    for one in objects:
        lost = list(_lost(one, answered[one["kind"], one["metadata"]["name"]]))
        assert not lost, f"{one['kind']}: {lost}"


def test_values_of_the_file_reach_the_ranks_and_pods_find_each_other(kube: Any) -> None:
    notes = "line\n$(POD_NAME)\n: - #\n"
    file = kube.file(
        cluster={"description": "yes"},
        workload={"env": HOSTILE, "annotations": {"8": "1e3", "y": "null"}},
        gpus={"per_node": 8},
        storage={"mode": "volumeClaimTemplates", "workspace_size": "1Gi"},
        notes=notes,
    )
    stream = kube.cli("cluster", "render", str(file))
    assert stream.code == 0, stream.err
    done = kube("apply", "--server-side", "-f", "-", stdin=stream.out)
    assert done.returncode == 0, done.stderr
    done = kube("rollout", "status", "statefulset/demo", "--timeout=80s")
    assert done.returncode == 0, done.stdout + kube("describe", "pods").stdout

    python = kube.content()["workload"].get("python", "/usr/bin/python3")
    told = kube("exec", "demo-1", "--", python, "-c", _ENVIRON)
    environ = json.loads(told.stdout)
    assert {name: environ.get(name) for name in HOSTILE} == HOSTILE
    pods = {one["metadata"]["name"]: one for one in kube.json("get", "pods")["items"]}
    assert environ["NODE_NAME"] == pods["demo-1"]["spec"]["nodeName"]
    assert environ["NODE_NAME"] != pods["demo-0"]["spec"]["nodeName"], "one pod a node"
    assert (environ["NNODES"], environ["POD_NAME"]) == ("2", "demo-1")

    first = pods["demo-0"]["status"]["podIP"]
    found = kube("exec", "demo-1", "--", "getent", "hosts", environ["MASTER_ADDR"]).stdout
    assert found.split()[0] == first
    labels = kube("exec", "demo-1", "--", "cat", "/etc/podinfo/labels").stdout
    assert 'app.kubernetes.io/instance="demo"' in labels
    assert pods["demo-1"]["metadata"]["annotations"].items() >= {"8": "1e3", "y": "null"}.items()
    scripts = kube.json("get", "configmap", "demo-scripts")
    assert scripts["metadata"]["annotations"]["wirespeed/notes"] == notes
    assert scripts["metadata"]["annotations"]["wirespeed/description"] == "yes"
    rights = kube("exec", "demo-0", "--", "grep", "-E", "^(CapEff|NoNewPrivs)", "/proc/self/status")
    assert rights.stdout.split() == ["CapEff:", "0" * 16, "NoNewPrivs:", "1"]


def _moved(one: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The same in the test's namespace."""
    for subject in one.get("subjects", ()):
        subject["namespace"] = namespace
    return {**one, "metadata": {**one["metadata"], "namespace": namespace}}


def _items(text: str) -> list[dict[str, Any]]:
    """kubectl gives several objects as a list, or one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        one, at = decoder.raw_decode(text, at)
        found += one.get("items", [one])
    return found


def _lost(asked: Any, answered: Any, path: str = "") -> Iterator[str]:
    """Paths of what was asked and is not, or is otherwise, in the answer."""
    if isinstance(asked, dict) and isinstance(answered, dict):
        for name, value in asked.items():
            yield from _lost(value, answered.get(name), f"{path}.{name}")
    elif isinstance(asked, list) and isinstance(answered, list) and len(asked) == len(answered):
        for index, value in enumerate(asked):
            yield from _lost(value, answered[index], f"{path}[{index}]")
    elif asked != answered:
        yield f"{path}: {asked!r} became {answered!r}"
