"""Where pods may run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests.pod import placement
from wirespeed.clusters.presets import Preset

Pod = Callable[..., dict[str, Any]]
OURS = {"app.kubernetes.io/instance": "mine", "app.kubernetes.io/name": "wirespeed"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_one_pod_a_node_and_nothing_more(pod: Pod) -> None:
    term = {"labelSelector": {"matchLabels": OURS}, "topologyKey": "kubernetes.io/hostname"}
    assert pod()["spec"]["affinity"] == {"podAntiAffinity": {REQUIRED: [term]}}
    assert "nodeSelector" not in pod()["spec"]


def test_listed_nodes_are_meant_by_name(pod: Pod) -> None:
    made = pod(nodes={"gpu_nodes": ["a", "b"]}, gpus={"type": "H100"})
    product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100"]}
    terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [
        {
            "matchExpressions": [product],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}],
        }
        for name in ("a", "b")
    ]


def test_a_product_alone(pod: Pod) -> None:
    required = pod(gpus={"type": "H100"})["spec"]["affinity"]["nodeAffinity"][REQUIRED]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["H100"]


def test_one_zone(pod: Pod) -> None:
    affinity = pod(nodes={"same_zone": True})["spec"]["affinity"]
    (term,) = affinity["podAffinity"][REQUIRED]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    assert term["labelSelector"] == {"matchLabels": OURS}
    assert "podAntiAffinity" in affinity


def test_spread_over_racks_never_keeps_a_pod_waiting(pod: Pod) -> None:
    (spread,) = pod(nodes={"spread_over": "example.org/rack"})["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "example.org/rack"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


def test_a_preset_may_ask_for_both(deployment: Callable[..., Deployment]) -> None:
    preset = Preset(
        name="p", summary="", why="", source="", mode="tcp", same_zone=True, spread_over="a.b/rack"
    )
    spec = placement(replace(deployment(), preset=preset))
    assert "podAffinity" in spec["affinity"]
    assert spec["topologySpreadConstraints"][0]["topologyKey"] == "a.b/rack"
    own = placement(replace(deployment(nodes={"spread_over": "own"}), preset=preset))
    assert own["topologySpreadConstraints"][0]["topologyKey"] == "own"


def test_the_gpu_taint_is_borne_where_gpus_are_asked(pod: Pod) -> None:
    made = pod(gpus={"per_node": 1, "resource": "amd.com/gpu"})
    assert made["spec"]["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists"}]


def test_other_taints_after_it(pod: Pod) -> None:
    own = [
        {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"},
        {"effect": "NoExecute", "toleration_seconds": 0},
    ]
    first, *others = pod(gpus={"per_node": 1}, nodes={"tolerations": own})["spec"]["tolerations"]
    assert first["key"] == "nvidia.com/gpu"
    assert others == [own[0], {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]
