"""Sampled steps: their timeline is one that the page can draw."""

import json
from typing import Any

from wirespeed.views.html.timeline import blocks_of
from wirespeed.watch.sampled import SampledSteps


def sample(rank: int, step: int) -> dict[str, Any]:
    """A forward pass, then a backward pass that waits for the others in its second half."""
    at = 1000.0 * rank
    spans = [
        ("step", "forward", at, at + 2000.0),
        ("step", "backward", at + 2000.0, at + 8000.0),
        ("communication", "sync", at + 5000.0, at + 8000.0),
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
    issued = ["0", "default_pg", ranks, "gloo:all_reduce", 1, [[4]], ["Float"], 10.0]
    steps.take({**sample(0, 1), "f": [issued], "of": of})
    return steps.files({0: "a"}).get("calls.jsonl", "").splitlines()


def test_calls_of_a_step_that_was_told_in_part_are_no_step() -> None:
    assert len(told(of=1, members=2)) == 1
    assert told(of=2, members=2) == []


def test_members_that_may_be_cut_are_not_told() -> None:
    (line,) = told(of=1, members=63)
    assert len(json.loads(line)["group"]) == 63
    (line,) = told(of=1, members=64)
    assert json.loads(line)["group"] == []
