"""What is told of an imported world completes its facts, and never contradicts them."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.errors import UsageError
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, ToldShape, World
from wirespeed.reference.reasons import complete, lacking
from wirespeed.reference.shape import shape_of


def listed(nodes: int = 2, per_node: int = 8, name: str = "NVIDIA A100-SXM4-80GB") -> World:
    """As a whole list of devices in a log tells it."""
    facts = tuple(
        NodeFacts(
            host=f"n{n}",
            ranks=tuple(range(n * per_node, (n + 1) * per_node)),
            facts=Facts(),
            gpus=tuple({"index": k, "name": name} for k in range(per_node)),
        )
        for n in range(nodes)
    )
    return World(size=nodes * per_node, nodes=facts, backend="nccl", launcher="nccl-tests")


def bare(size: int = 128) -> World:
    return World(size=size, nodes=(), backend="nccl", launcher="torchrun")


def test_the_interconnect_completes_a_whole_list() -> None:
    world = complete(listed(), ToldShape(interconnect="ib", nics=8, nic_Gbitps=200.0), whose="it")
    shape = shape_of(world)
    assert shape is not None
    assert (shape.gpu, shape.per_node, shape.nodes) == ("A100 SXM", 8, 2)
    assert (shape.interconnect, shape.nics, shape.nic_Gbitps) == ("ib", 8, 200.0)
    assert from_json(World, to_json(world)) == world
    assert "told" not in to_json(listed())


@pytest.mark.parametrize("said", [{"nodes": 16}, {"gpus_per_node": 8}])
def test_the_number_of_ranks_tells_what_is_missing(said: dict[str, int]) -> None:
    world = complete(bare(), ToldShape(gpu="A100", interconnect="ib", **said), whose="it")
    shape = shape_of(world)
    assert shape is not None
    assert (shape.nodes, shape.per_node, shape.ranks) == (16, 8, 128)


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (bare(), ["--gpu", "--nodes"]),
        (bare(0), ["--gpu", "--nodes, --gpus-per-node"]),
        (replace(bare(), told=ToldShape(gpu="H100")), ["--nodes"]),
        (listed(), []),
    ],
)
def test_what_is_lacking_is_named(world: World, words: list[str]) -> None:
    assert lacking(world) == words


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"gpu": "H100"}, "--gpu H100, but the run is of A100 SXM"),
        ({"nodes": 4}, "4 nodes were told, but the run has 2"),
        ({"gpus_per_node": 4}, "4 GPUs a node were told, but the run has 8"),
    ],
)
def test_contradictions_are_refused(said: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        complete(listed(), ToldShape(**said), whose="the run")


def test_the_same_again_is_no_contradiction() -> None:
    told = ToldShape(gpu="A100", nodes=2, gpus_per_node=8, interconnect="roce")
    assert complete(listed(), told, whose="it").told == replace(told, why="")


def test_what_facts_or_an_import_told_is_not_overruled(cluster: Any) -> None:
    with pytest.raises(UsageError, match=r"goes over InfiniBand \(8 × 400 Gbit/s"):
        complete(cluster(2), ToldShape(interconnect="tcp"), whose="it")
    with pytest.raises(UsageError, match="network cards a node"):
        complete(cluster(2), ToldShape(nics=4, nic_Gbitps=400.0), whose="it")
    with pytest.raises(UsageError, match="cards of 200 Gbit/s"):
        complete(cluster(2), ToldShape(nics=8, nic_Gbitps=200.0), whose="it")
    with pytest.raises(UsageError, match="3 nodes of 8 GPUs were told, but it has 128 ranks"):
        complete(bare(), ToldShape(nodes=3, gpus_per_node=8), whose="it")


@pytest.mark.parametrize("said", ["roce", "ib", "mnnvl+ib", "mnnvl"])
def test_an_assumption_gives_way_to_what_is_stated(said: str) -> None:
    """GB300 nodes usually stand in racks with multi-node NVLink; these may not."""
    world = listed(nodes=2, per_node=4, name="NVIDIA GB300")
    before = shape_of(world)
    assert before is not None and (before.interconnect, before.assumed) == ("mnnvl", True)
    shape = shape_of(complete(world, ToldShape(interconnect=said), whose="it"))
    assert shape is not None and (shape.interconnect, shape.assumed) == (said, False)
    with pytest.raises(UsageError, match="goes over RoCE"):
        once = complete(world, ToldShape(interconnect="roce"), whose="it")
        complete(once, ToldShape(interconnect="ib"), whose="it")


def test_a_log_of_pcie_cards_has_their_slot() -> None:
    shape = shape_of(listed(nodes=1, name="NVIDIA L40S"))
    assert shape is not None
    assert (shape.interconnect, round((shape.gpu_link or 0) / 1e9, 1)) == ("pcie", 31.5)


def test_a_log_of_two_cards_is_completed_with_their_bridge() -> None:
    pair = listed(nodes=1, per_node=2, name="NVIDIA A100 80GB PCIe")
    shape = shape_of(pair)
    assert shape is not None and (shape.interconnect, shape.inside) == ("", "bridge")
    for said, rate in (("nvlink", 300.0), ("pcie", 31.5)):
        shape = shape_of(complete(pair, ToldShape(interconnect=said), whose="it"))
        assert shape is not None and shape.interconnect == said
        assert shape.gpu_link == pytest.approx(rate * 1e9, rel=0.01)


def test_a_guess_gives_way() -> None:
    guess = ToldShape(gpus_per_node=8, nodes=16, guessed=True, why="boards of 8")
    world = complete(replace(bare(), told=guess), ToldShape(gpu="A100", nodes=8), whose="it")
    assert world.told == ToldShape(gpu="A100", gpus_per_node=16, nodes=8)
