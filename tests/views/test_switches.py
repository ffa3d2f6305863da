"""Nodes by switch as the files of schedulers; names that would write something else into them."""

import json

import pytest
import yaml

from wirespeed.errors import UsageError
from wirespeed.locate.grouping import Grouping, Switches
from wirespeed.views.switches import LABEL, expanded, hostlist, render
from wirespeed.views.text import Style

GROUPS = Grouping(((0, 1), (2, 3)), (4,), "latency", 1.25, 10, 1.05)
FOUND = Switches((("n1", "n2"), ("n3", "gpu")), ("n4",), GROUPS)


def shown(format: str, found: Switches = FOUND, label: str = LABEL, **names: str) -> str:
    return render(found, format, Style(), names, label)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["n1"], "n1"),
        (["n3", "n1", "n2", "n7"], "n[1-3,7]"),
        (["n9", "n10"], "n[9-10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n08", "n9", "n10"], "n9,n[08,10]"),
        (["a", "b-ib"], "a,b-ib"),
        (["rack1-n1", "rack1-n2", "rack2-n1"], "rack1-n[1-2],rack2-n1"),
    ],
)
def test_host_lists(names: list[str], told: str) -> None:
    assert hostlist(names) == told


@pytest.mark.parametrize(
    "names", [["n1"], ["n[1-3,7]"], ["n[08-10]", "login"], ["r1-n[1-2]", "r2-n1"]]
)
def test_host_lists_are_read_as_they_are_written(names: list[str]) -> None:
    assert sorted(hostlist(expanded(",".join(names))).split(",")) == sorted(
        ",".join(names).split(",")
    )
    assert expanded("n[9-11]b, x") == ["n9b", "n10b", "n11b", "x"]


def test_slurm_gets_each_node_once() -> None:
    lines = [line for line in shown("slurm").splitlines() if not line.startswith("#")]
    assert lines == [
        "SwitchName=leaf1 Nodes=n[1-2]",
        "SwitchName=leaf2 Nodes=n3,gpu",
        "SwitchName=unknown Nodes=n4",
        "SwitchName=core Switches=leaf[1-2],unknown",
    ]


def test_topology_yaml() -> None:
    (topology,) = yaml.safe_load(shown("slurm-yaml"))
    assert topology["cluster_default"] is True
    assert topology["tree"]["switches"] == [
        {"switch": "core", "children": "leaf[1-2],unknown"},
        {"switch": "leaf1", "nodes": "n[1-2]"},
        {"switch": "leaf2", "nodes": "n3,gpu"},
        {"switch": "unknown", "nodes": "n4"},
    ]


def test_labels_name_the_nodes_of_pods_and_leave_out_who_is_not_clear() -> None:
    told = yaml.safe_load(shown("k8s-labels", gpu="worker-7"))
    assert told["kind"] == "List"
    labelled = {one["metadata"]["name"]: one["metadata"]["labels"] for one in told["items"]}
    assert labelled == {
        "n1": {LABEL: "leaf1"},
        "n2": {LABEL: "leaf1"},
        "n3": {LABEL: "leaf2"},
        "worker-7": {LABEL: "leaf2"},
    }


def test_table_and_json() -> None:
    assert "2 leaf switches, from 10 pairs" in shown("table")
    assert "1 node not clear" in shown("table")
    data = json.loads(shown("json"))
    assert data["switches"][1] == {"name": "leaf2", "nodes": ["n3", "gpu"]}
    assert data["not_clear"] == ["n4"]


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("format", ["slurm", "slurm-yaml", "k8s-labels"])
@pytest.mark.parametrize(
    "name", ["n1\nSwitchName=x Nodes=ALL", "n1 Nodes=y", "a:\n  b", "n[1-9]", "", '"', "n1#", "-n"]
)
def test_a_name_that_is_none_gets_into_no_file(format: str, name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a node"):
        shown(format, Switches((("n2", name),), (), GROUPS))


@pytest.mark.hostile("hostile values")
def test_neither_does_a_name_that_kubernetes_told_nor_a_strange_label() -> None:
    with pytest.raises(UsageError, match="is not the name of a node"):
        shown("k8s-labels", gpu='x"\n  labels: {}')
    with pytest.raises(UsageError, match="is no key of a label"):
        shown("k8s-labels", label="a: b\nc")
