"""naive, flat, overlap and bucketed train as one process does on the whole batch, in real worlds."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

World = Callable[..., list[Any]]

TOYS = (
    "plain",
    "frozen",
    "tied",
    "mixed",
    "buffered",
    "sometimes",
    "backwards",
    "shuffled",
    "images",
    "half",
)
WAYS: dict[str, tuple[str, float | None]] = {
    "naive": ("naive", None),
    "flat": ("flat", None),
    "overlap": ("overlap", None),
    "bucketed": ("bucketed", None),
    "bucketed, each parameter alone": ("bucketed", 0.0001),
    "bucketed, a few parameters each": ("bucketed", 0.0004),
}
THREE = ("naive", "overlap", "bucketed, a few parameters each")
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "three micro batches": {"micro_batches": 3},
    "clipped": {"clip": 0.05},
}


def equal_everywhere(rank: int, ranks: int) -> dict[str, list[str]]:
    """Way, toy and variant -> what differs."""
    return {
        f"{way}; {toy}; {variant}": _differing(way, toy, **VARIANTS[variant])
        for way in WAYS
        for toy in TOYS
        for variant in VARIANTS
    }


def a_rank_of_three(rank: int, ranks: int) -> list[str]:
    return [one for way in THREE for one in _differing(way, "sometimes")]


def _differing(way: str, name: str, micro_batches: int = 1, clip: float | None = None) -> list[str]:
    import torch
    import torch.distributed as dist

    from toys import toy
    from wirespeed.training.contract import Setup
    from wirespeed.training.equivalence import Proof, differences
    from wirespeed.training.strategies.registry import build_of

    strategy, bucket_mb = WAYS[way]
    setup = Setup(
        group=dist.group.WORLD,
        device=torch.device("cpu"),
        optimizer_class=torch.optim.SGD,
        # Weight decay tells a gradient of zero from none at all.
        optimizer_options={"lr": 0.1, "weight_decay": 0.01, "momentum": 0.5},
        bucket_mb=bucket_mb,
        micro_batches=micro_batches,
        samples=4,
    )
    near = {"rtol": 0.02, "atol": 0.004} if name == "half" else {}
    found = differences(toy(name), build_of(strategy), setup, Proof(clip=clip, **near))
    return [f"{one.name} by {one.largest} on rank {one.rank}" for one in found]


@pytest.fixture(scope="module")
def equal(world: World) -> dict[str, list[str]]:
    """What ranks 0 and 1 say; they must say the same."""
    first, second = world("equal_everywhere")
    assert first == second
    found: dict[str, list[str]] = first
    return found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("way", WAYS)
def test_as_alone_on_the_whole_batch(
    equal: dict[str, list[str]], way: str, toy: str, variant: str
) -> None:
    assert equal[f"{way}; {toy}; {variant}"] == []


@pytest.mark.slow
def test_three_ranks_of_which_some_lack_gradients(world: World) -> None:
    assert world("a_rank_of_three", ranks=3) == [[], [], []]
