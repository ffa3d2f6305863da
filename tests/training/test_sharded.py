"""ShardedOptimizer steps as the plain optimizer does, on real gloo ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from wirespeed.errors import UsageError
from wirespeed.training.sharded_optimizer import ShardedOptimizer, Shards

STEPS = 10
Make = Callable[..., Optimizer]


class Tied(nn.Module):
    """Tied, frozen and unused parameters, a bfloat16 one, and strides that are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 8)
        self.conv = nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)
        self.middle = nn.Linear(8, 8)
        self.unused = nn.Linear(3, 5)
        self.low = nn.Parameter(torch.randn(8).to(torch.bfloat16))
        self.head = nn.Linear(8, 13)
        self.head.weight = self.embedding.weight
        self.middle.bias.requires_grad_(False)

    def forward(self, seed: int) -> torch.Tensor:
        tokens = torch.randint(0, 13, (6,), generator=torch.Generator().manual_seed(seed))
        x = self.middle(self.embedding(tokens)) * self.low.float()
        image = self.conv(x[:2].reshape(1, 2, 2, 4))
        return nn.functional.cross_entropy(self.head(x), tokens) + image.square().mean()


def groups(model: nn.Module) -> list[dict[str, Any]]:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0, "lr": 3e-3}]


def plain(params: Any, kind: str = "AdamW", **options: Any) -> Optimizer:
    return getattr(torch.optim, kind)(params, **options)


def sharded(params: Any, kind: str = "AdamW", **options: Any) -> Optimizer:
    return ShardedOptimizer(params, getattr(torch.optim, kind), **options)


def values(model: nn.Module) -> list[float]:
    return [x for p in model.parameters() for x in p.detach().double().flatten().tolist()]


def farthest(one: nn.Module, other: nn.Module) -> float:
    return max(abs(a - b) for a, b in zip(values(one), values(other), strict=True))


def both(train: Callable[[nn.Module, Make], Any], model: Callable[[], nn.Module] = Tied) -> float:
    """The largest difference of a parameter between training with plain and with sharded."""
    trained = []
    for make in (plain, sharded):
        torch.manual_seed(3)
        trained.append(model())
        train(trained[-1], make)
    return farthest(*trained)


def steps(model: nn.Module, optimizer: Optimizer, count: int = STEPS, begin: int = 0) -> None:
    for step in range(begin, begin + count):
        model(step).backward()
        optimizer.step()
        optimizer.zero_grad()


def adamw(model: nn.Module, make: Make) -> None:
    steps(model, make(groups(model), lr=1e-2))


def scheduler(model: nn.Module, make: Make) -> None:
    optimizer = make(model.parameters(), lr=1e-2)
    decay = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-2, total_steps=STEPS)
    for step in range(STEPS):
        steps(model, optimizer, 1, step)
        decay.step()


def closure(model: nn.Module, make: Make) -> None:
    optimizer = make(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        calls = []

        def evaluate(step: int = step, calls: list[int] = calls) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(step)
            loss.backward()
            calls.append(step)
            return loss

        given = optimizer.step(evaluate)
        assert calls == [step] and given is not None and float(given.detach()) > 0


def group_later(model: nn.Module, make: Make) -> None:
    first, second = groups(model)
    optimizer = make([first], lr=1e-2)
    steps(model, optimizer, 4)
    optimizer.add_param_group(second)
    steps(model, optimizer, STEPS - 4, 4)
    assert optimizer.param_groups[1]["lr"] == 3e-3
    assert "betas" in optimizer.param_groups[1]


def thawed(model: nn.Module, make: Make) -> None:
    optimizer = make(model.parameters(), lr=1e-2)
    steps(model, optimizer, 4)
    model.middle.bias.requires_grad_(True)
    steps(model, optimizer, STEPS - 4, 4)


def recast(model: nn.Module, make: Make) -> None:
    """module.to() gives parameters other storage while the optimizer holds views."""
    optimizer = make(model.parameters(), lr=1e-2)
    steps(model, optimizer, 2)
    model.middle.weight.data = model.middle.weight.data.clone()
    steps(model, optimizer, 2, 2)
    model.embedding.to(torch.float64).to(torch.float32)
    steps(model, optimizer, 2, 4)


def named(model: nn.Module, make: Make) -> None:
    steps(model, make(list(model.named_parameters()), lr=1e-2))


class One(nn.Module):
    """One small parameter: fewer than ranks, so that a shard is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Parameter(torch.randn(3))

    def forward(self, seed: int) -> torch.Tensor:
        return (self.only - seed).square().sum()


class Aliases(nn.Module):
    """Parameters that are views of one tensor: their storage must stay where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = torch.randn(12)
        self.first, self.second = (nn.Parameter(part) for part in self.flat.split([5, 7]))
        self.strided = nn.Parameter(torch.randn(4, 6)[:, ::2])

    def forward(self, seed: int) -> torch.Tensor:
        return sum(((p - seed).square().sum() for p in self.parameters()), torch.zeros(()))


def aliases(model: nn.Module, make: Make) -> None:
    steps(model, make(model.parameters(), lr=1e-2))
    assert torch.equal(model.flat[:5], model.first.detach())


CASES: dict[str, tuple[Callable[..., None], Callable[[], nn.Module]]] = {
    "adamw": (adamw, Tied),
    "scheduler": (scheduler, Tied),
    "closure": (closure, Tied),
    "group-later": (group_later, Tied),
    "thawed": (thawed, Tied),
    "recast": (recast, Tied),
    "named": (named, Tied),
    "one": (adamw, One),
    "aliases": (aliases, Aliases),
}
OPTIMIZERS = {
    name: {"lr": 1e-2}
    for name in ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam")
} | {
    "RMSprop": {"lr": 1e-2, "momentum": 0.5},
    "Rprop": {"lr": 1e-2},
    "SGD": {"lr": 1e-2, "momentum": 0.9, "nesterov": True},
    # Its default eps is that of the first parameter's dtype, whichever shares the call.
    "Adafactor": {"lr": 1e-2, "eps": (1e-7, 1e-3)},
}


def on_two(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    found = {
        "cases": equal_cases(),
        "optimizers": equal_optimizers(),
        "state": state_of_each(),
        "refusals": refusals(),
        "held": held(),
    }
    return found | {"saved": saved(rank, folder), "resumed": resumed(folder)}


def on_three(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    return {"cases": equal_cases(), "resumed": resumed(folder)}


def equal_cases() -> dict[str, float]:
    return {name: both(*case) for name, case in CASES.items()}


def equal_optimizers() -> dict[str, float]:
    found = {}
    for kind, options in OPTIMIZERS.items():
        for make_model in (One, Tied):

            def train(
                model: nn.Module, make: Make, kind: str = kind, options: Any = options
            ) -> None:
                steps(model, make(model.parameters(), kind, **options), 3)

            found[f"{kind} {make_model.__name__}"] = both(train, make_model)
    return found


def state_of_each() -> dict[str, Any]:
    """Who holds what state, and what the base class's interface gives."""
    model = Tied()
    optimizer = ShardedOptimizer(groups(model), torch.optim.AdamW, lr=1e-2)
    steps(model, optimizer, 2)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        "mine": sorted(names[parameter] for parameter in optimizer.state),
        "elements": sum(e.numel() for s in optimizer.state.values() for e in s.values()),
        "optimizer": isinstance(optimizer, Optimizer),
        "all": sorted(names[p] for g in optimizer.param_groups for p in g["params"]),
    }


def held() -> dict[str, int]:
    """Bytes of the storages of parameters and optimizer state on this rank."""
    # Here: the test process itself takes its import's deprecation warning for an error.
    from torch.distributed.optim import ZeroRedundancyOptimizer

    found = {}
    for kind in (ShardedOptimizer, ZeroRedundancyOptimizer):
        model = nn.Sequential(*(nn.Linear(40 + n, 40 + n + 1) for n in range(12)))
        optimizer = kind(model.parameters(), torch.optim.AdamW, lr=1e-2)
        model(torch.ones(1, 40)).sum().backward()
        optimizer.step()
        inner = getattr(optimizer, "optim", optimizer)  # torch's keeps its state there
        state = [value for one in inner.state.values() for value in one.values()]
        storages = [t.detach().untyped_storage() for t in (*model.parameters(), *state)]
        found[kind.__name__] = sum({s.data_ptr(): s.nbytes() for s in storages}.values())
    return found


def saved(rank: int, folder: str) -> dict[str, Any]:
    """Train, save on rank 0, train on: the parameters that a resumed run must come to."""
    torch.manual_seed(5)
    model = Tied()
    optimizer = ShardedOptimizer(groups(model), torch.optim.AdamW, lr=1e-2)
    steps(model, optimizer, 4)
    whole, only = optimizer.state_dict(), optimizer.state_dict(to=1)
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": whole}, Path(folder) / "saved.pt")
    dist.barrier()
    steps(model, optimizer, 4, 4)
    return {"values": values(model), "keys": sorted(whole["state"]), "only": len(only)}


def resumed(folder: str) -> list[float]:
    model = Tied()
    optimizer = ShardedOptimizer(groups(model), torch.optim.AdamW, lr=0.5)
    _load(model, optimizer, folder)
    steps(model, optimizer, 4, 4)
    return values(model)


def _load(model: nn.Module, optimizer: Optimizer, folder: str | Path) -> None:
    kept = torch.load(Path(folder) / "saved.pt", weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 1e-2


def refusals() -> list[str]:
    model = Tied()
    optimizer = ShardedOptimizer(groups(model), torch.optim.AdamW, lr=1e-2)
    other = torch.optim.AdamW(model.middle.parameters()).state_dict()
    said = []
    for act in (
        lambda: optimizer.load_state_dict(other),
        lambda: optimizer.load_state_dict({}),
        lambda: ShardedOptimizer(set(model.parameters()), torch.optim.SGD, lr=1.0),
        lambda: ShardedOptimizer([], torch.optim.SGD, lr=1.0),
    ):
        try:
            act()
        except (UsageError, ValueError) as error:
            said.append(str(error).splitlines()[0])
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def two(world: Any, folder: Path) -> Any:
    return world("on_two", arguments={"folder": str(folder)})


@pytest.fixture(scope="module")
def three(world: Any, folder: Path, two: Any) -> Any:
    """After `two`, which saves what these go on with."""
    return world("on_three", ranks=3, arguments={"folder": str(folder)})


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_plain_optimizer(two: Any, three: Any, case: str) -> None:
    assert max(found["cases"][case] for found in (*two, *three)) <= 1e-7


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_any_optimizer_of_torch(two: Any, kind: str) -> None:
    for found in two:
        assert found["optimizers"][f"{kind} One"] <= 1e-7
        assert found["optimizers"][f"{kind} Tied"] <= 1e-7


def test_the_difference_would_show() -> None:
    torch.manual_seed(3)
    one, other = Tied(), Tied()
    other.load_state_dict(one.state_dict())
    adamw(one, plain)
    steps(other, plain(other.parameters(), lr=1e-2))
    assert farthest(one, other) > 1e-3


def test_each_state_lives_on_one_rank(two: Any) -> None:
    first, second = (found["state"] for found in two)
    assert not set(first["mine"]) & set(second["mine"])
    stateless = {"middle.bias", "unused.weight", "unused.bias"}
    assert set(first["mine"]) | set(second["mine"]) == set(first["all"]) - stateless
    assert 0.5 < first["elements"] / second["elements"] < 2
    assert first["optimizer"] and second["optimizer"]


def test_no_more_memory_than_with_torchs(two: Any) -> None:
    for found in (each["held"] for each in two):
        padding = 24 * 64
        assert found["ShardedOptimizer"] <= found["ZeroRedundancyOptimizer"] + padding


def test_a_whole_state_dict_is_on_every_rank_or_on_one(two: Any) -> None:
    first, second = (found["saved"] for found in two)
    assert first["keys"] == second["keys"] and len(first["keys"]) > 5
    assert (first["only"], second["only"]) == (0, 2)


def test_state_goes_on_over_any_number_of_ranks(two: Any, three: Any) -> None:
    wanted = two[0]["saved"]["values"]
    for found in (*two, *three):
        assert found["resumed"] == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("make", [plain, sharded])
def test_state_goes_on_alone(two: Any, folder: Path, make: Make) -> None:
    model = Tied()
    optimizer = make(groups(model), lr=0.5)
    _load(model, optimizer, folder)
    steps(model, optimizer, 4, 4)
    assert values(model) == pytest.approx(two[0]["saved"]["values"], abs=1e-7)


def test_bad_input_is_named(two: Any) -> None:
    other, empty, unordered, none = two[0]["refusals"]
    assert "groups of [2]" in other and "no parameter groups" in empty
    assert "a set" in unordered and "empty parameter list" in none


def test_alone_it_is_the_plain_optimizer() -> None:
    assert both(adamw) == both(scheduler) == both(group_later) == 0.0


def test_parameters_go_to_the_rank_with_the_fewest() -> None:
    shards = Shards(None, 1)
    parameters = [nn.Parameter(torch.zeros(n)) for n in (1, 2)]
    shards.add(parameters)
    assert [shards.owner[p] for p in parameters] == [0, 0]
