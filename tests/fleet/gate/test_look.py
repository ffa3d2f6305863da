"""What a gate sees of a node, from made facts."""

from dataclasses import replace

from wirespeed.fleet.gate import look
from wirespeed.fleet.gate.look import Counters
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts

NODE = NodeFacts(host="n1", ranks=(0,), facts=Facts())
GPUS = replace(NODE, facts=Facts(gpu_on_bus=["0000:1a:00.0"], gpu_count=1))


def counters(at: float, boot: str = "b", **values: int) -> Counters:
    return Counters(at=at, boot=boot, values={"RDMA mlx5_0 port 1": values})


def test_a_link_that_went_down_between_two_looks() -> None:
    before, now = counters(0, link_downed=1), counters(60, link_downed=2)
    (found,) = look.link_problems(NODE, before, now)
    assert (found.id, found.status) == ("COUNT-001", "fail")
    assert "since the last look" in found.title


def test_counters_that_cannot_be_compared_accuse_nobody() -> None:
    now = counters(60, link_downed=5)
    assert look.link_problems(NODE, None, now) == []
    assert look.link_problems(NODE, counters(0, boot="a", link_downed=1), now) == []
    assert look.link_problems(NODE, counters(90, link_downed=1), now) == []
    assert look.link_problems(NODE, counters(0, link_downed=9), now) == []


def test_gpus_that_nobody_answers_for_are_not_good() -> None:
    blind = replace(GPUS, unknown={"gpus": "nvidia-ml-py is not installed"})
    assert look.blind_spots(blind) == ["1 GPUs on the bus: nvidia-ml-py is not installed"]
    assert look.blind_spots(replace(NODE, unknown=blind.unknown)) == []


def test_a_driver_that_is_silent_is_told_from_one_that_fails() -> None:
    silent = {"call": "nvml", "code": 10, "text": "no answer within 2 s"}
    failed = {"call": "nvmlInit", "code": 999, "text": "unknown error"}
    for error, spots in ((silent, ["NVML: no answer within 2 s"]), (failed, [])):
        node = replace(GPUS, facts=replace(GPUS.facts, gpu_nvml_failed=error))  # type: ignore[arg-type]
        assert look.blind_spots(node) == spots
        assert [one.id for one in look.node_problems(node)] == ["GPU-009"]


def test_this_machine_can_be_looked_at() -> None:
    node = look.read_node("here", 5.0)
    assert node.host == "here"
    assert node.facts.memory_total_bytes
