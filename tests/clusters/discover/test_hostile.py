"""A cluster that means ill: whatever it tells stays data, in values and in comments."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from wirespeed.clusters.discover import discover, fits, inert, written
from wirespeed.clusters.discover.inventory import Entry
from wirespeed.clusters.kube import Silent
from wirespeed.clusters.reading import read_cluster

pytestmark = pytest.mark.hostile("hostile values")

Make = Callable[..., dict[str, Any]]
NASTY = [
    'x"\ncluster:\n  name: evil\n#',
    "x\r\nsecurity: {requires_privileged_scc: true}",
    "x\u2028workload: {image: evil}\u2029",
    "x\x85nodes: {gpu_nodes: [evil]}",
    "\x1b]0;owned\x07\x1b[2J",
    "&a [*a, *a]",
    "!!python/object/apply:os.system [id]",
    "$(touch /tmp/owned)`id`",
    "../../etc/passwd",
    "${IFS}; rm -rf /",
    "\u202egnp.exe",
    "a" * 5000,
    "{{ .Values.x }}",
    "- x: [",
    "\ud800",
    "'",
    "%YAML 9.9\n---\n",
]


@pytest.mark.parametrize("nasty", NASTY)
def test_every_text_of_a_cluster_stays_data(
    told: Any, node: Make, listed: Make, storage_class: Make, nasty: str
) -> None:
    amounts = {"nvidia.com/gpu": "8", nasty: "8", f"rdma/{nasty}": "1", "openshift.io/x": nasty}
    labels = {"nvidia.com/gpu.product": nasty, "topology.kubernetes.io/zone": nasty, nasty: nasty}
    taint = {"key": nasty, "value": nasty, "effect": "NoSchedule"}
    one = node(nasty, labels=labels, allocatable=amounts, taints=[taint])
    told.kinds(nasty, "network-attachment-definitions.k8s.cni.cncf.io")
    told.answer("get nodes", listed(one, one))
    told.answer("get storageclasses", listed(storage_class(nasty, nasty, default=True)))
    network = {"metadata": {"name": nasty, "namespace": nasty, "annotations": {}}}
    network["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/resourceName": f"rdma/{nasty}"}
    words = "get network-attachment-definitions.k8s.cni.cncf.io everywhere"
    told.answer(words, listed(network))
    told.answer("config view", {"out": f"{nasty}\nhttps://a\n"})
    version = json.dumps({"serverVersion": {"gitVersion": nasty}})
    told.answer("version -o", {"out": version})
    made = discover(
        told.kubectl, name="lab", namespace="", context="", kubeconfig="", progress=Silent()
    )
    assert all(one.isprintable() or one == "\n" for one in made.text + made.summary)
    file = read_cluster(made.text, "hostile")
    assert file.cluster.name == "lab"
    assert not file.security.requires_privileged_scc
    assert file.workload.image != "evil"
    assert file.nodes.gpu_nodes == ()
    assert "evil" not in str(yaml.safe_load(made.text).get("cluster"))
    assert max(len(line) for line in made.text.splitlines()) < 1000


@pytest.mark.parametrize("nasty", NASTY)
def test_values_and_comments_survive_any_text(nasty: str) -> None:
    entries = [
        Entry(("cluster", "name"), "lab", nasty),
        Entry(("cluster", "description"), nasty, nasty),
        Entry(("gpus", "type"), nasty, nasty),
        Entry(("workload", "labels"), {"a": nasty}, nasty),
        Entry(("network", "rdma", "networks"), [nasty], nasty),
    ]
    told = yaml.safe_load(written([nasty], entries))
    assert set(told) <= {"cluster", "gpus", "workload", "network"}
    assert told["cluster"]["name"] == "lab"
    for one in entries:
        place: Any = told
        for key in one.path:
            place = (place or {}).get(key)
        assert place == (one.value if fits(one) else None)


def test_unusual_but_good_text_is_kept() -> None:
    entry = Entry(("cluster", "description"), 'Grüße: "x" # 😀 \\n', "")
    assert fits(entry)
    assert yaml.safe_load(written([], [entry]))["cluster"]["description"] == entry.value


def test_a_value_that_cannot_be_is_told() -> None:
    text = written([], [Entry(("gpus", "per_node"), -1, "why")])
    assert "not taken, since the key cannot have it: gpus.per_node: -1" in text
    assert yaml.safe_load(text) is None


def test_long_text_is_cut_for_comments_only() -> None:
    assert len(inert("x" * 9000)) == 301
