"""torch's strategies and our sharded one train as one process does, on two real gloo ranks."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import ModelSpec, Setup
from wirespeed.training.equivalence import Proof, differences
from wirespeed.training.strategies import fsdp
from wirespeed.training.strategies.fsdp import blocks_of, mesh_rows
from wirespeed.training.strategies.registry import STRATEGIES, build_of

pytestmark = pytest.mark.slow

NAMES = ("ddp", "ddp-view", "ddp-bf16", "fsdp2", "hsdp", "zero1", "sharded")
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated-and-clipped": {"micro_batches": 3, "clip": 0.05},
    "tiny-buckets": {"bucket_mb": 0.0001},
    "adamw": {"optimizer": "AdamW"},
    "two-nodes": {"nodes": ("a", "b")},
}


class Toy(nn.Module):
    """Repeated blocks, tied weights, a frozen parameter, odd sizes, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.register_buffer("scale", torch.rand(6) + 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))
            for _ in range(3)
        )
        self.head = nn.Linear(6, 11)
        self.head.weight = self.embedding.weight
        self.blocks[1][1].weight.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * self.scale
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def batch(seed: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, 11, (samples, 5), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]).transpose(1, 2), batch[1])


SPEC = ModelSpec(name="toy", build=Toy, batch=batch, loss=loss, parameters=0, gradient_bytes=0)


def setup_of(name: str, **options: Any) -> Setup:
    optimizer = getattr(torch.optim, options.pop("optimizer", "SGD"))
    rates = {"lr": 0.01} if optimizer is torch.optim.AdamW else {"lr": 0.1, "momentum": 0.9}
    group = options.pop("group", dist.group.WORLD)
    return Setup(
        group=group,
        device=torch.device("cpu"),
        optimizer_class=optimizer,
        optimizer_options=rates,
        variant=STRATEGIES[name].variant,
        samples=4,
        **options,
    )


def equal_to_one_process() -> dict[str, Any]:
    found = {}
    for name in NAMES:
        near = (1e-2, 1e-2) if name == "ddp-bf16" else (1e-5, 1e-8)
        for way, options in WAYS.items():
            given = dict(options)
            proof = Proof(clip=given.pop("clip", None), rtol=near[0], atol=near[1])
            odd = differences(SPEC, build_of(name), setup_of(name, **given), proof)
            found[f"{name} {way}"] = [(one.name, one.largest) for one in odd]
    return found


def a_few_steps(rank: int) -> dict[str, Any]:
    """What holds of each trainer between build and close."""
    found: dict[str, Any] = {}
    for name in NAMES:
        torch.manual_seed(rank)
        plain = Toy()
        names = [key for key, _ in plain.named_parameters()]
        trainer = build_of(name)(plain, setup_of(name))
        begin = trainer.full_parameters()
        with trainer.no_sync():
            trainer.backward(loss(trainer.model, batch(rank, 4)))
        kept_back = _not_yet_synchronised(plain)
        trainer.backward(loss(trainer.model, batch(10 + rank, 4)))
        trainer.finish()
        trainer.clip(1e-3)
        norm = _norm(trainer.model)
        trainer.step()
        after = trainer.full_parameters()
        found[name] = {
            "names": list(begin) == names,
            "alike": _alike(torch.cat([value.flatten() for value in begin.values()])),
            "kept back": kept_back,
            "norm": norm,
            "cleared": all(p.grad is None for p in plain.parameters()),
            "moved": any(not torch.equal(begin[key], after[key]) for key in names),
            "frozen": torch.equal(begin["blocks.1.1.weight"], after["blocks.1.1.weight"]),
            "whole": all(after[k].shape == p.shape for k, p in Toy().named_parameters()),
            "copies": after["head.bias"].data_ptr() != plain.head.bias.data_ptr(),
        }
        trainer.close()
        trainer.close()
    return found


def alone_after_close(rank: int) -> dict[str, float]:
    """Rank 0 alone makes backward passes: a hook that is left would wait for rank 1."""
    found = {}
    for name in ("ddp", "zero1", "sharded"):
        torch.manual_seed(7)
        plain = Toy()
        trainer = build_of(name)(plain, setup_of(name))
        trainer.backward(loss(trainer.model, batch(rank, 4)))
        trainer.finish()
        trainer.step()
        trainer.close()
        if hasattr(trainer.model, "reducer"):
            raise AssertionError(f"{name} keeps its buckets")
        if rank == 0:
            alone = Toy()
            alone.load_state_dict(plain.state_dict())
            for model in (plain, alone):
                loss(model, batch(3, 4)).backward()
            found[name] = float((plain.head.bias.grad - alone.head.bias.grad).abs().max())
    return found


def on_two(rank: int, ranks: int) -> dict[str, Any]:
    found = {"equal": equal_to_one_process(), "steps": a_few_steps(rank)}
    return found | {"closed": alone_after_close(rank)}


def within_a_part(rank: int, ranks: int) -> dict[str, Any]:
    """Two of four ranks train, then all of them on two nodes."""
    part = dist.new_group([0, 2])
    found = {}
    for name in NAMES if rank in (0, 2) else ():
        found[name] = _two_steps(name, group=part)
    dist.barrier()
    return found | {"nodes": _two_steps("hsdp", nodes=("a", "b", "a", "b"))}


class Unused(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Linear(3, 3)


class Mixed(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.ones(6, dtype=torch.bfloat16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens) * self.low.float().sum()


class Scalar(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens) * self.factor


def alone(rank: int, ranks: int) -> dict[str, Any]:
    equal = {name: _two_steps(name, nodes=("a",)) for name in NAMES}
    said = {
        f"{kind.__name__} {name}": _said(kind, name)
        for kind in (Unused, Mixed, Scalar)
        for name in ("ddp", "zero1", "fsdp2", "sharded")
    }
    return {"equal": equal, "said": said}


def _said(kind: type[nn.Module], name: str) -> str:
    try:
        differences(replace(SPEC, build=kind), build_of(name), setup_of(name), Proof(steps=2))
    except CannotMeasure as error:
        return error.saw
    return ""


def _two_steps(name: str, **options: Any) -> list[Any]:
    near = (1e-2, 1e-2) if name == "ddp-bf16" else (1e-5, 1e-8)
    proof = Proof(steps=2, rtol=near[0], atol=near[1])
    odd = differences(SPEC, build_of(name), setup_of(name, **options), proof)
    return [(one.name, one.largest) for one in odd]


def _not_yet_synchronised(model: nn.Module) -> bool:
    """Whether gradients are this rank's own still; fully_shard has not handed any out then."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return not gradients or not _alike(torch.cat([g.flatten() for g in gradients]))


def _alike(mine: torch.Tensor) -> bool:
    """Whether it is the same on both ranks."""
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    return torch.equal(*both)


def _norm(model: nn.Module) -> float:
    """Joint norm of all gradients, whole ones."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in gradients]
    return float(torch.cat([g.flatten() for g in whole]).norm())


@pytest.fixture(scope="module")
def two(world: Any) -> Any:
    return world("on_two", timeout=90)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_equal_to_one_process_on_the_full_batch(two: Any, name: str, way: str) -> None:
    assert [found["equal"][f"{name} {way}"] for found in two] == [[], []]


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_keeps_its_contract(two: Any, name: str) -> None:
    for found in (each["steps"][name] for each in two):
        assert found.pop("norm") == pytest.approx(1e-3, rel=1e-2)
        assert found == dict.fromkeys(found, True)


def test_a_closed_trainer_leaves_no_hook(two: Any) -> None:
    assert two[0]["closed"] == {"ddp": 0.0, "zero1": 0.0, "sharded": 0.0}


@pytest.mark.slow
def test_part_of_the_world_trains(world: Any) -> None:
    first, idle, third, _ = world("within_a_part", ranks=4)
    assert first == third == {key: [] for key in (*NAMES, "nodes")}
    assert idle == {"nodes": []}


@pytest.fixture(scope="module")
def one(world: Any) -> Any:
    return world("alone", ranks=1)[0]


@pytest.mark.slow
def test_one_rank_trains(one: Any) -> None:
    assert one["equal"] == {name: [] for name in NAMES}


def test_what_torch_does_not_take_is_named(one: Any) -> None:
    said = {key: value for key, value in one["said"].items() if value}
    refused = ["Mixed fsdp2", "Mixed zero1", "Scalar fsdp2", "Unused ddp", "Unused zero1"]
    assert sorted(said) == refused
    assert "extra.weight got no gradient (2 such" in said["Unused ddp"]
    assert "torch.bfloat16 and torch.float32" in said["Mixed zero1"]
    assert "torch.bfloat16 and torch.float32" in said["Mixed fsdp2"]


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        ((), [[0, 1, 2, 3]]),
        (("a",) * 4, [[0, 1, 2, 3]]),
        (("a", "a", "b", "b"), [[0, 1], [2, 3]]),
        (("a", "b", "a", "b"), [[0, 2], [1, 3]]),
        (("a", "b", "c", "d"), [[0], [1], [2], [3]]),
        (("a", "a", "a", "b"), [[0], [1], [2], [3]]),
    ],
)
def test_ranks_of_a_node_shard_together(nodes: tuple[str, ...], rows: list[list[int]]) -> None:
    assert mesh_rows(nodes, 4) == rows


def test_nodes_of_unequal_size_are_cut_into_equal_parts() -> None:
    assert mesh_rows(("a", "a", "a", "a", "b", "b"), 6) == [[0, 1], [2, 3], [4, 5]]


def test_blocks_are_what_module_lists_hold() -> None:
    toy = Toy()
    assert blocks_of(toy) == list(toy.blocks)


def test_a_block_with_weights_of_another_is_none() -> None:
    toy = Toy()
    toy.blocks[0][3].weight = toy.blocks[2][3].weight
    assert blocks_of(toy) == [toy.blocks[1]]


def test_a_sequential_is_cut_where_there_is_no_list() -> None:
    chain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
    assert blocks_of(chain) == [chain[0], chain[2]]
    nested = nn.ModuleDict({"a": nn.ModuleList([nn.Linear(1, 1)]), "b": nn.ParameterList()})
    assert blocks_of(nested) == [nested["a"][0]]


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
