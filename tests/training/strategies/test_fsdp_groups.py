"""Groups that some ranks of the world make by themselves, where torch has bound the world to GPUs."""

from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.training.strategies import fsdp


def test_a_group_of_some_ranks_is_not_split_from_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's split waits for all ranks of the world, and others are elsewhere at that time."""
    world = SimpleNamespace(bound_device_id="cuda:0")
    seen: list[Any] = []

    def new_group(ranks: list[int], **_: Any) -> str:
        seen.append((ranks, world.bound_device_id))
        return "group"

    known = SimpleNamespace(
        group=SimpleNamespace(WORLD=world),
        new_group=new_group,
        get_backend=lambda _: "nccl",
        get_world_size=lambda _: 2,
    )
    monkeypatch.setattr(fsdp, "dist", known)
    whole: Any = object()
    assert fsdp._group([2, 0], whole) is whole
    found: Any = fsdp._group([2], whole)
    assert found == "group"
    assert seen == [([2], None)]
    assert world.bound_device_id == "cuda:0"
