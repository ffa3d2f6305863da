"""bf16 and fp16 with a gradient scaler: together as alone, and what is wrong still shows."""

from collections.abc import Callable
from typing import Any

import pytest

World = Callable[..., list[Any]]
NAMES = ("naive", "flat", "overlap", "bucketed", "ddp", "zero1", "sharded", "fsdp2")
PRECISIONS = ("bf16", "fp16")


def differ(rank: int, ranks: int) -> dict[str, list[str]]:
    import torch
    import torch.distributed as dist
    from toys import toy

    from wirespeed.training.contract import Setup
    from wirespeed.training.equivalence import Proof, differences
    from wirespeed.training.strategies.registry import STRATEGIES, build_of

    spec, found = toy("plain"), {}
    for precision in PRECISIONS:
        proof = Proof(steps=4, clip=0.5, precision=precision, rtol=2e-2, atol=1e-3)
        for name in (*NAMES, "none"):
            setup = Setup(
                group=dist.group.WORLD,
                device=torch.device("cpu"),
                optimizer_class=torch.optim.SGD,
                optimizer_options={"lr": 0.3},
                samples=4,
                micro_batches=2,
                variant=STRATEGIES[name].variant,
            )
            said = differences(spec, build_of(name), setup, proof)
            found[f"{name} {precision}"] = [one.name for one in said]
    return found


@pytest.fixture(scope="module")
def found(world: World) -> list[dict[str, list[str]]]:
    return world("differ")


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_together_as_alone(found: list[dict[str, list[str]]], name: str, precision: str) -> None:
    for told in found:
        assert told[f"{name} {precision}"] == []


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_tolerance_is_not_so_wide_that_nothing_shows(
    found: list[dict[str, list[str]]], precision: str
) -> None:
    assert all(told[f"none {precision}"] for told in found)
