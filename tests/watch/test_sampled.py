"""Sampled steps: their timeline is one that the page can draw."""

import json
from typing import Any

import pytest

from wirespeed.views.html.timeline import blocks_of
from wirespeed.watch.sampled import SampledSteps


def sample(rank: int, step: int) -> dict[str, Any]:
    """A forward pass, then a backward pass that waits for the others in its second half."""
    at = 1000.0 * rank
    spans = [
        ("forward", at, at + 2000.0),
        ("backward", at + 2000.0, at + 8000.0),
        ("sync", at + 5000.0, at + 8000.0),
    ]
    return {"k": "sp", "r": rank, "s": step, "t": 1e9, "x": spans, "f": []}


def test_a_step_of_all_ranks_is_one_block_with_its_phases() -> None:
    steps = SampledSteps()
    for rank in range(4):
        steps.take(sample(rank, 120))
    (block,) = blocks_of(json.loads(steps.files(dict.fromkeys(range(4), "a"))["trace.json"]))
    assert block.name == "step 120" and len(block.ranks) == 4
    for rank in block.ranks.values():
        assert [one.name for one in rank.phases] == ["forward", "backward"]
        assert len(rank.communication) == 1


def test_a_sample_without_a_phase_has_no_step() -> None:
    steps = SampledSteps()
    steps.take({**sample(0, 1), "x": []})
    assert blocks_of(json.loads(steps.files({0: "a"})["trace.json"])) == []


def told(of: int, members: int) -> list[str]:
    """Lines of a step's calls, of which one was told of a group of so many."""
    steps, ranks = SampledSteps(), list(range(members))
    kind = ["0", "default_pg", ranks, "gloo:all_reduce", [[4]], ["Float"]]
    steps.take({**sample(0, 1), "g": [kind], "f": [[0, 1, 10.0]], "of": of})
    return steps.files({0: "a"}).get("calls.jsonl", "").splitlines()


def test_calls_of_a_step_that_was_told_in_part_are_no_step() -> None:
    assert len(told(of=1, members=2)) == 1
    assert told(of=2, members=2) == []


def test_members_that_may_be_cut_are_not_told() -> None:
    (line,) = told(of=1, members=63)
    assert len(json.loads(line)["group"]) == 63
    (line,) = told(of=1, members=64)
    assert json.loads(line)["group"] == []


def issued(op: str, at: float, elements: int) -> tuple[Any, Any]:
    """Kind and call."""
    kind = ["0", "dp", [0, 1, 2], f"nccl:{op}", [[elements]], ["Float"]]
    return kind, [int(at), at]


def calls(*every: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    """The parts of a message that tell them."""
    kinds = [kind for kind, _ in every]
    return {"g": kinds, "f": [[place, *call] for place, (_, call) in enumerate(every)]}


def test_waits_are_of_what_was_issued_before_them_by_bytes() -> None:
    """By the rank that waited least: what it waits, nobody's lateness explains."""
    steps = SampledSteps()
    waits = [("sync", 1000.0, 4000.0), ("wait", 6000.0, 6500.0)]
    every = calls(
        issued("all_reduce", 100, 300), issued("all_gather", 200, 100), issued("broadcast", 5000, 9)
    )
    steps.take({**sample(0, 1), "x": waits, **every})
    longer = [("sync", 1000.0, 9000.0)]
    steps.take({**sample(1, 1), "x": longer, **every})
    told = {one.op: one.exposed for one in steps.traffic()}
    assert told["all_reduce"] == pytest.approx(3e-3 * 1201 / 1602)
    assert told["all_gather"] == pytest.approx(3e-3 * 401 / 1602)
    assert told["broadcast"] == pytest.approx(0.5e-3)


def test_on_gpus_a_wait_takes_what_the_gpu_says() -> None:
    """The host handed it in, and went on."""
    steps = SampledSteps()
    waits = [("wait", 1000.0, 1010.0), ("wait", 6000.0, 6010.0)]
    every = calls(issued("all_reduce", 100, 300), issued("broadcast", 5000, 9))
    steps.take({**sample(0, 1), "x": waits, "w": [4000, 250], **every})
    told = {one.op: one.exposed for one in steps.traffic()}
    assert told == pytest.approx({"all_reduce": 4e-3, "broadcast": 0.25e-3})


def test_a_group_without_a_description_has_its_name() -> None:
    steps = SampledSteps()
    kind = ["7", "undefined", [0, 1], "nccl:all_reduce", [[9]], ["Float"]]
    steps.take({**sample(0, 1), **calls((kind, [1, 10.0]))})
    assert [one.group for one in steps.traffic()] == ["group 7"]
