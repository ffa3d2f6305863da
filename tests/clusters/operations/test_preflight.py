"""Is there room? Nodes and pods as the API tells them; the answers are counted by hand."""

import json
from typing import Any

import pytest

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.file.kinds import quantity
from wirespeed.clusters.manifests.pod import pod_template
from wirespeed.clusters.operations.pod_lookup import Node, node_from
from wirespeed.clusters.operations.schedulability import (
    Room,
    ask_of,
    holdings_from,
    room_findings,
    unfit,
)
from wirespeed.model.records import Finding

GPU = "nvidia.com/gpu"
ZONE = "topology.kubernetes.io/zone"


def told(name: str, **more: Any) -> dict[str, Any]:
    """A node's JSON."""
    has = {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "8", **more.get("has", {})}
    ready = {"type": "Ready", "status": "True" if more.get("ready", True) else "Unknown"}
    return {
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": {"taints": more.get("taints", []), "unschedulable": more.get("cordoned", False)},
        "status": {"conditions": [ready], "allocatable": has},
    }


def nodes(*items: dict[str, Any]) -> list[Node]:
    return [node_from(one) for one in items]


def holding(node: str, name: str, **requests: str) -> str:
    """A line of what is held, as kubectl's jsonpath gives it."""
    asked = json.dumps({"requests": {key.replace("_", "/", 1): v for key, v in requests.items()}})
    return "\t".join([node, "team", name, '{"a":"b"}', "", f"{asked}|", ""])


def found(parts: dict[str, Any], room: Room, count: int) -> list[Finding]:
    file = ClusterFile.model_validate({"cluster": {"name": "demo"}, **parts})
    deployment = settle(file, nodes=count)
    return room_findings(deployment, pod_template(deployment), room)


def test_the_short_node_is_named_with_who_holds_what_is_missing() -> None:
    held = holdings_from(
        holding("b", "big", **{"nvidia.com_gpu": "6"}) + "\n" + holding("b", "small", cpu="1"),
        except_of=("default", "demo"),
    )
    room = Room(nodes(told("a"), told("b")), held)
    (one,) = found({"gpus": {"per_node": 4}}, room, 2)
    assert (one.id, one.status, one.subject.name) == ("CLUSTER-001", "fail", "b")
    assert one.title == "b has 2 of 4 nvidia.com/gpu free"
    assert "team/big" in one.because
    assert "team/small" not in one.because
    assert "--nodes 1" in one.fix
    assert found({"gpus": {"per_node": 2}}, room, 2) == []


def test_our_own_pods_do_not_stand_in_our_way() -> None:
    labels = json.dumps(
        {
            "app.kubernetes.io/instance": "demo",
            "app.kubernetes.io/managed-by": "wirespeed",
        }
    )
    line = "\t".join(["a", "default", "demo-0", labels, "", f'{{"limits":{{"{GPU}":"8"}}}}|', ""])
    parts = {"gpus": {"per_node": 8}}
    ours = holdings_from(line, except_of=("default", "demo"))
    assert found(parts, Room(nodes(told("a")), ours), 1) == []
    theirs = holdings_from(line, except_of=("default", "other"))
    assert [one.id for one in found(parts, Room(nodes(told("a")), theirs), 1)] == ["CLUSTER-001"]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (told("b", ready=False), "not Ready"),
        (told("b", cordoned=True), "cordoned"),
        (
            told("b", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
            "team=x:NoSchedule",
        ),
        (told("b", labels={"rack": "9"}), "rack=9, not rack=1"),
    ],
)
def test_nodes_that_take_no_such_pod_are_listed_with_the_reason(
    node: dict[str, Any], why: str
) -> None:
    parts = {"nodes": {"node_selector": {"rack": "1"}}} if "rack" in why else {}
    first = told("a", labels={"rack": "1"})
    (one,) = found(parts, Room(nodes(first, node)), 2)
    assert (one.id, one.title) == ("CLUSTER-002", "1 node can take pods, 2 are asked")
    assert why in one.because


def test_tolerations_listed_nodes_and_zones_are_honoured() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    gpu = {"key": GPU, "effect": "NoSchedule"}
    room = Room(nodes(told("a", taints=[taint, gpu]), told("b", taints=[gpu])))
    bears = {"gpus": {"per_node": 1}, "nodes": {"tolerations": [{"key": "team"}]}}
    assert found(bears, room, 2) == []
    assert [one.id for one in found({"gpus": {"per_node": 1}}, room, 2)] == ["CLUSTER-002"]

    listed = {"nodes": {"gpu_nodes": ["a", "node-c"]}}
    one = found(listed, Room(nodes(told("a"), told("node-b"))), 2)[0]
    assert one.title == "the cluster has no node node-c"
    assert one.fix == "node-b instead of node-c"

    zones = Room(nodes(*(told(name, labels={ZONE: name[0]}) for name in ("a1", "a2", "b1"))))
    near = {"nodes": {"same_zone": True}}
    assert found(near, zones, 2) == []
    assert [one.id for one in found(near, zones, 3)] == ["CLUSTER-002"]


def test_rdma_and_gpus_that_are_nowhere_are_two_stories() -> None:
    room = Room(nodes(told("a"), told("b", has={"rdma/roce": "1"})))
    asked = {"network": {"mode": "rdma", "rdma": {"enabled": True, "resource": "rdma/ib"}}}
    (one,) = found(asked, room, 1)
    assert one.id == "CLUSTER-014"
    assert "rdma/roce" in one.saw
    assert "--fallback tcp" in one.fix
    (one,) = found({"gpus": {"per_node": 1, "resource": "amd.com/gpu"}}, room, 1)
    assert one.id == "CLUSTER-001"
    assert GPU in one.saw


def test_what_may_not_be_seen_is_not_checked() -> None:
    (one,) = found({}, Room(None), 2)
    assert one.status == "not_checked"
    (one,) = found({"gpus": {"per_node": 1}}, Room(nodes(told("a")), None), 1)
    assert one.status == "not_checked"


def test_a_term_that_no_label_meets_holds_nowhere() -> None:
    expression = {"key": "cores", "operator": "Gt", "values": ["8"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    ask = ask_of({"spec": {"containers": [], "affinity": {"nodeAffinity": required}}})
    assert unfit(Node(name="a", labels={"cores": "9"}), ask) == ""
    assert unfit(Node(name="a", labels={"cores": "8"}), ask)
    assert unfit(Node(name="a", labels={"cores": "many"}), ask)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("2", 2), ("64Gi", 64 * 2**30), ("1k", 1000), ("1e3", 1000), ("1E", 1e18),
     ("1Ei", 2**60), ("1.5Mi", 1.5 * 2**20), ("junk", 0), ("700m", 0.7),
     ("1e3.", 1000), ("9" * 5000, 2.0**63), ("-" + "9" * 5000, -(2.0**63))],
)  # fmt: skip
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == value
