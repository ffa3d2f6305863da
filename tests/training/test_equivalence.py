"""The equivalence check finds strategies that are wrong on purpose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

World = Callable[..., list[Any]]

MUTANTS = (
    "forgets one",
    "reduces twice",
    "does not divide",
    "divides by one more",
    "skips the broadcast",
    "skips the broadcast of buffers",
    "rank 1 sends zeros for one",
    "forgets the earlier micro batches",
    "NaN on one rank",
    "leaves a parameter out of its answer",
)


def judge_mutants(rank: int, ranks: int) -> dict[str, list[list[Any]]]:
    from toys import toy
    from wirespeed.training.equivalence import differences
    from wirespeed.training.strategies.plain import naive, none

    spec, right = toy("buffered"), _setup()
    found = {
        name: differences(spec, _mutant(name, rank), _setup(micro_batches=2)) for name in MUTANTS
    }
    found["none of them"] = differences(spec, naive, right)
    found["no synchronisation"] = differences(spec, none, right)
    return {
        name: [[one.name, one.largest, one.rank] for one in said] for name, said in found.items()
    }


def _setup(**more: Any) -> Any:
    import torch
    import torch.distributed as dist

    from wirespeed.training.contract import Setup

    return Setup(
        group=dist.group.WORLD,
        device=torch.device("cpu"),
        optimizer_class=torch.optim.SGD,
        optimizer_options={"lr": 0.1},
        samples=4,
        **more,
    )


def _mutant(name: str, rank: int) -> Any:
    """A build function; the trainer is our naive one with one thing broken."""
    import torch.distributed as dist
    from torch import nn

    from wirespeed.training.strategies.plain import PlainTrainer
    from wirespeed.training.synchroniser import Naive

    factors = {
        "does not divide": 2.0,
        "divides by one more": 2 / 3,
    }

    class Broken(Naive):
        def _synchronise(self) -> None:
            if name == "forgets one":
                self.parameters = self.parameters[:3]
            first = self.parameters[0]
            if name == "rank 1 sends zeros for one" and rank == 1:
                first.grad = None
            super()._synchronise()
            if name == "NaN on one rank" and rank == 1 and first.grad is not None:
                first.grad.view(-1)[0] = float("nan")

        def _mean(self, parameter: nn.Parameter) -> Any:
            mean = super()._mean(parameter)
            if name == "reduces twice":
                dist.all_reduce(mean, group=self.group)
            return mean * factors.get(name, 1.0)

    class BrokenTrainer(PlainTrainer):
        def backward(self, loss: Any) -> None:
            if name == "forgets the earlier micro batches":
                self.optimizer.zero_grad()
            super().backward(loss)

        def full_parameters(self) -> dict[str, Any]:
            all_of_them = super().full_parameters()
            if name == "leaves a parameter out of its answer":
                all_of_them.popitem()
            return all_of_them

    def build(model: nn.Module, setup: Any) -> Any:
        with _begun_apart(name):
            broken = Broken(model, setup.group)
        optimizer = setup.optimizer_class(broken.parameters, **setup.optimizer_options)
        return BrokenTrainer(model, broken, optimizer)

    return build


@contextmanager
def _begun_apart(name: str) -> Iterator[None]:
    from wirespeed.training import equivalence as agreement
    from wirespeed.training import synchroniser

    def only_parameters(module: Any, group: Any) -> None:
        for parameter in module.parameters():
            agreement._broadcast(parameter, 0, group)

    right = synchroniser.begin_alike
    if name == "skips the broadcast":
        synchroniser.begin_alike = lambda module, group: None
    if name == "skips the broadcast of buffers":
        synchroniser.begin_alike = only_parameters
    try:
        yield
    finally:
        synchroniser.begin_alike = right


@pytest.fixture(scope="module")
def judged(world: World) -> dict[str, list[list[Any]]]:
    first, second = world("judge_mutants")
    assert first == second
    found: dict[str, list[list[Any]]] = first
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_strategy_is_found(judged: dict[str, list[list[Any]]], name: str) -> None:
    assert judged[name]


def test_a_right_one_is_not(judged: dict[str, list[list[Any]]]) -> None:
    assert judged["none of them"] == []


def test_no_synchronisation_differs_in_every_parameter(
    judged: dict[str, list[list[Any]]],
) -> None:
    names = {name for name, _, _ in judged["no synchronisation"]}
    assert names == {"inner.weight", "inner.bias", "outer.weight", "outer.bias"}


def test_what_was_forgotten_is_named(judged: dict[str, list[list[Any]]]) -> None:
    name, largest, _ = judged["forgets one"][0]
    assert name == "outer.bias"
    assert 0 < largest < 100


def test_nan_is_an_infinite_difference(judged: dict[str, list[list[Any]]]) -> None:
    assert {largest for _, largest, _ in judged["NaN on one rank"]} == {float("inf")}


def test_the_rank_is_named(judged: dict[str, list[list[Any]]]) -> None:
    assert {rank for _, _, rank in judged["skips the broadcast"]} == {1}


# bf16 and fp16 with a gradient scaler: together as alone, and what is wrong still shows.


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
